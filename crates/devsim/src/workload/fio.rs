//! Fio-A and Fio-B: direct I/O.

use std::collections::VecDeque;

use pace::device::Operation;

use super::program::Step;
use crate::random::Random;
use crate::time::US;

/// Operations on a file of Fio-A before the next one.
const OPERATIONS: u64 = 16;
/// Bytes of the device that files are in.
const DEVICE: u64 = 48 << 30;
/// What a program computes for an operation.
const CPU_US: u64 = 5;

/// Four processes: sequential reads, random reads, sequential writes, random writes. Each takes a size of 4 KiB to 8 MiB
/// and a file of 256 KiB to 512 MiB, any power of 2, for 16 operations.
#[derive(Debug)]
pub(crate) struct FioA {
    jobs: Vec<Job>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Job {
    left: u64,
    size: u64,
    place: u64,
    file: u64,
    at: u64,
}

impl FioA {
    pub(super) const PROCESSES: u32 = 4;

    pub(super) fn new() -> FioA {
        FioA { jobs: vec![Job::default(); FioA::PROCESSES as usize] }
    }

    pub(super) fn plan(&mut self, process: u32, random: &mut Random, steps: &mut VecDeque<Step>) {
        let job = &mut self.jobs[process as usize];
        if job.left == 0 {
            let size = 4096 << random.below(12);
            let file = ((256 << 10) << random.below(12)).max(size);
            let place = u64::from(process) * (DEVICE / 4) + random.below(DEVICE / 4 / file) * file;
            *job = Job { left: OPERATIONS, size, place, file, at: 0 };
        }
        job.left -= 1;
        let is_random = process % 2 == 1;
        let pieces = job.file / job.size;
        let piece = if is_random { random.below(pieces) } else { job.at % pieces };
        job.at += 1;
        let (operation, kind) = if process < 2 { (Operation::Read, 0) } else { (Operation::Write, 1) };
        let (offset, length) = (job.place + piece * job.size, job.size);
        steps.push_back(Step::Compute(CPU_US * US));
        steps.push_back(Step::Direct { operation, offset, length });
        steps.push_back(Step::Done { kind, bytes: length });
    }
}

/// The access pattern of a file server: 80 % reads, random places, 64 in flight.
#[derive(Debug)]
pub(crate) struct FioB;

/// Bytes, and how many of a hundred operations have them.
const SIZES: [(u64, u64); 8] = [
    (512, 10),
    (1 << 10, 5),
    (2 << 10, 5),
    (4 << 10, 60),
    (8 << 10, 2),
    (16 << 10, 4),
    (32 << 10, 4),
    (64 << 10, 10),
];

impl FioB {
    pub(super) const IN_FLIGHT: u32 = 64;

    pub(super) fn plan(&mut self, random: &mut Random, steps: &mut VecDeque<Step>) {
        let mut drawn = random.below(100);
        let mut length = SIZES[SIZES.len() - 1].0;
        for (bytes, percent) in SIZES {
            if drawn < percent {
                length = bytes;
                break;
            }
            drawn -= percent;
        }
        let (operation, kind) = if random.percent(80) { (Operation::Read, 0) } else { (Operation::Write, 1) };
        let offset = random.below(DEVICE / length) * length;
        steps.push_back(Step::Compute(CPU_US * US));
        steps.push_back(Step::Direct { operation, offset, length });
        steps.push_back(Step::Done { kind, bytes: length });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(plan: impl Fn(&mut Random, &mut VecDeque<Step>), count: usize) -> Vec<(Operation, u64)> {
        let (mut random, mut steps) = (Random::new(1), VecDeque::new());
        (0..count).for_each(|_| plan(&mut random, &mut steps));
        let direct = |step: &Step| match *step {
            Step::Direct { operation, length, .. } => Some((operation, length)),
            _ => None,
        };
        steps.iter().filter_map(direct).collect()
    }

    #[test]
    fn a_file_server_has_the_sizes_of_the_pattern() {
        let all = planned(|random, steps| FioB.plan(random, steps), 20_000);
        let part = |is: &dyn Fn(&(Operation, u64)) -> bool| {
            all.iter().filter(|request| is(request)).count() as f64 / all.len() as f64
        };
        assert!((part(&|request| request.0 == Operation::Read) - 0.8).abs() < 0.01);
        for (bytes, percent) in SIZES {
            assert!((part(&|request| request.1 == bytes) - percent as f64 / 100.0).abs() < 0.01, "{bytes}");
        }
        assert_eq!(SIZES.iter().map(|size| size.1).sum::<u64>(), 100);
    }

    #[test]
    fn operations_stay_in_their_files() {
        let mut fio = FioA::new();
        let (mut random, mut steps) = (Random::new(1), VecDeque::new());
        for number in 0..4000 {
            fio.plan(number % 4, &mut random, &mut steps);
            let job = fio.jobs[(number % 4) as usize];
            assert!(job.place + job.file <= DEVICE);
            let Some(Step::Direct { offset, length, .. }) = steps.get(1).copied() else {
                panic!("a request")
            };
            assert!(offset >= job.place && offset + length <= job.place + job.file);
            steps.clear();
        }
    }
}
