//! Records that other servers may still need: the newest ones, in memory.

use std::collections::VecDeque;

use types::Buf;
use types::messages::replica::RecordPosition;

/// See the module. The numbers of its records have no gap.
pub(crate) struct History {
    records: VecDeque<(RecordPosition, Buf)>,
    bytes: usize,
    most: usize,
}

impl History {
    /// Keeps up to `most` bytes, and the last record in any case.
    pub(crate) fn new(most: usize) -> History {
        History { records: VecDeque::new(), bytes: 0, most }
    }

    /// Adds a record, instead of one that has its number.
    pub(crate) fn push(&mut self, position: RecordPosition, writes: Buf) {
        while self.records.back().is_some_and(|(last, _)| last.number >= position.number) {
            let (_, writes) = self.records.pop_back().expect("seen above");
            self.bytes -= writes.len();
        }
        if self.records.back().is_some_and(|(last, _)| last.number + 1 != position.number) {
            self.clear();
        }
        self.bytes += writes.len();
        self.records.push_back((position, writes));
        self.trim();
    }

    fn trim(&mut self) {
        while self.bytes > self.most && self.records.len() > 1 {
            let (_, writes) = self.records.pop_front().expect("there are two");
            self.bytes -= writes.len();
        }
    }

    /// Whether a record is among the older half: it may be forgotten soon.
    pub(crate) fn is_old(&self, number: u64) -> bool {
        let first = self.records.front().map_or(0, |(first, _)| first.number);
        number < first + self.records.len() as u64 / 2
    }

    /// Forgets the records after this one.
    pub(crate) fn truncate(&mut self, number: u64) {
        while self.records.back().is_some_and(|(last, _)| last.number > number) {
            let (_, writes) = self.records.pop_back().expect("seen above");
            self.bytes -= writes.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes = 0;
    }

    /// The number of the last record.
    pub(crate) fn last(&self) -> Option<u64> {
        self.records.back().map(|(position, _)| position.number)
    }

    /// A record, and its writes.
    pub(crate) fn get(&self, number: u64) -> Option<(RecordPosition, Buf)> {
        let first = self.records.front()?.0.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.records.get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_records_are_kept_without_gaps() {
        let at = |number, term| RecordPosition { number, term };
        let writes = |len: usize| Buf::from(vec![1u8; len]);
        let mut history = History::new(100);
        assert_eq!((history.last(), history.get(1)), (None, None));
        (5..9).for_each(|number| history.push(at(number, 1), writes(30)));
        assert_eq!((history.last(), history.get(5)), (Some(8), None));
        assert_eq!(history.get(6).map(|(position, _)| position), Some(at(6, 1)));
        history.push(at(8, 2), writes(200));
        assert_eq!(history.get(8), Some((at(8, 2), writes(200))));
        assert_eq!(history.get(7), None);
        history.push(at(20, 3), writes(10));
        assert_eq!((history.get(8), history.get(20).is_some()), (None, true));
    }
}
