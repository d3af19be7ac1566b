//! Seeded random numbers. Source: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut random = Random(seed ^ 0x6465_7673_696d);
        random.0 = random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The bias of one part in 2^64/limit does not matter here.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// A number of a range, both ends included.
    pub(crate) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True with so many percent.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A size between two powers of 2, each step of 2 being as likely as the others, in whole blocks of 4 KiB.
    pub(crate) fn size(&mut self, least_log2: u64, most_log2: u64) -> u64 {
        let step = self.within(least_log2, most_log2 - 1);
        self.within(1 << step, 2 << step).next_multiple_of(4096)
    }
}
