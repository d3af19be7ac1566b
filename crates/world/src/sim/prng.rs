//! Seeded random numbers: one independent stream per purpose, so that a change in one does not shift the others.

use std::cell::Cell;
use std::ops::Range;

/// A stream of random numbers. Source: SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Prng(Cell<u64>);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Prng {
    /// The stream of `seed` for `purpose`.
    pub(super) fn new(seed: u64, purpose: &str) -> Prng {
        let start =
            purpose.bytes().fold(mix(seed ^ 0x5348_4f41_4c00), |sum, byte| mix(sum ^ u64::from(byte)));
        Prng(Cell::new(start))
    }

    pub(super) fn next_u64(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        mix(self.0.get())
    }

    /// A number below `limit`; `limit` must not be zero.
    pub(super) fn below(&self, limit: u64) -> u64 {
        // The bias of one part in 2^64/limit does not matter here.
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `range`; its start if it is empty.
    pub(super) fn within(&self, range: &Range<u64>) -> u64 {
        if range.is_empty() { range.start } else { range.start + self.below(range.end - range.start) }
    }

    pub(super) fn hits(&self, millionths: u32) -> bool {
        // Draw no number if the event cannot happen.
        millionths != 0 && self.below(1_000_000) < u64::from(millionths)
    }

    pub(super) fn coin(&self) -> bool {
        self.next_u64() & 1 != 0
    }

    pub(super) fn fill(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}
