//! Open directories: the ends of listings, and the attributes of removed directories.
//!
//! The metadata service keeps removed files that are open. It does not know which directories are open, so `fstat` of
//! a removed directory shows its last known attributes from here.
//!
//! The kernel lists a directory until an answer has no entries; FUSE cannot mark the last answer. The metadata
//! service does, so for most directories one request is enough.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::FileHandle;
use types::InodeId;
use types::messages::names::Attr;

/// The directories that are open, by their handles.
#[derive(Default)]
pub(super) struct OpenDirs {
    handles: AtomicU64,
    /// Handles whose last answer reached the directory's end, and its last cookie.
    ended: Mutex<BTreeMap<u64, u64>>,
    /// How often each directory is open, and its attributes at the last open.
    directories: Mutex<BTreeMap<InodeId, (u32, Attr)>>,
}

impl OpenDirs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directories(&self) -> MutexGuard<'_, BTreeMap<InodeId, (u32, Attr)>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new handle of the directory with these attributes.
    pub(super) fn open(&self, attr: Attr) -> FileHandle {
        let mut directories = self.directories();
        let (count, known) = directories.entry(attr.inode).or_insert_with(|| (0, attr.clone()));
        *count += 1;
        *known = attr;
        FileHandle(self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// The last known attributes of a directory, if it is open.
    pub(super) fn opened(&self, inode: InodeId) -> Option<Attr> {
        self.directories().get(&inode).map(|(_, attr)| attr.clone())
    }

    /// The attributes of an open directory that was removed.
    pub(super) fn removed(&self, inode: InodeId) -> Option<Attr> {
        self.opened(inode).map(|attr| Attr { links: 0, size: 0, ..attr })
    }

    /// Changes the attributes of an open directory that was removed, and returns them.
    pub(super) fn change(&self, inode: InodeId, change: impl Fn(&mut Attr)) -> Option<Attr> {
        self.directories().get_mut(&inode).map(|(_, attr)| change(attr))?;
        self.removed(inode)
    }

    /// Records that no entries follow `cookie`.
    pub(super) fn end(&self, handle: FileHandle, cookie: u64) {
        self.lock().insert(handle.0, cookie);
    }

    /// Whether no entries followed `cookie` in the handle's last answer. True only once: a further request is for
    /// entries that are new since.
    pub(super) fn take_end(&self, handle: FileHandle, cookie: u64) -> bool {
        self.lock().remove(&handle.0) == Some(cookie)
    }

    /// Forgets a handle.
    pub(super) fn close(&self, inode: InodeId, handle: FileHandle) {
        self.lock().remove(&handle.0);
        let mut directories = self.directories();
        if let Some((count, _)) = directories.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                directories.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::attributes::plain_attr;
    use types::messages::names::FileKind;

    fn directory(inode: u64) -> Attr {
        Attr { mode: 0o755, links: 2, size: 3, ..plain_attr(InodeId(inode), FileKind::Directory) }
    }

    #[test]
    fn a_removed_directory_is_known_while_it_is_open() {
        let open_dirs = OpenDirs::default();
        let (first, second) = (open_dirs.open(directory(5)), open_dirs.open(directory(5)));
        open_dirs.close(InodeId(5), first);
        assert_eq!(open_dirs.removed(InodeId(5)).map(|attr| (attr.links, attr.mode)), Some((0, 0o755)));
        let changed = open_dirs.change(InodeId(5), |attr| attr.mode = 0o700);
        assert_eq!(changed.map(|attr| (attr.links, attr.mode)), Some((0, 0o700)));
        assert_eq!(open_dirs.removed(InodeId(5)).map(|attr| attr.mode), Some(0o700));
        open_dirs.close(InodeId(5), second);
        assert_eq!(open_dirs.removed(InodeId(5)), None);
        assert_eq!(open_dirs.change(InodeId(5), |attr| attr.mode = 0), None);
    }

    #[test]
    fn an_end_is_known_once() {
        let open_dirs = OpenDirs::default();
        let (one, other) = (open_dirs.open(directory(5)), open_dirs.open(directory(5)));
        open_dirs.end(one, 7);
        assert!(!open_dirs.take_end(other, 7), "another one's");
        assert!(open_dirs.take_end(one, 7));
        assert!(!open_dirs.take_end(one, 7), "there may be more by now");
    }

    #[test]
    fn a_listing_that_begins_anew_is_asked_for() {
        let open_dirs = OpenDirs::default();
        let handle = open_dirs.open(directory(5));
        open_dirs.end(handle, 7);
        assert!(!open_dirs.take_end(handle, 0), "it was rewound");
        assert!(!open_dirs.take_end(handle, 7));
    }

    #[test]
    fn closed_handles_take_no_memory() {
        let open_dirs = OpenDirs::default();
        let handle = open_dirs.open(directory(5));
        open_dirs.end(handle, 7);
        open_dirs.close(InodeId(5), handle);
        assert!(open_dirs.lock().is_empty() && open_dirs.directories().is_empty());
    }
}
