//! Which writes to a file overlap bytes that were fetched: nothing that a write may have changed is kept in a cache.
//!
//! Whoever fetches bytes for a cache remembers [`WriteLog::count`] before, and keeps the bytes only if
//! [`WriteLog::is_untouched`] afterwards. A write counts from before it reaches the buffers of write-behind until after
//! that. So either the fetched bytes contain it, or they are not kept. Bytes that are in a cache already are removed by
//! the write itself, once it is in progress.

use std::collections::VecDeque;
use std::ops::Range;

/// Most finished writes that are remembered. Bytes that took longer to fetch are not kept.
const REMEMBERED_MAX: usize = 16;

/// The writes in progress and the last finished ones of a file.
#[derive(Default)]
pub(crate) struct WriteLog {
    /// Number of finished writes.
    count: u64,
    inflight: Vec<Range<u64>>,
    finished: VecDeque<Range<u64>>,
}

impl WriteLog {
    /// Number of writes that have finished.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn begin(&mut self, range: Range<u64>) {
        self.inflight.push(range);
    }

    pub(crate) fn end(&mut self, range: &Range<u64>) {
        let found = self.inflight.iter().position(|known| known == range);
        let index = found.expect("end follows begin");
        let range = self.inflight.swap_remove(index);
        self.count += 1;
        if self.finished.len() == REMEMBERED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(range);
    }

    /// Whether no write to `range` is in progress, and none has finished since the number of finished writes was
    /// `count`. False if that is too long ago to know.
    pub(crate) fn is_untouched(&self, count: u64, range: &Range<u64>) -> bool {
        let since = self.count.saturating_sub(count) as usize;
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        since <= self.finished.len()
            && !self.inflight.iter().any(overlaps)
            && !self.finished.iter().rev().take(since).any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_touches_what_was_fetched_before_it_ended() {
        let mut log = WriteLog::default();
        let before = log.count();
        log.begin(10..20);
        assert!(!log.is_untouched(log.count(), &(0..11)), "it is in progress");
        assert!(log.is_untouched(before, &(20..30)), "it touches its own range only");
        log.end(&(10..20));
        assert!(!log.is_untouched(before, &(19..30)));
        assert!(log.is_untouched(log.count(), &(0..30)), "what is fetched now contains it");
    }

    #[test]
    fn what_is_too_long_ago_counts_as_touched() {
        let mut log = WriteLog::default();
        for n in 0..=REMEMBERED_MAX as u64 {
            log.begin(n..n + 1);
            log.end(&(n..n + 1));
        }
        assert!(!log.is_untouched(0, &(100..101)));
        assert!(log.is_untouched(1, &(100..101)));
    }
}
