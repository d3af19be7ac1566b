//! Times of last access, as Linux' `relatime` has them, and told late.
//!
//! An access counts if the last one that is known is not later than the last change, or is a day old: mostly it is asked
//! for only whether something was read since it was written. So a file is told of once and not for each read, and no
//! reader waits for that. What was noted is seen here at once, and elsewhere when the service has been told. It is lost
//! with the mount, as the times of a local file system are lost with its machine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use types::InodeId;
use types::limits::ACCESSES_MAX;
use types::messages::names::{AccessTime, Accessed, Attr, FileKind};
use world::Signal;

use crate::mount::Mount;
use crate::open_file::OpenFile;
use crate::session::Session;

/// An access this much later than the last one counts, in nanoseconds. Source: linux/fs/inode.c, `relatime_need_update`.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;
/// How long accesses are gathered, in microseconds.
const GATHER_US: u64 = 1_000_000;
/// Accesses that may wait to be told; while there are so many, others are not noted.
const WAITING_MAX: usize = 16 * ACCESSES_MAX;

/// Whether accesses to an inode of this kind are to be noted.
pub type AccessHook = Box<dyn Fn(FileKind) -> bool + Send + Sync>;

/// Accesses that the service has not heard of.
#[derive(Default)]
pub(crate) struct Accesses {
    waiting: Mutex<BTreeMap<InodeId, AccessTime>>,
    /// Given with the first one that waits.
    begun: Signal,
    /// Given when there is enough to tell, and when the mount ends.
    pub(crate) hurry: Signal,
    hook: Mutex<Option<Arc<AccessHook>>>,
}

impl Accesses {
    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<InodeId, AccessTime>) -> T) -> T {
        f(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an access in the place of the last one that is known.
    pub(crate) fn show(&self, attr: &mut Attr) {
        self.with(|waiting| {
            if let Some(time) = waiting.get(&attr.inode).filter(|time| time.known == attr.atime) {
                attr.atime = time.atime;
            }
        });
    }

    /// Somebody has set the time.
    pub(crate) fn forget(&self, inode: InodeId) {
        self.with(|waiting| {
            waiting.remove(&inode);
        });
    }

    pub(crate) fn are_waiting(&self) -> bool {
        self.with(|waiting| !waiting.is_empty())
    }

    /// False if there is no room.
    fn note(&self, time: AccessTime) -> bool {
        let count = self.with(|waiting| {
            if waiting.len() < WAITING_MAX {
                // What the service knows is the time before the first of them.
                waiting.entry(time.inode).and_modify(|first| first.atime = time.atime).or_insert(time);
                Some(waiting.len())
            } else {
                None
            }
        });
        self.begun.notify();
        if count.is_none_or(|count| count >= ACCESSES_MAX) {
            self.hurry.notify();
        }
        count.is_some()
    }

    /// The first of those that wait. They stay until they are told.
    fn first(&self) -> Vec<AccessTime> {
        self.with(|waiting| waiting.values().take(ACCESSES_MAX).cloned().collect())
    }

    fn told(&self, times: &[AccessTime]) {
        self.with(|waiting| {
            for told in times {
                match waiting.get_mut(&told.inode) {
                    Some(time) if time.atime == told.atime => drop(waiting.remove(&told.inode)),
                    // There was another one meanwhile.
                    Some(time) => time.known = told.atime,
                    None => {}
                }
            }
        });
    }
}

/// Whether an access now would count.
fn is_due(atime: i64, mtime: i64, ctime: i64, now: i64) -> bool {
    atime != now && (atime <= mtime.max(ctime) || now.saturating_sub(atime) >= DAY_NS)
}

impl Mount {
    /// Sets who says whether accesses are to be noted; until then they are, unless the mount's options say otherwise.
    pub fn on_access(&self, hook: AccessHook) {
        *self.accesses.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    fn notes_accesses(&self, kind: FileKind) -> bool {
        let hook = self.accesses.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.options.notes_accesses && hook.is_none_or(|hook| hook(kind))
    }

    /// Attributes that were heard a moment ago, with the time of what was read since.
    pub fn with_access(&self, mut attr: Attr) -> Attr {
        self.accesses.show(&mut attr);
        attr
    }

    /// Reads through this handle are no accesses.
    pub fn overlook_reads(&self, handle: u64) {
        if let Ok(handle) = self.handle(handle) {
            handle.overlooked.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl Session {
    /// Whether an access to what has these attributes would be noted.
    pub fn is_access_due(&self, attr: &Attr) -> bool {
        let known = self.mount.with_access(attr.clone());
        is_due(known.atime, known.mtime, known.ctime, self.world.wall())
            && self.mount.notes_accesses(known.kind)
    }

    /// Notes an access to what has these attributes, if it counts. Returns whether it does.
    pub fn note_access(&self, attr: &Attr) -> bool {
        let atime = self.world.wall();
        let note = || AccessTime { inode: attr.inode, known: attr.atime, atime };
        self.is_access_due(attr) && self.mount.accesses.note(note())
    }

    /// Notes a read of an open file, if it counts.
    pub(crate) fn note_read(&self, file: &Arc<OpenFile>) {
        let now = self.world.wall();
        let time = {
            let state = file.lock();
            if !is_due(state.atime, state.mtime, state.ctime, now) {
                return;
            }
            AccessTime { inode: file.inode, known: state.atime, atime: now }
        };
        // Also if it is not to be noted: the next read need not ask.
        if !self.mount.notes_accesses(FileKind::File) || self.mount.accesses.note(time) {
            file.lock().atime = now;
        }
    }

    /// Tells the service of accesses, as they come, until the mount ends.
    pub(crate) async fn tell_accesses(&self) {
        loop {
            let (begun, hurry) = (self.mount.accesses.begun.wait(), self.mount.accesses.hurry.wait());
            if self.mount.lives.has_left() {
                return;
            }
            let waiting = self.mount.accesses.with(|waiting| waiting.len());
            if waiting == 0 {
                futures_util::future::select(std::pin::pin!(begun), std::pin::pin!(hurry)).await;
                continue;
            }
            if waiting < ACCESSES_MAX {
                self.world.timeout(GATHER_US, hurry).await;
            }
            self.tell_some_accesses().await;
        }
    }

    /// Tells the service of the accesses that wait. Those that it does not take over are lost.
    pub(crate) async fn tell_some_accesses(&self) {
        let times = self.mount.accesses.first();
        if times.is_empty() {
            return;
        }
        let (client, volume) = (self.mount.lives.client(), self.mount.volume);
        if let Err(error) = self.ask(&Accessed { client, volume, times: times.clone() }).await {
            tracing::debug!(files = times.len(), %error, "accesses are not known to the service");
        }
        self.mount.accesses.told(&times);
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
        let accesses = Accesses::default();
        accesses.note(time(5, 1, 10));
        accesses.note(time(5, 10, 20));
        let told = accesses.first();
        assert_eq!(told, vec![time(5, 1, 20)]);
        accesses.note(time(5, 20, 30));
        accesses.told(&told);
        assert_eq!(accesses.first(), vec![time(5, 20, 30)], "after what the service knows now");
        accesses.told(&accesses.first());
        assert!(accesses.first().is_empty());
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let accesses = Accesses::default();
        let noted = (0..2 * WAITING_MAX as u64).filter(|inode| accesses.note(time(*inode, 0, 1))).count();
        assert_eq!((noted, accesses.first().len()), (WAITING_MAX, ACCESSES_MAX));
        accesses.forget(InodeId(3));
        assert!(accesses.note(time(3, 0, 1)));
    }
}
