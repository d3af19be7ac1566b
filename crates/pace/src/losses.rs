//! Packets that a sender has sent once more, and which of them were lost.

/// So long after a packet was sent once more its sender knows whether the first one had arrived all the same: a few
/// round trips, and what a busy machine adds to them.
const SETTLING_US: u64 = 10_000;

/// Counts the packets of a connection that were lost.
///
/// On a busy machine TCP sends many packets once more that were only late. The receiver says so (DSACK, RFC 2883), after a
/// round trip. Before that they look like lost ones, so a packet counts only after a while.
#[derive(Debug, Default)]
pub struct LossCounter {
    lost: u32,
    /// What the kernel has said since when.
    unsettled: Option<(u64, u32)>,
}

impl LossCounter {
    /// Packets that were lost since the connection began; never fewer than before. `resent`: packets that its kernel has
    /// sent once more, without those that had arrived, as it knows now.
    pub fn settle(&mut self, now_us: u64, resent: u32) -> u32 {
        match self.unsettled {
            Some((since, before)) if now_us >= since + SETTLING_US => {
                self.lost = self.lost.max(before.min(resent));
                self.unsettled = None;
            }
            _ => {}
        }
        if self.unsettled.is_none() && resent > self.lost {
            self.unsettled = Some((now_us, resent));
        }
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_counts_once_it_is_settled() {
        let mut counter = LossCounter::default();
        assert_eq!(counter.settle(0, 3), 0);
        assert_eq!(counter.settle(SETTLING_US - 1, 5), 0);
        assert_eq!(counter.settle(SETTLING_US, 5), 3, "the two others are younger");
        assert_eq!(counter.settle(2 * SETTLING_US, 5), 5);
        assert_eq!(counter.settle(9 * SETTLING_US, 5), 5);
    }

    #[test]
    fn what_was_only_late_never_counts() {
        let mut counter = LossCounter::default();
        assert_eq!(counter.settle(0, 8), 0);
        // All of them had arrived.
        assert_eq!(counter.settle(SETTLING_US, 0), 0);
        assert_eq!(counter.settle(2 * SETTLING_US, 2), 0);
        assert_eq!(counter.settle(3 * SETTLING_US, 1), 1);
        // Later news about what has been counted cannot be taken back, and is not counted again.
        assert_eq!(counter.settle(4 * SETTLING_US, 0), 1);
        assert_eq!(counter.settle(5 * SETTLING_US, 1), 1);
    }
}
