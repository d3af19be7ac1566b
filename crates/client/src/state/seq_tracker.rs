//! Numbers that are given out in order and finished in any order.

use std::collections::BTreeSet;

/// Gives out 1, 2, 3 and so on, and knows up to which number all are finished.
#[derive(Debug, Default)]
pub(crate) struct SeqTracker {
    last: u64,
    out: BTreeSet<u64>,
}

impl SeqTracker {
    /// The next number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.out.insert(self.last);
        self.last
    }

    /// Marks a number as finished.
    pub(crate) fn finish(&mut self, number: u64) {
        self.out.remove(&number);
    }

    /// The highest number up to which all are finished.
    pub(crate) fn finished(&self) -> u64 {
        self.out.first().map_or(self.last, |first| first - 1)
    }

    /// Whether all numbers are finished.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty()
    }

    /// The highest number given out.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_waits_for_the_slowest() {
        let mut numbers = SeqTracker::default();
        assert_eq!(numbers.finished(), 0);
        let (a, b, c) = (numbers.begin(), numbers.begin(), numbers.begin());
        numbers.finish(b);
        assert_eq!(numbers.finished(), 0);
        numbers.finish(a);
        assert_eq!(numbers.finished(), 2);
        assert!(!numbers.is_idle());
        numbers.finish(c);
        assert_eq!((numbers.finished(), numbers.last()), (3, 3));
    }
}
