//! Some stripes of one object, in little memory however far apart they lie.

use std::collections::BTreeMap;
use std::ops::Range;

/// Stripes of a word: one bit each.
const WORD: u64 = 64;

/// A set of stripes within a range, in at most [`StripeSet::WORDS_MAX`] words of 64 stripes. If more words are
/// needed, the set forgets the highest stripes and its range ends earlier: see [`StripeSet::upto`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeSet {
    range: Range<u64>,
    words: BTreeMap<u64, u64>,
}

impl StripeSet {
    /// Most words of a set.
    pub const WORDS_MAX: usize = 16 << 10;

    /// An empty set for this range.
    pub fn new(range: Range<u64>) -> StripeSet {
        StripeSet { range, words: BTreeMap::new() }
    }

    /// The end of the range that the set covers. Of stripes from here on nothing is known.
    pub fn upto(&self) -> u64 {
        self.range.end
    }

    /// Adds a stripe if it lies in the range.
    pub fn put(&mut self, stripe: u64) {
        if self.range.contains(&stripe) {
            *self.words.entry(stripe / WORD).or_default() |= 1 << (stripe % WORD);
            self.keep_bounds();
        }
    }

    /// Drops the highest words until the set is within its bound.
    fn keep_bounds(&mut self) {
        while self.words.len() > StripeSet::WORDS_MAX {
            if let Some((word, _)) = self.words.pop_last() {
                self.range.end = word * WORD;
            }
        }
    }

    /// The words for a message, ascending: the index of each, and a mask of its stripes.
    pub fn words(&self) -> Vec<(u64, u64)> {
        self.words.iter().map(|(word, mask)| (*word, *mask)).collect()
    }

    /// Adds the words of another set, which covers only the stripes below `upto`. Stripes outside the range are left
    /// out.
    pub fn merge(&mut self, words: &[(u64, u64)], upto: u64) {
        self.range.end = self.range.end.min(upto.max(self.range.start));
        let wanted = self.range.start / WORD..self.range.end.div_ceil(WORD);
        for (word, mask) in words.iter().filter(|(word, mask)| wanted.contains(word) && *mask != 0) {
            *self.words.entry(*word).or_default() |= mask;
            self.keep_bounds();
        }
    }

    /// The stripes as runs: ascending, apart from each other.
    pub fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (word, mask) in &self.words {
            let mut rest = *mask;
            while rest != 0 {
                let from = rest.trailing_zeros();
                let len = (rest >> from).trailing_ones();
                rest = if from + len == 64 { 0 } else { rest >> (from + len) << (from + len) };
                let start = word * WORD + u64::from(from);
                let run = start.max(self.range.start)..(start + u64::from(len)).min(self.range.end);
                match runs.last_mut() {
                    _ if run.is_empty() => {}
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_what_was_put(stripes in proptest::collection::btree_set(0u64..700, 0..200), from in 0u64..300, len in 0u64..500) {
            let mut set = StripeSet::new(from..from + len);
            stripes.iter().for_each(|stripe| set.put(*stripe));
            let mut other = StripeSet::new(from..from + len);
            other.merge(&set.words(), set.upto());
            prop_assert_eq!(&other, &set);
            let found: Vec<u64> = set.runs().into_iter().flatten().collect();
            let expected: Vec<u64> = stripes.into_iter().filter(|s| (from..from + len).contains(s)).collect();
            prop_assert_eq!(found, expected);
            prop_assert!(set.runs().windows(2).all(|two| two[0].end < two[1].start));
        }
    }

    #[test]
    fn a_set_is_bounded_and_says_how_far_it_goes() {
        let mut set = StripeSet::new(0..u64::MAX);
        // Far apart, the highest first.
        for n in (0..StripeSet::WORDS_MAX as u64 + 100).rev() {
            set.put(n << 40);
        }
        assert_eq!(set.words().len(), StripeSet::WORDS_MAX);
        assert_eq!(set.upto(), (StripeSet::WORDS_MAX as u64) << 40);
        set.put(u64::MAX - 1);
        assert_eq!(set.runs().last(), Some(&(((1 << 14) - 1) << 40..(((1 << 14) - 1) << 40) + 1)));
    }

    #[test]
    fn what_others_tell_is_cut_to_the_range() {
        let mut set = StripeSet::new(10..100);
        set.merge(&[(0, u64::MAX), (1, 1), (7, u64::MAX), (u64::MAX, u64::MAX)], 90);
        assert_eq!((set.runs(), set.upto()), (Vec::from_iter([10..65; 1]), 90));
        set.merge(&[], 5);
        assert_eq!((set.runs(), set.upto()), (vec![], 10));
    }
}
