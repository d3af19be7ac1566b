//! Open directories: where listings have ended, and what is left of those that were removed.
//!
//! The metadata service knows who has which file open, and keeps it. Of open directories it knows nothing: what `fstat`
//! shows of a removed one is what was known of it here.
//!
//! The kernel asks for a directory until an answer has no entries; no answer says that it is the last one. The metadata
//! service does, so of most directories it need not be asked twice.

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
    /// How often each is open, and what was known of it at the last open.
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

    /// What was known of a directory, if it is open.
    pub(super) fn opened(&self, inode: InodeId) -> Option<Attr> {
        self.directories().get(&inode).map(|(_, attr)| attr.clone())
    }

    /// What is left of an open directory that is gone.
    pub(super) fn removed(&self, inode: InodeId) -> Option<Attr> {
        self.opened(inode).map(|attr| Attr { links: 0, size: 0, ..attr })
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
    use types::ObjectId;
    use types::messages::names::FileKind;

    fn directory(inode: u64) -> Attr {
        Attr {
            inode: InodeId(inode),
            kind: FileKind::Directory,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 3,
            atime: 0,
            mtime: 0,
            ctime: 0,
            object: ObjectId(0),
            stale_end: 0,
            truncate_seq: 0,
            changes: 0,
        }
    }

    #[test]
    fn a_removed_directory_is_known_while_it_is_open() {
        let open_dirs = OpenDirs::default();
        let (first, second) = (open_dirs.open(directory(5)), open_dirs.open(directory(5)));
        open_dirs.close(InodeId(5), first);
        assert_eq!(open_dirs.removed(InodeId(5)).map(|attr| (attr.links, attr.mode)), Some((0, 0o755)));
        open_dirs.close(InodeId(5), second);
        assert_eq!(open_dirs.removed(InodeId(5)), None);
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
