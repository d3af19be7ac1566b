//! Open files. NFS has no open and no close. So a file is opened at its first read or write, and closed when it was
//! not used for a while, or when too many are open. Before the close, everything written to it is made stable.
//!
//! The lock of a slot is taken for reading to use the handle, and for writing to open or close it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_lock::{RwLock, RwLockReadGuardArc, RwLockWriteGuardArc};
use client::{ClientError, Opened, Session};
use types::messages::names::Attr;
use types::{InodeId, Refusal};

use super::verifier::Verifier;

/// Usual maximum of open files. It may be exceeded, because a file in use is not closed.
const OPEN_MAX: usize = 1024;
/// How long an unused file stays open, in microseconds. While a writer has it open, other gates and mounts must ask
/// the metadata service for every read.
const IDLE_US: u64 = 3_000_000;
/// How long attributes are valid for checks of permissions, in microseconds: the same time as the kernel caches those
/// of a mount.
const SEEN_US: u64 = 1_000_000;

/// The open files of a gate.
#[derive(Default)]
pub(super) struct Files {
    slots: Mutex<BTreeMap<InodeId, Arc<Slot>>>,
    open: AtomicUsize,
}

/// One file that is or was open.
struct Slot {
    inode: InodeId,
    open: Arc<RwLock<Option<Open>>>,
    /// Written to since everything was last made stable.
    dirty: AtomicBool,
    /// When it was last used.
    used: AtomicU64,
    /// Attributes, and when they were received.
    seen: Mutex<Option<(Attr, u64)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    handle: u64,
    write: bool,
}

/// A file that stays open while this lives.
pub(super) struct OpenFile {
    slot: Arc<Slot>,
    guard: RwLockReadGuardArc<Option<Open>>,
}

impl OpenFile {
    fn open(&self) -> Option<Open> {
        *self.guard
    }

    /// The client's handle.
    pub(super) fn handle(&self) -> Result<u64, ClientError> {
        self.open().map(|open| open.handle).ok_or(ClientError::BadHandle)
    }

    /// Records that something may have been written. Must be called after the write: otherwise a concurrent
    /// [`OpenFile::make_stable`] may miss it.
    pub(super) fn has_written(&self) {
        self.slot.dirty.store(true, Ordering::Release);
    }

    /// Makes everything written so far stable.
    pub(super) async fn make_stable(&self, session: &Session) -> Result<(), ClientError> {
        self.slot.dirty.store(false, Ordering::Release);
        let stable = session.fsync(self.handle()?).await;
        if stable.is_err() {
            self.slot.dirty.store(true, Ordering::Release);
        }
        stable
    }
}

/// Whether the handle is invalid because the client's lease ran out. Unstable bytes are lost.
pub(super) fn is_handle_invalid(error: ClientError) -> bool {
    matches!(error, ClientError::Refused(Refusal::Fenced | Refusal::Unknown) | ClientError::BadHandle)
}

/// Whether written bytes may be lost after this error. That includes a missing answer, because the client gives bytes
/// up after a while. Bytes of a removed file do not matter.
pub(super) fn is_lost(error: ClientError) -> bool {
    let harmless = [Refusal::Stale, Refusal::NotFound, Refusal::FileTooLarge].map(ClientError::Refused);
    !harmless.contains(&error)
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<InodeId, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, inode: InodeId) -> Arc<Slot> {
        let fresh = || {
            let (open, seen) = (Arc::new(RwLock::new(None)), Mutex::default());
            Arc::new(Slot { inode, open, dirty: AtomicBool::new(false), used: AtomicU64::new(0), seen })
        };
        Arc::clone(self.lock().entry(inode).or_insert_with(fresh))
    }

    fn known(&self, inode: InodeId) -> Option<Arc<Slot>> {
        self.lock().get(&inode).cloned()
    }

    /// Opens a file unless it is open already.
    pub(super) async fn open(
        &self,
        session: &Session,
        inode: InodeId,
        write: bool,
        now: u64,
        verifier: &Verifier,
    ) -> Result<OpenFile, ClientError> {
        let slot = self.slot(inode);
        slot.used.store(now, Ordering::Relaxed);
        let fits = |open: &Option<Open>| open.is_some_and(|open| open.write || !write);
        let guard = slot.open.read_arc().await;
        if fits(&guard) {
            return Ok(OpenFile { slot, guard });
        }
        drop(guard);
        self.make_room(session, now, verifier).await;
        let mut guard = slot.open.write_arc().await;
        if !fits(&guard) {
            let opened = session.open(inode, write, false).await?;
            slot.see(&opened.attr, now);
            let before = self.put(&mut guard, Some(Open { handle: opened.handle, write }));
            // The old handle was for reading only, so nothing can be lost with it.
            release(session, before).await;
        }
        let guard = RwLockWriteGuardArc::downgrade(guard);
        Ok(OpenFile { slot, guard })
    }

    /// The file of an inode, if it is open for writing.
    pub(super) async fn writer(&self, inode: InodeId) -> Option<OpenFile> {
        let slot = self.known(inode)?;
        let guard = slot.open.read_arc().await;
        guard.is_some_and(|open| open.write).then_some(OpenFile { slot, guard })
    }

    /// Adds a file that was just created and opened.
    pub(super) async fn adopt(&self, session: &Session, opened: &Opened, now: u64, verifier: &Verifier) {
        self.make_room(session, now, verifier).await;
        let slot = self.slot(opened.attr.inode);
        slot.used.store(now, Ordering::Relaxed);
        slot.see(&opened.attr, now);
        let mut guard = slot.open.write_arc().await;
        let ours = Some(Open { handle: opened.handle, write: true });
        let spare = if guard.is_none() { self.put(&mut guard, ours) } else { ours };
        release(session, spare).await;
    }

    /// Closes a handle that is of no further use. If it was for writing, the verifier changes.
    pub(super) async fn discard(&self, session: &Session, held: OpenFile, verifier: &Verifier) {
        let dead = held.open();
        let slot = Arc::clone(&held.slot);
        drop(held);
        let mut guard = slot.open.write_arc().await;
        if *guard == dead {
            let dead = self.put(&mut guard, None);
            // Not before nobody writes by the handle any more: such a write would be answered with the new verifier.
            if dead.is_some_and(|dead| dead.write) {
                verifier.change();
            }
            slot.dirty.store(false, Ordering::Release);
            release(session, dead).await;
        }
    }

    /// Closes a file whose last name is gone. If it is in use, it is closed later, when it is idle.
    pub(super) async fn forget(&self, session: &Session, inode: InodeId) {
        let Some(slot) = self.known(inode) else { return };
        if let Some(mut guard) = slot.open.try_write_arc() {
            let open = self.put(&mut guard, None);
            slot.dirty.store(false, Ordering::Release);
            release(session, open).await;
        }
    }

    /// Attributes of an open file that are recent enough to check permissions.
    pub(super) fn cached_attr(&self, inode: InodeId, now: u64) -> Option<Attr> {
        let slot = self.known(inode)?;
        let seen = slot.lock_seen();
        seen.as_ref().filter(|(_, since)| now < since + SEEN_US).map(|(attr, _)| attr.clone())
    }

    /// Stores attributes of a file, if it is open.
    pub(super) fn cache_attr(&self, attr: &Attr, now: u64) {
        if let Some(slot) = self.known(attr.inode) {
            slot.see(attr, now);
        }
    }

    /// Makes idle files stable and closes them.
    pub(super) async fn close_idle(&self, session: &Session, now: u64, verifier: &Verifier) {
        for slot in self.idle(now, IDLE_US) {
            self.close(session, &slot, verifier).await;
        }
        self.lock().retain(|_, slot| {
            // While the table is locked, no task can get a new reference.
            let needed = Arc::strong_count(slot) > 1 || now < slot.used.load(Ordering::Relaxed) + SEEN_US;
            needed || slot.open.try_read_arc().is_none_or(|open| open.is_some())
        });
    }

    /// Closes the files that were unused for the longest time, if too many are open.
    async fn make_room(&self, session: &Session, now: u64, verifier: &Verifier) {
        if self.open.load(Ordering::Relaxed) < OPEN_MAX {
            return;
        }
        let mut idle = self.idle(now, 0);
        idle.sort_by_key(|slot| slot.used.load(Ordering::Relaxed));
        for slot in idle.iter().take(OPEN_MAX / 16) {
            self.close(session, slot, verifier).await;
        }
    }

    /// Slots that were not used for `us` microseconds and that no task holds.
    fn idle(&self, now: u64, us: u64) -> Vec<Arc<Slot>> {
        let slots = self.lock();
        let idle = |slot: &&Arc<Slot>| {
            Arc::strong_count(slot) == 1 && slot.used.load(Ordering::Relaxed).saturating_add(us) <= now
        };
        slots.values().filter(idle).cloned().collect()
    }

    /// Makes a file stable, then closes it if it is not in use and was not written to meanwhile.
    async fn close(&self, session: &Session, slot: &Arc<Slot>, verifier: &Verifier) {
        if slot.dirty.load(Ordering::Acquire) {
            let guard = slot.open.read_arc().await;
            let held = OpenFile { slot: Arc::clone(slot), guard };
            if let Err(error) = held.make_stable(session).await {
                tracing::warn!(inode = %slot.inode, %error, "a file cannot be made stable: its last writes may be lost");
                self.discard(session, held, verifier).await;
                return;
            }
        }
        let Some(mut guard) = slot.open.try_write_arc() else { return };
        if !slot.dirty.load(Ordering::Acquire) {
            let open = self.put(&mut guard, None);
            release(session, open).await;
        }
    }

    /// Puts an open file into its slot. Returns the one that was there.
    fn put(&self, slot: &mut Option<Open>, open: Option<Open>) -> Option<Open> {
        let before = std::mem::replace(slot, open);
        self.open.fetch_add(usize::from(open.is_some()), Ordering::Relaxed);
        self.open.fetch_sub(usize::from(before.is_some()), Ordering::Relaxed);
        before
    }
}

impl Slot {
    fn lock_seen(&self) -> MutexGuard<'_, Option<(Attr, u64)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, attr: &Attr, now: u64) {
        *self.lock_seen() = Some((attr.clone(), now));
    }
}

/// Closes a handle of the client.
async fn release(session: &Session, open: Option<Open>) {
    let Some(open) = open else { return };
    if let Err(error) = session.release(open.handle).await {
        tracing::debug!(%error, "a handle could not be closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that is told "later" without another verifier would believe that what it has written is still there.
    #[test]
    fn whatever_the_client_may_have_given_up_is_lost() {
        let lost = [Refusal::NoSpace, Refusal::Fenced, Refusal::Corrupt].map(ClientError::Refused);
        assert!(lost.into_iter().all(is_lost) && is_lost(ClientError::Unreachable));
        assert!(!is_lost(ClientError::Refused(Refusal::Stale)));
        assert!(
            is_handle_invalid(ClientError::Refused(Refusal::Fenced))
                && !is_handle_invalid(ClientError::Unreachable)
        );
    }
}
