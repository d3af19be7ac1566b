//! What a client has of a stream, and when it says so.

use crate::packet::{Ack, BLOCKS, Block};

/// The receiving end of a stream.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    next: u32,
    /// Later segments, in blocks that do not touch; the newest first.
    blocks: Vec<Block>,
    /// Segments that came in order and are not acknowledged.
    silent: u32,
    twice: u32,
}

impl Receiver {
    /// A segment has come. Returns whether it is acknowledged at once: `every` is how many in order are acknowledged
    /// together.
    pub(crate) fn take(&mut self, segment: u32, every: u32) -> bool {
        let is_known = |block: &Block| (block.0..block.1).contains(&segment);
        if segment < self.next || self.blocks.iter().any(is_known) {
            self.twice += 1;
            return true;
        }
        if segment > self.next {
            self.keep(segment);
            return true;
        }
        self.next += 1;
        let had_hole = !self.blocks.is_empty();
        if let Some(at) = self.blocks.iter().position(|block| block.0 == self.next) {
            self.next = self.blocks.remove(at).1;
        }
        self.silent += 1;
        had_hole || self.silent >= every
    }

    /// Adds a segment behind a hole, as the newest.
    fn keep(&mut self, segment: u32) {
        let mut block = (segment, segment + 1);
        self.blocks.retain(|other| {
            let touches = other.1 == block.0 || other.0 == block.1;
            if touches {
                block = (block.0.min(other.0), block.1.max(other.1));
            }
            !touches
        });
        self.blocks.insert(0, block);
    }

    /// Segments that have come once more.
    pub(crate) fn twice(&self) -> u32 {
        self.twice
    }

    /// All segments before this one have come.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Whether something is not acknowledged.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent > 0
    }

    /// What it has. Nothing is unacknowledged then.
    pub(crate) fn ack(&mut self) -> Ack {
        self.silent = 0;
        let mut blocks = [(0, 0); BLOCKS];
        for (place, block) in blocks.iter_mut().zip(&self.blocks) {
            *place = *block;
        }
        Ack { next: self.next, blocks, twice: self.twice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_second_segment_is_acknowledged_and_holes_at_once() {
        let mut receiver = Receiver::default();
        assert!(!receiver.take(0, 2));
        assert!(receiver.is_silent());
        assert!(receiver.take(1, 2));
        assert_eq!(receiver.ack().next, 2);
        assert!(receiver.take(3, 2) && receiver.take(6, 2) && receiver.take(4, 2));
        let ack = receiver.ack();
        assert_eq!((ack.next, ack.blocks), (2, [(3, 5), (6, 7), (0, 0)]));
        assert!(receiver.take(3, 2), "it has come already");
        assert!(receiver.take(2, 2), "it fills a hole");
        let ack = receiver.ack();
        assert_eq!((ack.next, ack.blocks[0], ack.twice), (5, (6, 7), 1));
        assert!(!receiver.is_silent());
    }

    proptest! {
        /// Whatever comes: what it says that it has is what has come.
        #[test]
        fn any_order(segments in proptest::collection::vec(0u32..40, 0..120)) {
            let (mut receiver, mut came) = (Receiver::default(), BTreeSet::new());
            for segment in segments {
                receiver.take(segment, 2);
                came.insert(segment);
                let first = (0..).find(|segment| !came.contains(segment)).unwrap_or_default();
                prop_assert_eq!(receiver.next(), first);
                let mut said: BTreeSet<u32> = (0..first).collect();
                for (from, to) in &receiver.blocks {
                    prop_assert!(from < to && *from > first);
                    said.extend(*from..*to);
                }
                prop_assert_eq!(&said, &came);
            }
        }
    }
}
