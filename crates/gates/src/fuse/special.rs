//! Attributes of pipes, sockets and devices that the kernel knows, for `fstat` of removed ones.
//!
//! The kernel opens these files without a request, so the metadata service does not know that one is open, and
//! deletes it with its last name. `fstat` then shows the last known attributes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::InodeId;
use types::messages::names::{Attr, FileKind};

/// Most entries. Beyond this, all are dropped, and `fstat` of a removed file fails.
const REMEMBERED_MAX: usize = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct SpecialFiles {
    /// The last known attributes of each.
    heard: Mutex<BTreeMap<InodeId, Attr>>,
}

impl SpecialFiles {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<InodeId, Attr>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records attributes that are sent to the kernel.
    pub(super) fn tell(&self, attr: &Attr) {
        use FileKind::{BlockDevice, CharDevice, Fifo, Socket};
        if !matches!(attr.kind, Fifo | Socket | CharDevice | BlockDevice) {
            return;
        }
        let mut heard = self.lock();
        if heard.len() >= REMEMBERED_MAX {
            heard.clear();
        }
        heard.insert(attr.inode, attr.clone());
    }

    /// The attributes of a removed one.
    pub(super) fn removed(&self, inode: InodeId) -> Option<Attr> {
        self.lock().get(&inode).map(|attr| Attr { links: 0, ..attr.clone() })
    }

    /// Changes the attributes of a removed one, and returns them.
    pub(super) fn change(&self, inode: InodeId, change: impl Fn(&mut Attr)) -> Option<Attr> {
        self.lock().get_mut(&inode).map(change)?;
        self.removed(inode)
    }

    /// The kernel does not know this inode any more.
    pub(super) fn forget(&self, inode: InodeId) {
        self.lock().remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::attributes::plain_attr;

    fn attr(inode: u64, kind: FileKind) -> Attr {
        Attr { mode: 0o640, ..plain_attr(InodeId(inode), kind) }
    }

    #[test]
    fn a_removed_pipe_is_known_until_the_kernel_forgets_it() {
        let special = SpecialFiles::default();
        special.tell(&attr(5, FileKind::Fifo));
        assert_eq!(special.removed(InodeId(5)).map(|attr| (attr.links, attr.mode)), Some((0, 0o640)));
        assert_eq!(special.change(InodeId(5), |attr| attr.mode = 0o600).map(|attr| attr.mode), Some(0o600));
        special.forget(InodeId(5));
        assert_eq!(special.removed(InodeId(5)), None);
    }

    #[test]
    fn files_are_not_remembered() {
        let special = SpecialFiles::default();
        special.tell(&attr(5, FileKind::File));
        assert_eq!(special.removed(InodeId(5)), None);
    }

    #[test]
    fn the_memory_has_a_bound() {
        let special = SpecialFiles::default();
        (0..3 * REMEMBERED_MAX as u64).for_each(|inode| special.tell(&attr(inode, FileKind::Socket)));
        assert!(special.lock().len() <= REMEMBERED_MAX);
    }
}
