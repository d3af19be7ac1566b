//! Access times, as with `relatime` of Linux, reported with a delay.
//!
//! An access counts if the last known access is not later than the last change, or is a day old. Most users only want
//! to know whether a file was read since it was written. So a file is reported once and not for each read, and no
//! reader waits for the report. This mount shows the new time at once, others after the report. A time that was not
//! reported is lost with the mount, as times of a local file system are lost in a crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use types::InodeId;
use types::limits::ACCESSES_MAX;
use types::messages::names::{AccessTime, Attr, FileKind};
use world::Notify;

/// An access counts if the last one is at least this old, in nanoseconds. Source: linux/fs/inode.c,
/// `relatime_need_update`.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// Most accesses that wait for a report. Further ones are dropped.
const WAITING_MAX: usize = 16 * ACCESSES_MAX;

/// Whether to record accesses to inodes of this kind.
pub type AtimeFilter = Box<dyn Fn(FileKind) -> bool + Send + Sync>;

/// Accesses that were not yet reported.
#[derive(Default)]
pub(crate) struct PendingAtimes {
    waiting: Mutex<BTreeMap<InodeId, AccessTime>>,
    /// Notified when an access is recorded.
    pub(crate) begun: Notify,
    /// Notified when there are enough for a report, and when the mount ends.
    pub(crate) flush_now: Notify,
    hook: Mutex<Option<Arc<AtimeFilter>>>,
}

impl PendingAtimes {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<InodeId, AccessTime>) -> T) -> T {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the access time by a later one that is not yet reported.
    fn show(&self, attr: &mut Attr) {
        self.with(|waiting| {
            if let Some(time) = waiting.get(&attr.inode).filter(|time| time.known == attr.atime) {
                attr.atime = time.atime;
            }
        });
    }

    /// Drops an access because the time was set explicitly.
    pub(crate) fn forget(&self, inode: InodeId) {
        self.with(|waiting| {
            waiting.remove(&inode);
        });
    }

    /// Sets the filter for accesses.
    pub(crate) fn set_filter(&self, hook: AtimeFilter) {
        *self.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    /// The filter for accesses.
    pub(crate) fn filter(&self) -> Option<Arc<AtimeFilter>> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Attributes from the service, with the time of an access that is not yet reported.
    pub(crate) fn with_access(&self, mut attr: Attr) -> Attr {
        self.show(&mut attr);
        attr
    }

    /// Number of accesses that wait to be reported.
    pub(crate) fn waiting(&self) -> usize {
        self.with(|waiting| waiting.len())
    }

    pub(crate) fn are_waiting(&self) -> bool {
        self.with(|waiting| !waiting.is_empty())
    }

    /// Records an access. False if there is no room.
    pub(crate) fn note(&self, time: AccessTime) -> bool {
        let count = self.with(|waiting| {
            if waiting.len() < WAITING_MAX {
                // The service knows the time before the first of these accesses, so keep `known`.
                waiting.entry(time.inode).and_modify(|first| first.atime = time.atime).or_insert(time);
                Some(waiting.len())
            } else {
                None
            }
        });
        self.begun.notify();
        if count.is_none_or(|count| count >= ACCESSES_MAX) {
            self.flush_now.notify();
        }
        count.is_some()
    }

    /// The first waiting accesses. They stay until they are reported.
    pub(crate) fn first(&self) -> Vec<AccessTime> {
        self.with(|waiting| waiting.values().take(ACCESSES_MAX).cloned().collect())
    }

    pub(crate) fn told(&self, times: &[AccessTime]) {
        self.with(|waiting| {
            for told in times {
                match waiting.get_mut(&told.inode) {
                    Some(time) if time.atime == told.atime => drop(waiting.remove(&told.inode)),
                    // There was another access meanwhile.
                    Some(time) => time.known = told.atime,
                    None => {}
                }
            }
        });
    }
}

/// Whether an access at `now` counts.
pub(crate) fn is_due(atime: i64, mtime: i64, ctime: i64, now: i64) -> bool {
    atime != now && (atime <= mtime.max(ctime) || now.saturating_sub(atime) >= DAY_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_counts_after_a_change_and_once_a_day() {
        assert!(is_due(5, 5, 0, 6), "it may have been before the change");
        assert!(is_due(5, 0, 7, 8));
        assert!(!is_due(6, 5, 5, 7));
        assert!(is_due(6, 5, 5, 6 + DAY_NS) && !is_due(6, 5, 5, 5 + DAY_NS));
        assert!(is_due(-7, -7, i64::MIN, i64::MAX), "whatever was set");
        assert!(!is_due(6, 6, 6, 6));
    }

    fn time(inode: u64, known: i64, atime: i64) -> AccessTime {
        AccessTime { inode: InodeId(inode), known, atime }
    }

    #[test]
    fn later_accesses_join_the_first_until_it_is_told() {
        let atimes = PendingAtimes::default();
        atimes.note(time(5, 1, 10));
        atimes.note(time(5, 10, 20));
        let told = atimes.first();
        assert_eq!(told, vec![time(5, 1, 20)]);
        atimes.note(time(5, 20, 30));
        atimes.told(&told);
        assert_eq!(atimes.first(), vec![time(5, 20, 30)], "after what the service knows now");
        atimes.told(&atimes.first());
        assert!(atimes.first().is_empty());
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let atimes = PendingAtimes::default();
        let noted = (0..2 * WAITING_MAX as u64).filter(|inode| atimes.note(time(*inode, 0, 1))).count();
        assert_eq!((noted, atimes.first().len()), (WAITING_MAX, ACCESSES_MAX));
        atimes.forget(InodeId(3));
        assert!(atimes.note(time(3, 0, 1)));
    }
}
