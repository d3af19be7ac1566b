//! File handles: an inode of one volume of one cluster. They do not depend on a gate, so every gate accepts them,
//! also after a restart. Inode numbers are never reused.
//!
//! ```text
//! "shl" 1 | cluster (16) | volume (4) | inode (8) | checksum of all before it (4)
//! ```

use types::checksum::crc;
use types::{ClusterId, InodeId, VolumeId};

use super::wire::Status;

/// Bytes of a handle.
pub(super) const HANDLE_LEN: usize = 36;
/// What every handle begins with; the last byte is the layout's version.
const MAGIC: [u8; 4] = *b"shl\x01";

/// The volume whose files the handles name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileSystemId {
    pub(super) cluster: ClusterId,
    pub(super) volume: VolumeId,
}

impl FileSystemId {
    fn start(&self) -> [u8; 24] {
        let mut start = [0; 24];
        start[..4].copy_from_slice(&MAGIC);
        start[4..20].copy_from_slice(&self.cluster.0);
        start[20..].copy_from_slice(&self.volume.0.to_be_bytes());
        start
    }

    /// The handle of an inode.
    pub(super) fn handle(&self, inode: InodeId) -> [u8; HANDLE_LEN] {
        let mut handle = [0; HANDLE_LEN];
        handle[..24].copy_from_slice(&self.start());
        handle[24..32].copy_from_slice(&inode.0.to_be_bytes());
        let sum = crc(&handle[..32]);
        handle[32..].copy_from_slice(&sum.to_be_bytes());
        handle
    }

    /// The inode of a handle.
    ///
    /// # Errors [`Status::BadHandle`] if it is not a handle, [`Status::Stale`] if it belongs to another volume.
    pub(super) fn inode(&self, handle: &[u8]) -> Result<InodeId, Status> {
        let handle: &[u8; HANDLE_LEN] = handle.try_into().map_err(|_| Status::BadHandle)?;
        let (start, rest) = handle.split_at(24);
        let (inode, sum) = rest.split_at(8);
        if handle[..4] != MAGIC || sum != crc(&handle[..32]).to_be_bytes() {
            return Err(Status::BadHandle);
        }
        if start != self.start() {
            return Err(Status::Stale);
        }
        inode.try_into().map(|inode| InodeId(u64::from_be_bytes(inode))).map_err(|_| Status::BadHandle)
    }

    /// A number that differs between volumes.
    pub(super) fn fsid(&self) -> u64 {
        u64::from(crc(&self.cluster.0)) << 32 | u64::from(self.volume.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: FileSystemId = FileSystemId { cluster: ClusterId([7; 16]), volume: VolumeId(3) };

    #[test]
    fn handles_are_the_same_everywhere_and_for_ever() {
        // What clients hold from an earlier version must still be understood.
        let known = "73686c010707070707070707070707070707070700000003000000000000002a";
        let handle = HERE.handle(InodeId(42));
        let text: String = handle[..32].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, known);
        assert_eq!(HERE.inode(&handle), Ok(InodeId(42)));
    }

    #[test]
    fn strange_handles_are_told_apart() {
        let there = FileSystemId { volume: VolumeId(4), ..HERE };
        assert_eq!(there.inode(&HERE.handle(InodeId(42))), Err(Status::Stale));
        let elsewhere = FileSystemId { cluster: ClusterId([8; 16]), ..HERE };
        assert_eq!(elsewhere.inode(&HERE.handle(InodeId(42))), Err(Status::Stale));
        assert_eq!(HERE.inode(b""), Err(Status::BadHandle));
        assert_eq!(HERE.inode(&[0; HANDLE_LEN]), Err(Status::BadHandle));
        assert_ne!(HERE.fsid(), there.fsid());
    }

    proptest! {
        #[test]
        fn handles_come_back_and_changed_ones_do_not(inode: u64, at in 0..HANDLE_LEN, bits in 1u8..) {
            let mut handle = HERE.handle(InodeId(inode));
            prop_assert_eq!(HERE.inode(&handle), Ok(InodeId(inode)));
            handle[at] ^= bits;
            prop_assert_eq!(HERE.inode(&handle), Err(Status::BadHandle));
        }

        #[test]
        fn any_bytes_are_looked_at_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            let _ = HERE.inode(&bytes);
        }
    }
}
