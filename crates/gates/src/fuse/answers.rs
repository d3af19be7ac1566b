//! Parts of answers that several requests have, and lookups that concern no name.

use client::{Opened, Seek};
use fuser::{Errno, FileHandle, RenameFlags, ReplyEmpty, ReplyOpen, ReplyStatfs, ReplyWrite};
use types::InodeId;
use types::limits::{BLOCK, NAME_MAX};
use types::messages::names::{Attr, RenameHow, Space};

use super::gate::Gate;
use super::local;

impl Gate {
    /// Resolves an inode number from an old file handle, or the parent of that inode. The kernel has dropped the
    /// inode or never knew it. Numbers of removed inodes are never reused.
    pub(super) async fn lookup_handle(&self, inode: InodeId, parent: bool) -> Result<Attr, Errno> {
        let inode = if parent {
            // Only the parent in the answer is needed, not the entries.
            self.ask(async |session| session.readdir(inode, u64::MAX - 1, 1).await).await?.parent
        } else {
            inode
        };
        let attr = self.ask_attr(async |session| session.getattr(inode).await).await?;
        // An inode without a name exists only for those who have it open, and the kernel knows these.
        if attr.links == 0 { Err(Errno::ESTALE) } else { Ok(attr) }
    }

    /// The first place of the kind `what` from `offset` on.
    pub(super) async fn seek(
        &self,
        inode: InodeId,
        handle: FileHandle,
        offset: u64,
        what: Seek,
    ) -> Result<i64, Errno> {
        // The kernel may still have dirty pages: of memory maps, or of any write on an exclusive mount.
        if self.mount.is_written(inode) {
            self.invalidate_pages(inode).await;
        }
        let found = self.ask(async |session| session.seek(handle.0, offset, what).await).await?;
        found.and_then(|found| i64::try_from(found).ok()).ok_or(Errno::ENXIO)
    }

    pub(super) fn reply_open(&self, answer: Result<Opened, Errno>, write: bool, reply: ReplyOpen) {
        match answer {
            Ok(opened) => {
                let flags = self.opened(&opened.attr, write);
                reply.opened(FileHandle(opened.handle), flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// Closes a handle again whose opener was interrupted and has gone. True if it has.
    pub(super) async fn closes_late(&self, opened: &Result<Opened, Errno>) -> bool {
        let is_late = local::is_late(&self.mount);
        if is_late
            && let Ok(opened) = opened
            && let Err(error) = self.ask(async |session| session.release(opened.handle).await).await
        {
            tracing::warn!("a file that was opened for a program that has gone cannot be closed: {error:?}");
        }
        is_late
    }

    pub(super) fn reply_written(written: Result<u32, Errno>, reply: ReplyWrite) {
        match written {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn reply_space(answer: Result<Space, Errno>, reply: ReplyStatfs) {
        match answer {
            Ok(space) => {
                let block = BLOCK as u64;
                let (blocks, free) = (space.total / block, space.free / block);
                // Inodes share the space with bytes, so as many are free as blocks.
                let files = space.inodes.saturating_add(free);
                reply.statfs(blocks, free, free, files, free, BLOCK as u32, NAME_MAX as u32, BLOCK as u32);
            }
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn reply_done(answer: Result<(), Errno>, reply: ReplyEmpty) {
        match answer {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

/// What a rename does with a file that has the new name.
pub(super) fn rename_how(flags: RenameFlags) -> Result<RenameHow, Errno> {
    if flags.is_empty() {
        Ok(RenameHow::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Ok(RenameHow::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Ok(RenameHow::Exchange)
    } else {
        Err(Errno::EINVAL)
    }
}
