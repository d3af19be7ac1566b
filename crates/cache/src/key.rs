//! The names of cached bytes.

/// Bytes of a key.
pub const KEY_BYTES: usize = 60;

/// What the owner of a cache calls a chunk. The bytes under a key must never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// A number that two keys hardly share; never 0. Where they do, the bytes on the disk tell.
    pub fn print(self) -> u64 {
        let mut print = 0;
        for word in self.0.chunks(8) {
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

    use super::*;

    /// A key as a mount makes it, of the version `changes` of a file.
    pub(crate) fn key(changes: u64, chunk: u64) -> Key {
        let mut key = [0; KEY_BYTES];
        key[0] = 1;
        let words = [2, 3, 0, changes, 1 << 30, (-4_i64).cast_unsigned(), chunk];
        for (place, word) in key[4..].chunks_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_le_bytes(word));
        }
        Key(key)
    }

    #[test]
    fn keys_have_different_prints() {
        let keys = (0..100).flat_map(|changes| (0..100).map(move |chunk| key(changes, chunk)));
        let prints: BTreeSet<u64> = keys.map(Key::print).collect();
        assert_eq!(prints.len(), 10_000);
        for at in 0..KEY_BYTES {
            let mut other = key(1, 2);
            other.0[at] ^= 1;
            assert_ne!(other.print(), key(1, 2).print(), "byte {at}");
        }
    }
}
