//! The names under which bytes of files are in a cache on a disk.

use cache::{KEY_BYTES, Key};
use types::{InodeId, VolumeId};

use crate::state::content_version::ContentVersion;

/// A chunk of the contents of a file. Bytes under a key never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkKey {
    pub(crate) volume: VolumeId,
    pub(crate) inode: InodeId,
    pub(crate) version: ContentVersion,
    /// Its number in the file.
    pub(crate) chunk: u64,
}

impl ChunkKey {
    /// The key of the cache. It begins with the number of the volume, which is never `u32::MAX`: bricks' keys do.
    pub(crate) fn to_key(self) -> Key {
        let ContentVersion { object, truncate_seq, changes, size, mtime } = self.version;
        let words = [self.inode.0, object.0, truncate_seq, changes, size, mtime.cast_unsigned(), self.chunk];
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(&self.volume.0.to_le_bytes());
        for (place, word) in bytes[4..].chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Key(bytes)
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectId;
    use types::checksum::crc;

    use super::*;

    #[test]
    fn every_part_of_a_key_counts() {
        let version =
            ContentVersion { object: ObjectId(3), truncate_seq: 0, changes: 1, size: 1 << 30, mtime: -4 };
        let key = ChunkKey { volume: VolumeId(1), inode: InodeId(2), version, chunk: 2 };
        let others = [
            ChunkKey { volume: VolumeId(9), ..key },
            ChunkKey { inode: InodeId(9), ..key },
            ChunkKey { chunk: 9, ..key },
            ChunkKey { version: ContentVersion { object: ObjectId(9), ..version }, ..key },
            ChunkKey { version: ContentVersion { truncate_seq: 9, ..version }, ..key },
            ChunkKey { version: ContentVersion { changes: 9, ..version }, ..key },
            ChunkKey { version: ContentVersion { size: 9, ..version }, ..key },
            ChunkKey { version: ContentVersion { mtime: 9, ..version }, ..key },
        ];
        others.iter().for_each(|other| assert_ne!(other.to_key(), key.to_key(), "{other:?}"));
        // Caches outlive mounts: if this changes, what is on their disks is not found again.
        assert_eq!(crc(&key.to_key().0), 0xab2f_cef5, "{:#x}", crc(&key.to_key().0));
    }
}
