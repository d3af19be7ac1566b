//! Where listings of directories have ended.
//!
//! The kernel asks for a directory until an answer has no entries; no answer says that it is the last one. The metadata
//! service does, so of most directories it need not be asked twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::FileHandle;

/// The directories that are open, by their handles.
#[derive(Default)]
pub(super) struct Listings {
    handles: AtomicU64,
    /// Handles whose last answer reached the directory's end, and its last cookie.
    ended: Mutex<BTreeMap<u64, u64>>,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle.
    pub(super) fn open(&self) -> FileHandle {
        FileHandle(self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes that nothing followed `cookie`.
    pub(super) fn end(&self, handle: FileHandle, cookie: u64) {
        self.lock().insert(handle.0, cookie);
    }

    /// Whether nothing followed `cookie` when the handle's last answer was given. True once only: whoever goes on asking
    /// looks for what has come since.
    pub(super) fn take_end(&self, handle: FileHandle, cookie: u64) -> bool {
        self.lock().remove(&handle.0) == Some(cookie)
    }

    /// Forgets a handle.
    pub(super) fn close(&self, handle: FileHandle) {
        self.lock().remove(&handle.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_once() {
        let listings = Listings::default();
        let (one, other) = (listings.open(), listings.open());
        listings.end(one, 7);
        assert!(!listings.take_end(other, 7), "another one's");
        assert!(listings.take_end(one, 7));
        assert!(!listings.take_end(one, 7), "there may be more by now");
    }

    #[test]
    fn a_listing_that_begins_anew_is_asked_for() {
        let listings = Listings::default();
        let handle = listings.open();
        listings.end(handle, 7);
        assert!(!listings.take_end(handle, 0), "it was rewound");
        assert!(!listings.take_end(handle, 7));
    }

    #[test]
    fn closed_handles_take_no_memory() {
        let listings = Listings::default();
        let handle = listings.open();
        listings.end(handle, 7);
        listings.close(handle);
        assert!(listings.lock().is_empty());
    }
}
