//! Open descriptors of daemons. At its end, every test counts those of the daemons that still run.

use std::fs;
use std::path::PathBuf;

/// Rings that a daemon may have besides one for each of its threads: a thread may have had another one before.
const RINGS_MORE: usize = 4;
/// Descriptors that are no sockets, for each thread: a ring, and what wakes it.
const PER_THREAD: usize = 4;
/// Such descriptors besides: disks, logs, caches.
const FILES: usize = 64;

/// What a process has open.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub(crate) threads: usize,
    pub(crate) rings: usize,
    pub(crate) sockets: usize,
    pub(crate) all: usize,
}

impl Descriptors {
    /// Of a process that runs.
    pub(crate) fn of(pid: i32) -> Descriptors {
        let entries =
            |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).into_iter().flatten().flatten();
        // Threads first: one that ends meanwhile has closed what it had.
        let threads = entries("task").count();
        let open: Vec<PathBuf> = entries("fd").filter_map(|fd| fs::read_link(fd.path()).ok()).collect();
        let count = |words: &str| open.iter().filter(|to| to.to_string_lossy().contains(words)).count();
        Descriptors { threads, rings: count("[io_uring]"), sockets: count("socket:["), all: open.len() }
    }
}

/// The complaint about a daemon that has more rings or files than its threads can need.
pub(crate) fn leaks(pid: i32) -> Option<String> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    if program.file_name()? != "shoal" {
        return None;
    }
    let found = Descriptors::of(pid);
    let leaked = found.rings > found.threads + RINGS_MORE
        || found.all - found.sockets > PER_THREAD * found.threads + FILES;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    // It may have ended meanwhile.
    (leaked && found.threads > 0).then(|| format!("descriptors leak: {found:?}: {words}"))
}
