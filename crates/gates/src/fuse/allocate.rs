//! `fallocate`.

use std::ops::Range;

use client::Session;
use fuser::{Errno, FileHandle};
use types::InodeId;

use super::gate::Gate;

impl Gate {
    /// Makes a file longer, or ranges of it zero, as the `mode` of fallocate(2) says. For a thread and an inode.
    pub(super) async fn allocate(
        &self,
        (inode, thread): (InodeId, u32),
        handle: FileHandle,
        range: Range<u64>,
        mode: i32,
    ) -> Result<(), Errno> {
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = mode & !libc::FALLOC_FL_KEEP_SIZE;
        if !matches!(kind, 0 | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.kernel_cache.acts(inode, thread);
        let request = async |session: &Session| {
            if kind != 0 {
                session.zero(handle.0, range.clone()).await?;
            }
            match kind {
                libc::FALLOC_FL_PUNCH_HOLE => Ok(()),
                _ => session.allocate(handle.0, range, keeps_size).await,
            }
        };
        let done = self.ask(request).await;
        self.kernel_cache.acts(inode, thread);
        self.names_ahead.file_told(inode);
        done
    }
}
