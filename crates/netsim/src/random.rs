//! Seeded random numbers. Source: SplitMix64 (Steele, Lea, Flood 2014).

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The finaliser of SplitMix64: every bit of the result depends on every bit of `z`.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed ^ 0x6e65_7473_696d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, or 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The bias of one part in 2^64/limit does not matter here.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// `count` different numbers below `limit`, in any order; all of them if there are no more.
    pub(crate) fn choose(&mut self, count: usize, limit: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..limit as u32).collect();
        let count = count.min(limit);
        for at in 0..count {
            all.swap(at, at + self.below((limit - at) as u64) as usize);
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_is_a_stream_and_choices_are_different() {
        let stream = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next()]
        };
        assert_eq!(stream(1), stream(1));
        assert_ne!(stream(1), stream(2));
        let mut random = Random::new(3);
        let chosen = random.choose(8, 10);
        assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), 8);
        assert!(chosen.iter().all(|number| *number < 10));
        assert_eq!(random.choose(20, 10).len(), 10);
        assert_eq!(random.below(0), 0);
    }
}
