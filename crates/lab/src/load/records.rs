//! Reads and writes as IOzone makes them: each task has a file of its own, and goes through it record after record, or in an order
//! of chance, with calls of `read` and `write` through the kernel's cache.
//!
//! No byte comes from a cache by mistake: what the kernel has of a file is dropped before it is read, and no record is read
//! twice; the time of writes ends when `fsync` has returned. The kernel reads ahead as for any program. In order, a task reads up
//! to the end of its file: whoever fetches ahead could not use the last of it otherwise.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::readers::{Order, check, path, shuffled, stamp_all};
use super::streams::Way;
use crate::error::{LabError, Result, doing};

/// What some tasks do at once.
#[derive(Clone, Copy, Debug)]
pub struct Records {
    /// Tasks, each with a file.
    pub tasks: u32,
    /// Bytes of a file that is there: whole records.
    pub file: u64,
    /// Bytes of a task: whole records. In order, they are the last ones of its file, or all of a new one.
    pub span: u64,
    /// Bytes of a record.
    pub record: u32,
    /// The order of records.
    pub order: Order,
    /// What they do. In order, they write new files. By chance, they write files that exist
    /// ([`make_files`](super::readers::make_files)).
    pub way: Way,
    /// No record begins after that.
    pub most: Duration,
}

/// What they have done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Bytes of all tasks.
    pub bytes: u64,
    /// From the common begin until the last task has read its last byte, or until its bytes are stable.
    pub time: Duration,
}

impl Records {
    /// Runs the tasks in a directory.
    ///
    /// # Errors
    /// A file cannot be read or written, or has other bytes than were written.
    pub fn run(&self, dir: &Path) -> Result<Recorded> {
        let begin = Barrier::new(self.tasks as usize + 1);
        let done = thread::scope(|scope| {
            let begin = &begin;
            let run = |task| scope.spawn(move || self.task(dir, task, begin));
            let threads: Vec<_> = (0..self.tasks).map(run).collect();
            begin.wait();
            let start = Instant::now();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<(u64, Instant)>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let ends: Vec<(u64, Instant)> = threads.into_iter().map(join).collect::<Result<_>>()?;
            let last = ends.iter().map(|(_, end)| *end).max().unwrap_or(start);
            Ok(Recorded { bytes: ends.iter().map(|(bytes, _)| bytes).sum(), time: last - start })
        })?;
        if self.is_new() {
            self.remove(dir)?;
        }
        Ok(done)
    }

    /// Whether files are made for the run.
    fn is_new(&self) -> bool {
        self.way == Way::Write && self.order == Order::Sequential
    }

    fn file_of(&self, dir: &Path, task: u32) -> PathBuf {
        if self.is_new() { dir.join(format!("new{task}")) } else { path(dir, task) }
    }

    fn remove(&self, dir: &Path) -> Result<()> {
        (0..self.tasks).map(|task| self.file_of(dir, task)).try_for_each(|path| {
            std::fs::remove_file(&path).map_err(doing(format!("remove {}", path.display())))
        })
    }

    /// Bytes of a task, and when it had done everything.
    fn task(&self, dir: &Path, task: u32, begin: &Barrier) -> Result<(u64, Instant)> {
        let path = self.file_of(dir, task);
        let opened = self.open(&path);
        let order = self.offsets(task);
        let mut buffer = vec![0; self.record as usize];
        // All wait for all, also for one that fails.
        begin.wait();
        let file = opened.map_err(doing(format!("open {}", path.display())))?;
        let failed = |error| doing(format!("{} {}", self.way.title(), path.display()))(error);
        let (start, mut bytes) = (Instant::now(), 0);
        for offset in order {
            if start.elapsed() >= self.most {
                break;
            }
            if self.way == Way::Write {
                stamp_all(&mut buffer, task, offset);
                file.write_all_at(&buffer, offset).map_err(failed)?;
            } else {
                file.read_exact_at(&mut buffer, offset).map_err(failed)?;
                check(&buffer, task, offset)
                    .map_err(|at| LabError::WrongBytes { place: path.display().to_string(), at })?;
            }
            bytes += u64::from(self.record);
        }
        if self.way == Way::Write {
            file.sync_all().map_err(failed)?;
        }
        Ok((bytes, Instant::now()))
    }

    fn open(&self, path: &Path) -> std::io::Result<File> {
        if self.is_new() {
            return File::create(path);
        }
        let file = OpenOptions::new().read(true).write(self.way == Way::Write).open(path)?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        Ok(file)
    }

    fn offsets(&self, task: u32) -> Vec<u64> {
        let record = u64::from(self.record);
        let (all, count) = ((self.file / record) as u32, (self.span / record) as u32);
        let numbers: Vec<u32> = match self.order {
            Order::Sequential if self.is_new() => (0..count).collect(),
            Order::Sequential => (all.saturating_sub(count)..all).collect(),
            Order::Random => shuffled(all, task.into()).into_iter().take(count as usize).collect(),
        };
        numbers.into_iter().map(|number| u64::from(number) * record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::readers::make_files;
    use super::*;

    const RECORDS: Records = Records {
        tasks: 2,
        file: 1 << 20,
        span: 1 << 20,
        record: 16 << 10,
        order: Order::Sequential,
        way: Way::Read,
        most: Duration::from_secs(60),
    };

    #[test]
    fn each_task_goes_through_its_file_once() {
        let dir = std::env::temp_dir().join(format!("lab-records-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        make_files(&dir, 2, 1 << 20).expect("files");
        for order in [Order::Sequential, Order::Random] {
            for way in [Way::Write, Way::Read] {
                let done = Records { order, way, ..RECORDS }.run(&dir).expect("it runs");
                assert_eq!(done.bytes, 2 << 20, "{order:?} {way:?}");
            }
        }
        assert_eq!(std::fs::read_dir(&dir).expect("a directory").count(), 2, "new files are removed");
        let none = Records { most: Duration::ZERO, ..RECORDS }.run(&dir).expect("it runs");
        assert_eq!(none.bytes, 0);
        let file = File::options().write(true).open(path(&dir, 1)).expect("a file");
        file.write_all_at(&[9; 12], 4096).expect("a write");
        let seen = RECORDS.run(&dir);
        assert!(matches!(seen, Err(LabError::WrongBytes { at: 4096, .. })), "{seen:?}");
        std::fs::remove_dir_all(&dir).expect("its removal");
    }

    #[test]
    fn an_order_of_chance_has_each_record_once() {
        let random = Records { order: Order::Random, ..RECORDS };
        let (one, other) = (random.offsets(0), random.offsets(1));
        assert_ne!(one, other);
        let mut sorted = one.clone();
        sorted.sort_unstable();
        assert_ne!(one, sorted);
        assert_eq!(sorted, RECORDS.offsets(0));
        assert_eq!(sorted.len(), 64);
        assert_eq!(Records { span: 32 << 10, ..random }.offsets(0), one[..2]);
    }

    #[test]
    fn a_part_of_a_file_is_its_end_and_a_new_file_has_no_more() {
        let part = Records { span: 32 << 10, ..RECORDS };
        assert_eq!(part.offsets(0), [(1 << 20) - (32 << 10), (1 << 20) - (16 << 10)]);
        assert_eq!(Records { way: Way::Write, ..part }.offsets(0), [0, 16 << 10]);
    }
}
