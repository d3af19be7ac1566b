//! Reads and writes as IOzone makes them: several tasks at once, each with a file of its own, record after record, for a
//! fixed time. The time of each record counts.
//!
//! Nothing is cached by the kernel (`O_DIRECT`), and a written record is stable when its call returns (`O_DSYNC`). What is
//! read is compared with what was written.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::{O_DIRECT, O_DSYNC};

use super::readers::{check, path, stamp_all};
use crate::error::{LabError, Result, doing};

/// What `O_DIRECT` may want of a buffer, in bytes.
const ALIGNMENT: usize = 4096;

/// What the tasks do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They read files that are there ([`make_files`](super::readers::make_files)).
    Read,
    /// They write these files anew, over what is there.
    Write,
}

impl Way {
    /// Both.
    pub const ALL: [Way; 2] = [Way::Read, Way::Write];

    /// In a word.
    pub fn title(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Write => "write",
        }
    }
}

/// Tasks of each client, and what they do.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Tasks of a client, each with a file.
    pub tasks: u32,
    /// Bytes of a file.
    pub file: u64,
    /// Bytes of a record; a file has whole records.
    pub record: u32,
    /// What they do.
    pub way: Way,
    /// How long they do it before anything counts.
    pub ramp: Duration,
    /// How long they do it then.
    pub time: Duration,
}

/// What the tasks have done while it counted.
#[derive(Clone, Debug)]
pub struct Streamed<T> {
    /// The time that counted.
    pub time: Duration,
    /// Bytes of each client. A record that was under way at the begin or the end counts by its share.
    pub bytes: Vec<u64>,
    /// The times of all records that ended while it counted, in ascending order.
    pub records: Vec<Duration>,
    /// What was seen at its begin.
    pub before: T,
    /// What was seen at its end.
    pub after: T,
}

impl<T> Streamed<T> {
    /// The time that a share of the records stayed below, 0 to 1.
    pub fn percentile(&self, share: f64) -> Duration {
        let rank = (self.records.len() as f64 * share).ceil() as usize;
        self.records.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// A record's begin and end.
type Span = (Instant, Instant);

/// What all tasks have in common: they begin together, and end after the record that they have begun.
struct Common {
    start: Barrier,
    is_over: AtomicBool,
}

impl Streams {
    /// Runs the tasks of a client for each of some directories, all at once. Counters outside are looked at when the time
    /// begins to count, and when it ends.
    ///
    /// # Errors
    /// A file cannot be read or written, or has other bytes than were written; or what `look` says.
    pub fn run<T>(&self, dirs: &[&Path], look: impl Fn() -> Result<T>) -> Result<Streamed<T>> {
        let jobs: Vec<(usize, u32)> =
            (0..dirs.len()).flat_map(|client| (0..self.tasks).map(move |task| (client, task))).collect();
        let common = Common { start: Barrier::new(jobs.len() + 1), is_over: AtomicBool::new(false) };
        thread::scope(|scope| {
            let common = &common;
            let task = |(client, task): (usize, u32)| {
                let dir = dirs[client];
                (client, scope.spawn(move || self.task(dir, task, common)))
            };
            let threads: Vec<_> = jobs.into_iter().map(task).collect();
            common.start.wait();
            thread::sleep(self.ramp);
            let before = (Instant::now(), look());
            thread::sleep(self.time);
            let after = (Instant::now(), look());
            common.is_over.store(true, Ordering::Relaxed);
            let (mut bytes, mut records) = (vec![0; dirs.len()], Vec::new());
            for (client, thread) in threads {
                let spans = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                let window = (before.0, after.0);
                bytes[client] += spans.iter().map(|span| share(*span, window, self.record)).sum::<u64>();
                let ended = spans.iter().filter(|(_, end)| (window.0..=window.1).contains(end));
                records.extend(ended.map(|(begin, end)| *end - *begin));
            }
            records.sort_unstable();
            let time = after.0 - before.0;
            Ok(Streamed { time, bytes, records, before: before.1?, after: after.1? })
        })
    }

    /// The spans of a task's records.
    fn task(&self, dir: &Path, task: u32, common: &Common) -> Result<Vec<Span>> {
        let path = path(dir, task);
        let mut options = OpenOptions::new();
        match self.way {
            Way::Read => options.read(true).custom_flags(O_DIRECT),
            Way::Write => options.write(true).custom_flags(O_DIRECT | O_DSYNC),
        };
        let opened = options.open(&path);
        // All wait for all, also for one that fails.
        common.start.wait();
        let file = opened.map_err(doing(format!("open {}", path.display())))?;
        let (mut room, record) = (vec![0; self.record as usize + ALIGNMENT], self.record as usize);
        let aligned = room.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut room[aligned..aligned + record];
        let (mut spans, mut offset) = (Vec::new(), 0);
        while !common.is_over.load(Ordering::Relaxed) {
            if self.way == Way::Write {
                stamp_all(buffer, task, offset);
            }
            let begin = Instant::now();
            self.transfer(&file, buffer, offset).map_err(doing(format!(
                "{} {}",
                self.way.title(),
                path.display()
            )))?;
            spans.push((begin, Instant::now()));
            if self.way == Way::Read {
                check(buffer, task, offset)
                    .map_err(|at| LabError::WrongBytes { place: path.display().to_string(), at })?;
            }
            offset = (offset + u64::from(self.record)) % self.file;
        }
        Ok(spans)
    }

    fn transfer(&self, file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        match self.way {
            Way::Read => file.read_exact_at(buffer, offset),
            Way::Write => file.write_all_at(buffer, offset),
        }
    }
}

/// The bytes of a record that fall into a window, if it had a steady rate.
fn share((begin, end): Span, window: Span, record: u32) -> u64 {
    let inside = end.min(window.1).saturating_duration_since(begin.max(window.0));
    let whole = (end - begin).as_secs_f64().max(1e-9);
    (f64::from(record) * (inside.as_secs_f64() / whole).min(1.0)).round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::readers::make_files;
    use super::*;

    #[test]
    fn records_count_by_what_falls_into_the_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let window = (at(100), at(200));
        let count = |from, to| share((at(from), at(to)), window, 1000);
        assert_eq!(count(110, 120), 1000);
        assert_eq!((count(90, 110), count(190, 290)), (500, 100));
        assert_eq!((count(0, 100), count(200, 300)), (0, 0));
        assert_eq!(count(0, 400), 250);
    }

    #[test]
    fn tasks_read_what_tasks_have_written() {
        let dir = std::env::temp_dir().join(format!("lab-streams-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory");
        make_files(&dir, 2, 1 << 20).expect("files");
        let streams = |way| Streams {
            tasks: 2,
            file: 1 << 20,
            record: 64 << 10,
            way,
            ramp: Duration::from_millis(5),
            time: Duration::from_millis(30),
        };
        for way in [Way::Read, Way::Write, Way::Read] {
            let looks = std::cell::Cell::new(0);
            let done = streams(way).run(&[&dir], || Ok(looks.replace(looks.get() + 1))).expect("it runs");
            assert_eq!((done.before, done.after, done.bytes.len()), (0, 1, 1));
            assert!(done.bytes[0] > 0 && !done.records.is_empty(), "{done:?}");
            assert!(done.percentile(0.5) <= done.percentile(0.99));
        }
        let file = File::options().write(true).open(path(&dir, 1)).expect("a file");
        file.write_all_at(&[9; 12], 4096).expect("a write");
        let seen = streams(Way::Read).run(&[&dir], || Ok(()));
        assert!(matches!(seen, Err(LabError::WrongBytes { at: 4096, .. })), "{seen:?}");
        std::fs::remove_dir_all(&dir).expect("its removal");
    }
}
