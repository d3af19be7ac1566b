//! The bytes of files.
//!
//! The answer to a WRITE has the verifier from before the write. If bytes are lost after that, the client gets another
//! verifier from its COMMIT, and writes again. The answer to a COMMIT has the verifier from after the commit.

use types::limits::FILE_SIZE_MAX;

use client::{ClientError, SetAttrs};

use crate::nfs::access::{Caller, READ, WRITE};
use crate::nfs::files::{is_handle_invalid, is_lost};
use crate::nfs::gate::Gate;
use crate::nfs::wire::{IO_MAX, Results, StableHow, Status, Writer};

/// The stability of written bytes, in the protocol's numbers.
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

impl Gate {
    pub(super) async fn read(
        &self,
        caller: &Caller,
        file: &[u8],
        offset: u64,
        count: u32,
    ) -> Result<Results, Status> {
        let inode = self.inode(file)?;
        let attr = self.recent_attr(inode).await?;
        caller.check_file(&attr, READ)?;
        let count = count.min(IO_MAX) as usize;
        let read =
            self.with_file(inode, false, async |held| self.session.read(held.handle()?, offset, count).await);
        let bytes = read.await?;
        let end = offset.saturating_add(bytes.len() as u64);
        // Only a read at the known end needs the newest size: the file may have grown within the last second.
        let ended = bytes.len() < count || (end >= attr.size && end >= self.attr(inode).await?.size);
        let mut head = Writer::default();
        // Never attributes: Linux lays its buffers out by the head of the first answer, and fails with an I/O error
        // where a later head is longer. Source: linux/fs/nfs/nfs3proc.c, `read_hdrsize`.
        self.attributes().put_post_op_attr(&mut head, None);
        head.u32(bytes.len() as u32).bool(ended).u32(bytes.len() as u32);
        Ok(Results { head, data: bytes })
    }

    pub(super) async fn write(
        &self,
        caller: &Caller,
        file: &[u8],
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let inode = self.inode(file)?;
        let attr = self.recent_attr(inode).await?;
        caller.check_file(&attr, WRITE)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
            return Err(Status::TooLarge);
        }
        let verifier = self.verifier();
        let written = self.with_file(inode, true, async |held| {
            let written = self.session.write(held.handle()?, offset, data).await;
            held.has_written();
            written?;
            if stable != StableHow::Unstable {
                held.make_stable(&self.session).await?;
            }
            Ok(())
        });
        written.await.map_err(|error| self.failed(error))?;
        if let Some(mode) = caller.mode_after_write(&attr) {
            self.session.setattr(inode, SetAttrs { mode: Some(mode), ..SetAttrs::default() }).await?;
        }
        let after = self.attr_after(inode).await;
        let mut head = Writer::default();
        self.attributes().put_wcc_data(&mut head, after.as_ref());
        head.u32(data.len() as u32).u32(if stable == StableHow::Unstable { UNSTABLE } else { FILE_SYNC });
        head.u64(verifier);
        Ok(head.into())
    }

    /// Makes everything stable that was written to the file through this gate, even outside the range that the client
    /// names.
    pub(super) async fn commit(&self, caller: &Caller, file: &[u8]) -> Result<Results, Status> {
        self.check_writable()?;
        let inode = self.inode(file)?;
        let attr = self.recent_attr(inode).await?;
        caller.check_file(&attr, WRITE)?;
        // A file that is not open was made stable before its close.
        if let Some(held) = self.shared.files.writer(inode).await {
            match held.make_stable(&self.session).await {
                Ok(()) => {}
                // The new verifier makes the client write again.
                Err(error) if is_handle_invalid(error) => {
                    self.shared.files.discard(&self.session, held, &self.shared.verifier).await;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        let after = self.attr_after(inode).await;
        let mut head = Writer::default();
        self.attributes().put_wcc_data(&mut head, after.as_ref());
        head.u64(self.verifier());
        Ok(head.into())
    }

    /// A write failed. The lost bytes may be of any client, and answered long ago. So the verifier changes, and all
    /// clients write again what they have not committed.
    fn failed(&self, error: ClientError) -> Status {
        if is_lost(error) {
            tracing::warn!(%error, "a write failed");
            self.shared.verifier.change();
        }
        error.into()
    }
}
