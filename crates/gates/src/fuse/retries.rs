//! What the kernel was asked to look up again.
//!
//! If a request fails with `ESTALE`, the kernel walks the path a second time, and asks about each name on it (`LOOKUP_REVAL`). A
//! second `ESTALE` reaches the program. So a thread gets it only once. If it comes again, the names are right, or it has come without
//! names, through a descriptor.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use types::InodeId;

use super::kernel_cache::TTL;

/// Most entries of the last second. Beyond this, nobody is asked to look again.
const REMEMBERED_MAX: usize = 4096;
/// What the kernel says of a thread that it cannot name here.
const UNKNOWN_THREAD: u32 = 0;

/// See the module.
#[derive(Default)]
pub(super) struct Retries {
    /// The threads that were asked, the inodes for which they had come, and when.
    asked: Mutex<BTreeMap<(u32, InodeId), Instant>>,
    /// The threads whose next open is a second attempt, and when they were asked.
    opening: Mutex<BTreeMap<u32, Instant>>,
}

/// Adds a thread, if there is room. Returns whether it is new.
fn add<K: Ord>(asked: &mut BTreeMap<K, Instant>, key: K, now: Instant) -> bool {
    asked.retain(|_, at| now.saturating_duration_since(*at) < TTL);
    if asked.len() >= REMEMBERED_MAX || asked.contains_key(&key) {
        return false;
    }
    asked.insert(key, now);
    true
}

impl Retries {
    fn opening(&self) -> MutexGuard<'_, BTreeMap<u32, Instant>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread may be asked to look again for what has led it to an inode. If so, it counts as asked.
    pub(super) fn ask(&self, thread: u32, inode: InodeId, now: Instant) -> bool {
        add(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner), (thread, inode), now)
    }

    /// Whether a thread may be asked to look again for the name of a file that it opens. If so, it counts as asked.
    pub(super) fn ask_to_open(&self, thread: u32, now: Instant) -> bool {
        add(&mut self.opening(), thread, now)
    }

    /// A thread opens a file. Returns whether it has just looked for its name again. That counts once: what the thread opens later may
    /// have been found by an older name.
    pub(super) fn has_looked_again(&self, thread: u32, now: Instant) -> bool {
        let mut opening = self.opening();
        let at = opening.get(&thread).copied();
        // Threads without a number cannot be told apart.
        if at.is_some() && thread != UNKNOWN_THREAD {
            opening.remove(&thread);
        }
        at.is_some_and(|at| now.saturating_duration_since(at) < TTL)
    }

    /// A thread has found no file under a name, so it opens none.
    pub(super) fn found_none(&self, thread: u32) {
        if thread != UNKNOWN_THREAD {
            self.opening().remove(&thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: InodeId = InodeId(5);

    #[test]
    fn a_thread_is_asked_once() {
        let (retries, now) = (Retries::default(), Instant::now());
        assert!(retries.ask(7, INODE, now));
        assert!(!retries.ask(7, INODE, now));
        assert!(retries.ask(8, INODE, now) && retries.ask(7, InodeId(6), now), "another one");
        assert!(retries.ask(7, InodeId(6), now + TTL), "too long ago");
    }

    #[test]
    fn the_open_after_a_look_is_a_second_attempt() {
        let (retries, now) = (Retries::default(), Instant::now());
        assert!(!retries.has_looked_again(7, now));
        assert!(retries.ask_to_open(7, now) && retries.ask_to_open(8, now));
        assert!(!retries.ask_to_open(7, now));
        assert!(!retries.has_looked_again(9, now));
        assert!(retries.has_looked_again(7, now));
        assert!(!retries.has_looked_again(7, now), "it counts once");
        assert!(!retries.has_looked_again(8, now + TTL), "too long ago");
        assert!(retries.ask_to_open(7, now));
        retries.found_none(7);
        assert!(!retries.has_looked_again(7, now));
    }

    #[test]
    fn threads_without_a_number_are_one() {
        let (retries, now) = (Retries::default(), Instant::now());
        assert!(retries.ask_to_open(UNKNOWN_THREAD, now));
        retries.found_none(UNKNOWN_THREAD);
        assert!((0..2).all(|_| retries.has_looked_again(UNKNOWN_THREAD, now)));
    }

    #[test]
    fn the_table_is_bounded() {
        let (retries, now) = (Retries::default(), Instant::now());
        let asked = (0..2 * REMEMBERED_MAX as u64).filter(|inode| retries.ask(7, InodeId(*inode), now));
        assert_eq!(asked.count(), REMEMBERED_MAX);
        assert!(retries.ask(7, InodeId(0), now + TTL));
        let asked = (1..2 * REMEMBERED_MAX as u32).filter(|thread| retries.ask_to_open(*thread, now));
        assert_eq!(asked.count(), REMEMBERED_MAX);
    }
}
