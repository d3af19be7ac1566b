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
use types::messages::names::{AccessTime, Accessed, Attr, FileKind};
use world::Notify;

use crate::mount::Mount;
use crate::open_file::OpenFile;
use crate::session::Session;

/// An access counts if the last one is at least this old, in nanoseconds. Source: linux/fs/inode.c,
/// `relatime_need_update`.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// How long accesses are gathered, in microseconds.
const GATHER_US: u64 = 1_000_000;
/// Most accesses that wait for a report. Further ones are dropped.
const WAITING_MAX: usize = 16 * ACCESSES_MAX;

/// Whether to record accesses to inodes of this kind.
pub type AtimeFilter = Box<dyn Fn(FileKind) -> bool + Send + Sync>;

/// Accesses that were not yet reported.
#[derive(Default)]
pub(crate) struct PendingAtimes {
    waiting: Mutex<BTreeMap<InodeId, AccessTime>>,
    /// Notified when an access is recorded.
    begun: Notify,
    /// Notified when there are enough for a report, and when the mount ends.
    pub(crate) flush_now: Notify,
    hook: Mutex<Option<Arc<AtimeFilter>>>,
}

impl PendingAtimes {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<InodeId, AccessTime>) -> T) -> T {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the access time by a later one that is not yet reported.
    pub(crate) fn show(&self, attr: &mut Attr) {
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

    pub(crate) fn are_waiting(&self) -> bool {
        self.with(|waiting| !waiting.is_empty())
    }

    /// Records an access. False if there is no room.
    fn note(&self, time: AccessTime) -> bool {
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
    fn first(&self) -> Vec<AccessTime> {
        self.with(|waiting| waiting.values().take(ACCESSES_MAX).cloned().collect())
    }

    fn told(&self, times: &[AccessTime]) {
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
fn is_due(atime: i64, mtime: i64, ctime: i64, now: i64) -> bool {
    atime != now && (atime <= mtime.max(ctime) || now.saturating_sub(atime) >= DAY_NS)
}

impl Mount {
    /// Sets the filter for accesses. Without it all are recorded, unless the mount's options forbid it.
    pub fn set_atime_filter(&self, hook: AtimeFilter) {
        *self.atimes.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    fn updates_atime(&self, kind: FileKind) -> bool {
        let hook = self.atimes.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.options.updates_atime && hook.is_none_or(|hook| hook(kind))
    }

    /// Attributes from the service, with the time of an access that is not yet reported.
    pub fn with_access(&self, mut attr: Attr) -> Attr {
        self.atimes.show(&mut attr);
        attr
    }

    /// Reads through this handle do not update the access time.
    pub fn set_noatime(&self, handle: u64) {
        if let Ok(handle) = self.handle(handle) {
            handle.noatime.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Session {
    /// Whether an access to an inode with these attributes would be recorded.
    pub fn is_access_due(&self, attr: &Attr) -> bool {
        let known = self.mount.with_access(attr.clone());
        is_due(known.atime, known.mtime, known.ctime, self.world.wall())
            && self.mount.updates_atime(known.kind)
    }

    /// Records an access to an inode with these attributes, if it counts. Returns whether it was recorded.
    pub fn note_access(&self, attr: &Attr) -> bool {
        let atime = self.world.wall();
        let note = || AccessTime { inode: attr.inode, known: attr.atime, atime };
        self.is_access_due(attr) && self.mount.atimes.note(note())
    }

    /// Records a read of an open file, if it counts.
    pub(crate) fn note_read(&self, file: &Arc<OpenFile>) {
        let now = self.world.wall();
        let time = {
            let state = file.lock();
            if !is_due(state.atime, state.mtime, state.ctime, now) {
                return;
            }
            AccessTime { inode: file.inode, known: state.atime, atime: now }
        };
        // Set it even if the filter rejects it, so that the next read need not check again.
        if !self.mount.updates_atime(FileKind::File) || self.mount.atimes.note(time) {
            file.lock().atime = now;
        }
    }

    /// Reports accesses until the mount ends.
    pub(crate) async fn report_atimes(&self) {
        loop {
            let (begun, flush_now) = (self.mount.atimes.begun.wait(), self.mount.atimes.flush_now.wait());
            if self.mount.lease.has_left() {
                return;
            }
            let waiting = self.mount.atimes.with(|waiting| waiting.len());
            if waiting == 0 {
                futures_util::future::select(std::pin::pin!(begun), std::pin::pin!(flush_now)).await;
                continue;
            }
            if waiting < ACCESSES_MAX {
                self.world.timeout(GATHER_US, flush_now).await;
            }
            self.report_some_atimes().await;
        }
    }

    /// Reports waiting accesses. Those that the service does not accept are lost.
    pub(crate) async fn report_some_atimes(&self) {
        let times = self.mount.atimes.first();
        if times.is_empty() {
            return;
        }
        let (client, volume) = (self.mount.lease.client(), self.mount.volume);
        if let Err(error) = self.ask(&Accessed { client, volume, times: times.clone() }).await {
            tracing::debug!(files = times.len(), %error, "access times could not be reported");
        }
        self.mount.atimes.told(&times);
    }
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
