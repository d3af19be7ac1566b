//! Reads as fio makes them: several jobs at once, each with a file of its own, for a fixed time or to the file's end.
//!
//! They are buffered: calls of `read` through the kernel's cache, as in the paper. What was read before is dropped from
//! this cache first, and no job reads a block twice, so every byte comes from below the kernel. As fio does, a job says
//! which pattern is coming (`posix_fadvise`), so the kernel asks for no more than a random reader does.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::error::{LabError, Result, doing};

/// Each page of a file begins with the number of its job and its own number.
const PAGE: usize = 4 << 10;
/// Bytes of one write, when files are made.
const PIECE: usize = 1 << 20;

/// The order in which a job reads the blocks of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each block once, in an order of chance.
    Random,
    /// One block after the other.
    Sequential,
}

impl Order {
    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Order::Random => "random",
            Order::Sequential => "sequential",
        }
    }

    /// The order with this title.
    pub fn named(title: &str) -> Option<Order> {
        [Order::Random, Order::Sequential].into_iter().find(|order| order.title() == title)
    }
}

/// How much a job reads.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// For a time.
    Time {
        /// Before that, when nothing counts yet.
        ramp: Duration,
        /// What counts.
        time: Duration,
    },
    /// The last so many bytes of its file; it counts until all jobs have theirs. With a fixed time, whoever reads ahead is
    /// judged by how much was fetched when the time began and had not been asked for when it ended: seconds' worth, behind
    /// a slow link.
    Tail(u64),
}

/// Files for some jobs, and how they are read.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// Number of jobs, and of files.
    pub jobs: u32,
    /// Bytes of a file.
    pub file: u64,
    /// Bytes of a read.
    pub block: u32,
    /// The order of reads.
    pub order: Order,
    /// How much they read.
    pub until: Until,
    /// Another number makes another order of chance.
    pub seed: u64,
}

/// What all jobs together have read while it counted.
#[derive(Clone, Copy, Debug)]
pub struct Done<T> {
    /// Their bytes.
    pub bytes: u64,
    /// The time for that.
    pub time: Duration,
    /// What was seen at its begin.
    pub before: T,
    /// What was seen at its end.
    pub after: T,
}

/// What jobs have in common.
struct Common {
    start: Barrier,
    is_over: AtomicBool,
    bytes: AtomicU64,
}

pub(super) fn path(dir: &Path, job: u32) -> PathBuf {
    dir.join(format!("job{job}"))
}

/// Marks all pages of a piece of a job's file that begins at `offset`.
pub(super) fn stamp_all(piece: &mut [u8], job: u32, offset: u64) {
    for (page, number) in piece.chunks_mut(PAGE).zip(offset / PAGE as u64..) {
        stamp(page, job, number);
    }
}

fn stamp(page: &mut [u8], job: u32, number: u64) {
    page[..8].copy_from_slice(&number.to_le_bytes());
    page[8..12].copy_from_slice(&job.to_le_bytes());
}

/// Makes the files of `jobs` jobs.
///
/// # Errors
/// They cannot be written, or not be made stable.
pub fn make_files(dir: &Path, jobs: u32, bytes: u64) -> Result<()> {
    let make = |job: u32| {
        let path = path(dir, job);
        let mut piece = vec![0x5a; PIECE];
        let written = File::create(&path).and_then(|mut file| {
            for at in (0..bytes).step_by(PIECE) {
                stamp_all(&mut piece, job, at);
                file.write_all(&piece[..PIECE.min((bytes - at) as usize)])?;
            }
            file.sync_all()
        });
        written.map_err(doing(format!("write {}", path.display())))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|job| scope.spawn(move || make(job))).collect();
        threads.into_iter().try_for_each(join)
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Readers {
    /// Reads below each of some directories, all at once; each is a client with all the jobs. Counters outside are looked
    /// at when the time begins to count, and when it ends.
    ///
    /// # Errors
    /// A file cannot be read, or has other bytes than were written; or what `look` says.
    pub fn read<T>(&self, dirs: &[&Path], look: impl Fn() -> Result<T>) -> Result<Done<T>> {
        let jobs: Vec<(&Path, usize, u32)> = (0..dirs.len())
            .flat_map(|client| (0..self.jobs).map(move |job| (dirs[client], client, job)))
            .collect();
        let common = Common {
            start: Barrier::new(jobs.len() + 1),
            is_over: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
        };
        let count = || Ok((Instant::now(), common.bytes.load(Ordering::Relaxed), look()?));
        thread::scope(|scope| {
            let common = &common;
            let run = |(dir, client, job)| scope.spawn(move || self.job(dir, client, job, common));
            let threads: Vec<_> = jobs.into_iter().map(run).collect();
            let join_all = || threads.into_iter().try_for_each(join);
            let (before, after) = match self.until {
                Until::Time { ramp, time } => {
                    common.start.wait();
                    thread::sleep(ramp);
                    let before = count();
                    thread::sleep(time);
                    let after = count();
                    common.is_over.store(true, Ordering::Relaxed);
                    join_all()?;
                    (before, after)
                }
                Until::Tail(_) => {
                    let before = count();
                    common.start.wait();
                    join_all()?;
                    (before, count())
                }
            };
            let ((start, read, before), (end, all, after)) = (before?, after?);
            Ok(Done { bytes: all - read, time: end - start, before, after })
        })
    }

    fn job(&self, dir: &Path, client: usize, job: u32, common: &Common) -> Result<()> {
        let path = path(dir, job);
        let opened = File::open(&path).and_then(|file| self.forget(&file).map(|()| file));
        // All wait for all, also for one that fails.
        common.start.wait();
        let file = opened.map_err(doing(format!("open {}", path.display())))?;
        let mut block = vec![0; self.block as usize];
        let mut order = self.blocks(u64::from(job) << 8 | client as u64);
        let is_once = matches!(self.until, Until::Tail(_));
        let mut at = 0;
        while !common.is_over.load(Ordering::Relaxed) {
            if at == order.len() {
                if is_once {
                    break;
                }
                // Everything was read: once more, from below.
                self.forget(&file).map_err(doing(format!("drop the cache of {}", path.display())))?;
                if self.order == Order::Random {
                    order.rotate_left(1);
                }
                at = 0;
            }
            let offset = u64::from(order[at]) * u64::from(self.block);
            file.read_exact_at(&mut block, offset).map_err(doing(format!("read {}", path.display())))?;
            check(&block, job, offset)
                .map_err(|at| LabError::WrongBytes { place: path.display().to_string(), at })?;
            common.bytes.fetch_add(u64::from(self.block), Ordering::Relaxed);
            at += 1;
        }
        Ok(())
    }

    /// Drops what the kernel has of a file, and says how it will be read.
    fn forget(&self, file: &File) -> std::io::Result<()> {
        let pattern = match self.order {
            Order::Random => PosixFadviseAdvice::POSIX_FADV_RANDOM,
            Order::Sequential => PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL,
        };
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        posix_fadvise(file, 0, 0, pattern)?;
        Ok(())
    }

    /// The numbers of all blocks that a job reads, in its order.
    fn blocks(&self, job: u64) -> Vec<u32> {
        let block_of = |byte: u64| (byte / u64::from(self.block)) as u32;
        let first = match self.until {
            Until::Time { .. } => 0,
            Until::Tail(bytes) => block_of(self.file.saturating_sub(bytes)),
        };
        let mut blocks: Vec<u32> = (first..block_of(self.file)).collect();
        if self.order == Order::Random {
            shuffle(&mut blocks, self.seed << 32 ^ job);
        }
        blocks
    }
}

/// The numbers below `count` in an order of chance; another seed makes another one.
pub(super) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    shuffle(&mut numbers, seed);
    numbers
}

fn shuffle(numbers: &mut [u32], seed: u64) {
    let mut chance = Chance(seed);
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, (chance.next() % (at as u64 + 1)) as usize);
    }
}

/// The offset of the first page that is not the job's own, if any.
pub(super) fn check(block: &[u8], job: u32, offset: u64) -> std::result::Result<(), u64> {
    let mut wanted = [0; 12];
    for (page, number) in block.chunks(PAGE).zip(offset / PAGE as u64..) {
        stamp(&mut wanted, job, number);
        if !page.starts_with(&wanted) {
            return Err(number * PAGE as u64);
        }
    }
    Ok(())
}

/// SplitMix64: numbers that look like chance.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: Readers = Readers {
        jobs: 2,
        file: 1 << 20,
        block: 4 << 10,
        order: Order::Random,
        until: Until::Time { ramp: Duration::from_millis(5), time: Duration::from_millis(20) },
        seed: 1,
    };

    #[test]
    fn each_block_comes_once_and_in_another_order_for_each_job() {
        let (one, other) = (READERS.blocks(0), READERS.blocks(1));
        assert_ne!(one, other);
        assert_ne!(one, Readers { seed: 2, ..READERS }.blocks(0));
        let mut sorted = one.clone();
        sorted.sort_unstable();
        assert_ne!(one, sorted);
        assert_eq!(sorted, Readers { order: Order::Sequential, ..READERS }.blocks(0));
        assert_eq!(sorted.len(), 256);
        let tail = Readers { order: Order::Sequential, until: Until::Tail(64 << 10), ..READERS };
        assert_eq!(tail.blocks(0), sorted[240..]);
    }

    #[test]
    fn all_clients_read_and_a_wrong_page_is_seen() {
        let dir = std::env::temp_dir().join(format!("lab-readers-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        make_files(&dir, 2, 1 << 20).expect("files");
        for order in [Order::Random, Order::Sequential] {
            let looks = std::cell::Cell::new(0);
            let look = || Ok(looks.replace(looks.get() + 1));
            let done = Readers { order, ..READERS }.read(&[&dir, &dir], look).expect("reads");
            assert!(done.bytes >= 4096 && done.time >= Duration::from_millis(20), "{done:?}");
            assert_eq!((done.before, done.after), (0, 1));
        }
        let tail = Readers { until: Until::Tail(80 << 10), ..READERS };
        let done = tail.read(&[&dir, &dir], || Ok(())).expect("reads");
        assert_eq!(done.bytes, 2 * 2 * (80 << 10), "each job once");
        let file = File::options().write(true).open(path(&dir, 1)).expect("a file");
        file.write_all_at(&[9; 12], 40 << 10).expect("a write");
        let seen = Readers { block: 1 << 20, ..READERS }.read(&[&dir], || Ok(()));
        assert!(matches!(seen, Err(LabError::WrongBytes { at: 40_960, .. })), "{seen:?}");
        std::fs::remove_dir_all(&dir).expect("its removal");
    }
}
