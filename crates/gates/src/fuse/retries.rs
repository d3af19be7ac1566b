//! What the kernel was asked to look up again.
//!
//! If a request fails with `ESTALE`, the kernel walks the path a second time, and asks about each name on it (`LOOKUP_REVAL`). A
//! second `ESTALE` reaches the program. So a thread gets it only once. If it comes again, the names are right, or it has come without
//! names, through a descriptor.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fuser::Request;
use types::InodeId;

use super::kernel_cache::TTL;

/// How long a thread that opens a file counts as asked. The kernel looks again at once, but on a busy machine the thread, or this
/// process, may have to wait for a processor.
const OPENING: Duration = Duration::from_secs(10);
/// Most entries of that time. Beyond this, nobody is asked to look again.
const REMEMBERED_MAX: usize = 4096;
/// What the kernel says of a thread that it cannot name here.
const UNKNOWN_THREAD: u32 = 0;

/// The thread of a request, and when the request came.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) thread: u32,
    pub(super) begun: Instant,
}

impl Asker {
    /// Of a request that has just come.
    pub(super) fn of(request: &Request) -> Asker {
        Asker { thread: request.pid(), begun: Instant::now() }
    }

    /// Whether what happened to the thread at this time still counts, as it does for so long. The time that requests take does not:
    /// the metadata service may restart meanwhile.
    fn remembers(self, at: Instant, long: Duration) -> bool {
        self.begun.saturating_duration_since(at) < long
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Retries {
    /// The threads that were asked, the inodes for which they had come, and when.
    asked: Mutex<BTreeMap<(u32, InodeId), Instant>>,
    /// The threads whose next open is a second attempt, and when they were asked.
    opening: Mutex<BTreeMap<u32, Instant>>,
    /// Nobody who comes later counts as asked: as a time since [`Retries::epoch`], in microseconds. Most requests need no lock so.
    until_us: AtomicU64,
    epoch: OnceLock<Instant>,
}

/// Adds a thread at the time `now`, if there is room, where threads count for so long. Returns whether it is new.
fn add<K: Ord>(asked: &mut BTreeMap<K, Instant>, key: K, asker: Asker, now: Instant, long: Duration) -> bool {
    asked.retain(|_, at| asker.remembers(*at, long));
    if asked.len() >= REMEMBERED_MAX || asked.contains_key(&key) {
        return false;
    }
    asked.insert(key, now);
    true
}

impl Retries {
    /// A time since the first thread was asked, in microseconds.
    fn us(&self, at: Instant) -> u64 {
        let since = self.epoch.get_or_init(|| at);
        at.saturating_duration_since(*since).as_micros() as u64
    }

    /// A thread counts as asked from this time on.
    fn note(&self, at: Instant) {
        self.until_us.fetch_max(self.us(at + OPENING), Ordering::AcqRel);
    }

    /// Whether threads may count as asked for a request that came then.
    fn may_remember(&self, asker: Asker) -> bool {
        self.epoch.get().is_some() && self.us(asker.begun) <= self.until_us.load(Ordering::Acquire)
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<(u32, InodeId), Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opening(&self) -> MutexGuard<'_, BTreeMap<u32, Instant>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread may be asked, by an answer at the time `now`, to look again for what has led it to an inode. If so, it counts
    /// as asked.
    pub(super) fn ask(&self, asker: Asker, inode: InodeId, now: Instant) -> bool {
        self.note(now);
        add(&mut self.asked(), (asker.thread, inode), asker, now, TTL)
    }

    /// Whether a thread may be asked, by an answer at the time `now`, to look again for the name of a file that it opens. If so, it
    /// counts as asked.
    pub(super) fn ask_to_open(&self, asker: Asker, now: Instant) -> bool {
        self.note(now);
        add(&mut self.opening(), asker.thread, asker, now, OPENING)
    }

    /// A thread opens a file. Returns whether it has just looked for its name again. That counts once: what the thread opens later may
    /// have been found by an older name.
    pub(super) fn has_looked_again(&self, asker: Asker) -> bool {
        if !self.may_remember(asker) {
            return false;
        }
        let mut opening = self.opening();
        let at = opening.get(&asker.thread).copied();
        // Threads without a number cannot be told apart.
        if at.is_some() && asker.thread != UNKNOWN_THREAD {
            opening.remove(&asker.thread);
        }
        at.is_some_and(|at| asker.remembers(at, OPENING))
    }

    /// A thread has found a name, by an answer that came now. If it looks again, it has more names to look up, or is about to open.
    pub(super) fn found(&self, asker: Asker, clock: impl FnOnce() -> Instant) {
        if !self.may_remember(asker) {
            return;
        }
        let (Asker { thread, begun }, now) = (asker, clock());
        let shift = |at: &mut Instant, long| {
            if asker.remembers(*at, long) {
                *at += now.saturating_duration_since(begun);
                self.note(*at);
            }
        };
        self.opening().get_mut(&thread).into_iter().for_each(|at| shift(at, OPENING));
        let (first, last) = ((thread, InodeId(0)), (thread, InodeId(u64::MAX)));
        self.asked().range_mut(first..=last).for_each(|(_, at)| shift(at, TTL));
    }

    /// A thread has found no file under a name, or makes one, so it does not open what it has looked for.
    pub(super) fn opens_none(&self, asker: Asker) {
        if asker.thread != UNKNOWN_THREAD && self.may_remember(asker) {
            self.opening().remove(&asker.thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODE: InodeId = InodeId(5);

    fn asker(thread: u32, begun: Instant) -> Asker {
        Asker { thread, begun }
    }

    #[test]
    fn a_thread_is_asked_once() {
        let (retries, now) = (Retries::default(), Instant::now());
        let ask = |thread, inode, begun| retries.ask(asker(thread, begun), inode, begun);
        assert!(ask(7, INODE, now));
        assert!(!ask(7, INODE, now));
        assert!(ask(8, INODE, now) && ask(7, InodeId(6), now), "another one");
        assert!(ask(7, InodeId(6), now + TTL), "too long ago");
    }

    #[test]
    fn the_open_after_a_look_is_a_second_attempt() {
        let (retries, now) = (Retries::default(), Instant::now());
        let has_looked_again = |thread, begun| retries.has_looked_again(asker(thread, begun));
        let ask_to_open = |thread| retries.ask_to_open(asker(thread, now), now);
        assert!(!has_looked_again(7, now));
        assert!(ask_to_open(7) && ask_to_open(8));
        assert!(!ask_to_open(7));
        assert!(!has_looked_again(9, now));
        assert!(has_looked_again(7, now + OPENING / 2), "a busy machine");
        assert!(!has_looked_again(7, now), "it counts once");
        assert!(!has_looked_again(8, now + OPENING), "too long ago");
        assert!(ask_to_open(7));
        retries.opens_none(asker(7, now));
        assert!(!has_looked_again(7, now));
    }

    /// While the metadata service restarts, each request takes seconds.
    #[test]
    fn the_time_that_requests_take_does_not_count() {
        let (retries, now, slow) = (Retries::default(), Instant::now(), 7 * OPENING);
        // The first attempt is slow, and so is the look for the name after it.
        assert!(retries.ask_to_open(asker(7, now), now + slow));
        assert!(retries.ask(asker(7, now), INODE, now + slow));
        retries.found(asker(7, now + slow), || now + 2 * slow);
        retries.found(asker(7, now + 2 * slow), || now + 3 * slow);
        // Another thread has nothing to do with it.
        retries.found(asker(8, now), || now + 9 * slow);
        assert!(
            !retries.ask(asker(7, now + 3 * slow), INODE, now + 4 * slow),
            "a second ESTALE reaches the program"
        );
        assert!(retries.has_looked_again(asker(7, now + 3 * slow)));
        // What was forgotten before a slow look is not remembered after it.
        assert!(retries.ask_to_open(asker(7, now + 4 * slow), now + 4 * slow));
        retries.found(asker(7, now + 5 * slow), || now + 6 * slow);
        assert!(!retries.has_looked_again(asker(7, now + 6 * slow)));
    }

    #[test]
    fn threads_without_a_number_are_one() {
        let (retries, nobody) = (Retries::default(), asker(UNKNOWN_THREAD, Instant::now()));
        assert!(retries.ask_to_open(nobody, nobody.begun));
        retries.opens_none(nobody);
        assert!((0..2).all(|_| retries.has_looked_again(nobody)));
    }

    #[test]
    fn the_table_is_bounded() {
        let (retries, now) = (Retries::default(), Instant::now());
        let ask = |inode: u64, begun| retries.ask(asker(7, begun), InodeId(inode), begun);
        let asked = (0..2 * REMEMBERED_MAX as u64).filter(|inode| ask(*inode, now));
        assert_eq!(asked.count(), REMEMBERED_MAX);
        assert!(ask(0, now + TTL));
        let ask_to_open = |thread: &u32| retries.ask_to_open(asker(*thread, now), now);
        assert_eq!((1..2 * REMEMBERED_MAX as u32).filter(ask_to_open).count(), REMEMBERED_MAX);
    }
}
