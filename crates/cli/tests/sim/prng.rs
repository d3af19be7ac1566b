//! Choices of the story, apart from those of the world.

use std::cell::Cell;

/// A stream of pseudo-random numbers (SplitMix64).
pub(crate) struct Prng(Cell<u64>);

impl Prng {
    pub(crate) fn new(seed: u64) -> Prng {
        Prng(Cell::new(seed))
    }

    pub(crate) fn next_u64(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut x = self.0.get();
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    pub(crate) fn coin(&self) -> bool {
        self.below(2) == 0
    }

    pub(crate) fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Some of these, in their order: each by a coin.
    pub(crate) fn subset<T: Copy>(&self, from: &[T]) -> Vec<T> {
        from.iter().copied().filter(|_| self.coin()).collect()
    }
}
