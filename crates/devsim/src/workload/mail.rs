//! Postmark: one process, 500 files of 4 KiB to 16 MiB. A transaction reads a file or appends to it, and creates or removes
//! one.

use std::collections::VecDeque;

use super::program::Step;
use crate::random::Random;
use crate::time::{Time, US};

const FILES: u64 = 500;
const SIZE_MIN: u64 = 4 << 10;
const SIZE_MAX: u64 = 16 << 20;
/// The files have 4 GB, as much as the machine: so many percent of reads are in its page cache.
const CACHED_PERCENT: u64 = 50;
/// The kernel's and the program's work for 4 KiB, in nanoseconds.
const BLOCK_NS: u64 = 1_500;
/// Bytes that are written between two looks at the limit for dirty bytes.
const PART: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Mail {
    sizes: Vec<u64>,
    /// Removed files: their places are used again.
    free: Vec<u64>,
}

fn cpu(bytes: u64) -> Time {
    bytes / 4096 * BLOCK_NS
}

fn place(file: u64) -> u64 {
    // Neighbours in time are not neighbours on the device.
    (file * 211 % (2 * FILES)) * (SIZE_MAX + (1 << 20))
}

impl Mail {
    pub(super) fn new(random: &mut Random) -> Mail {
        let sizes =
            (0..2 * FILES).map(|_| random.within(SIZE_MIN, SIZE_MAX).next_multiple_of(4096)).collect();
        Mail { sizes, free: (FILES..2 * FILES).collect() }
    }

    fn write(file: u64, from: u64, to: u64, steps: &mut VecDeque<Step>) {
        let mut at = from;
        while at < to {
            let length = PART.min(to - at);
            steps.push_back(Step::Compute(cpu(length) + US));
            steps.push_back(Step::Write { file, offset: place(file) + at, length });
            at += length;
        }
        steps.push_back(Step::Done { kind: 1, bytes: to - from });
    }

    pub(super) fn plan(&mut self, random: &mut Random, steps: &mut VecDeque<Step>) {
        let file = self.used(random);
        let size = self.sizes[file as usize];
        if random.percent(50) {
            steps.push_back(Step::Compute(cpu(size) + US));
            if !random.percent(CACHED_PERCENT) {
                steps.push_back(Step::Read { offset: place(file), length: size });
            }
            steps.push_back(Step::Done { kind: 0, bytes: size });
        } else if size < SIZE_MAX {
            let more = random.within(1, SIZE_MAX - size).next_multiple_of(4096).min(SIZE_MAX - size);
            self.sizes[file as usize] = size + more;
            Mail::write(file, size, size + more, steps);
        }
        let removes = self.free.is_empty() || (self.free.len() as u64) < FILES && random.percent(50);
        if removes {
            let file = self.used(random);
            self.free.push(file);
            steps.push_back(Step::Compute(20 * US));
            steps.push_back(Step::Delete { file });
        } else {
            let at = random.below(self.free.len() as u64) as usize;
            let file = self.free.swap_remove(at);
            let size = random.within(SIZE_MIN, SIZE_MAX).next_multiple_of(4096);
            self.sizes[file as usize] = size;
            Mail::write(file, 0, size, steps);
        }
    }

    /// A file that there is: half of the numbers at least are in use.
    fn used(&self, random: &mut Random) -> u64 {
        loop {
            let file = random.below(2 * FILES);
            if !self.free.contains(&file) {
                return file;
            }
        }
    }
}
