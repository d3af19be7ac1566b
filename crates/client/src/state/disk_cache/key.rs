//! The names of cached bytes.

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

/// Bytes of a key in a file.
pub(crate) const KEY_BYTES: usize = 60;

impl ChunkKey {
    /// The key as it is on the disk.
    pub(crate) fn to_bytes(self) -> [u8; KEY_BYTES] {
        let ContentVersion { object, truncate_seq, changes, size, mtime } = self.version;
        let words = [self.inode.0, object.0, truncate_seq, changes, size, mtime.cast_unsigned(), self.chunk];
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(&self.volume.0.to_le_bytes());
        for (place, word) in bytes[4..].chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// A number that two keys hardly share; never 0. Where they do, the bytes on the disk tell.
    pub(crate) fn print(self) -> u64 {
        let mut print = 0;
        for word in self.to_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            print = mix(print ^ u64::from_le_bytes(bytes));
        }
        print.max(1)
    }
}

/// The step of splitmix64. Source: <https://prng.di.unimi.it/splitmix64.c>, public domain.
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use types::ObjectId;

    use super::*;

    pub(crate) fn key(changes: u64, chunk: u64) -> ChunkKey {
        let version =
            ContentVersion { object: ObjectId(3), truncate_seq: 0, changes, size: 1 << 30, mtime: -4 };
        ChunkKey { volume: VolumeId(1), inode: InodeId(2), version, chunk }
    }

    #[test]
    fn keys_have_different_prints() {
        let keys = (0..100).flat_map(|changes| (0..100).map(move |chunk| key(changes, chunk)));
        let prints: BTreeSet<u64> = keys.map(ChunkKey::print).collect();
        assert_eq!(prints.len(), 10_000);
        let print = key(1, 2).print();
        assert_eq!(print, key(1, 2).print());
        assert_ne!(ChunkKey { inode: InodeId(9), ..key(1, 2) }.print(), print);
        assert_ne!(ChunkKey { volume: VolumeId(9), ..key(1, 2) }.print(), print);
    }
}
