//! Opens in flight.

use std::collections::BTreeMap;

use types::InodeId;
use types::messages::cluster::Mode;

use crate::state::seq_tracker::SeqTracker;

/// Opens in flight, and the recalls that arrived meanwhile. A recall may overtake the answer that grants the recalled
/// mode.
#[derive(Default)]
pub(crate) struct InflightOpens {
    numbers: SeqTracker,
    recalls: BTreeMap<InodeId, (u64, Mode)>,
}

impl InflightOpens {
    pub(crate) fn begin(&mut self) -> u64 {
        self.numbers.begin()
    }

    /// The mode `granted` by an open, reduced by a recall that arrived meanwhile.
    pub(crate) fn left(&self, opening: u64, inode: InodeId, granted: Mode) -> Mode {
        match self.recalls.get(&inode) {
            Some((at, recalled)) if *at >= opening && *recalled != granted => Mode::Shared,
            _ => granted,
        }
    }

    pub(crate) fn finish(&mut self, opening: u64) {
        self.numbers.finish(opening);
        let finished = self.numbers.finished();
        self.recalls.retain(|_, (at, _)| *at > finished);
    }

    pub(crate) fn recall(&mut self, inode: InodeId, mode: Mode) {
        if !self.numbers.is_idle() {
            self.recalls.insert(inode, (self.numbers.last(), mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(5);

    /// A recall counts for every open that had begun by then, until that has been taken over.
    #[test]
    fn a_recall_that_overtakes_an_answer_is_kept() {
        let mut inflight_opens = InflightOpens::default();
        inflight_opens.recall(FILE, Mode::Shared);
        let first = inflight_opens.begin();
        assert_eq!(inflight_opens.left(first, FILE, Mode::Alone), Mode::Alone, "it begins after the recall");
        inflight_opens.recall(FILE, Mode::Shared);
        let second = inflight_opens.begin();
        assert_eq!(inflight_opens.left(first, FILE, Mode::Alone), Mode::Shared);
        assert_eq!(
            inflight_opens.left(first, FILE, Mode::Alone),
            Mode::Shared,
            "however often it is asked for"
        );
        assert_eq!(inflight_opens.left(second, FILE, Mode::Alone), Mode::Alone);
        assert_eq!(inflight_opens.left(first, InodeId(6), Mode::Alone), Mode::Alone);
        inflight_opens.finish(first);
        inflight_opens.finish(second);
        assert!(inflight_opens.recalls.is_empty());
    }
}
