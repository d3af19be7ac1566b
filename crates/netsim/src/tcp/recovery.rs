//! Which segments have come, and which are lost: those that left before one that has come, a little earlier (RACK, RFC
//! 8985).

use super::sender::{Sender, Stage};
use crate::packet::{Ack, Block};
use crate::time::Time;

/// So many segments behind a hole say that it is one, and no change of order.
const HOLES_AFTER: usize = 3;

/// The packet that left last of all that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Newest {
    order: u64,
    round_trip: Time,
}

/// What an acknowledgement has brought.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// Segments that were not known to have come.
    pub(super) segments: usize,
    /// The round trip of the last of them that was sent once only.
    pub(super) round_trip: Option<Time>,
}

impl Sender {
    /// Marks what has come.
    pub(super) fn take(&mut self, now: Time, ack: &Ack) -> Arrived {
        let mut arrived = Arrived::default();
        while self.una < ack.next && self.sent > 0 {
            self.arrive(now, 0, &mut arrived);
            self.segments.pop_front();
            self.una += 1;
            self.sent -= 1;
            self.there -= 1;
        }
        for (from, to) in ack.blocks {
            self.take_block(now, (from, to), &mut arrived);
        }
        arrived
    }

    fn take_block(&mut self, now: Time, (from, to): Block, arrived: &mut Arrived) {
        let to = to.min(self.una + self.sent as u32);
        for segment in from.max(self.una)..to {
            self.arrive(now, (segment - self.una) as usize, arrived);
        }
    }

    /// A segment has come, as the receiver says.
    fn arrive(&mut self, now: Time, at: usize, arrived: &mut Arrived) {
        let segment = &mut self.segments[at];
        if segment.is_there {
            return;
        }
        segment.is_there = true;
        self.there += 1;
        self.lost -= usize::from(std::mem::take(&mut segment.is_lost));
        self.repeated -= usize::from(std::mem::take(&mut segment.is_repeated));
        arrived.segments += 1;
        let round_trip = now - segment.sent;
        if !segment.is_old {
            arrived.round_trip = Some(round_trip);
        } else if round_trip < self.least {
            // The first packet has come, not the second.
            return;
        }
        if segment.order > self.newest.order {
            self.newest = Newest { order: segment.order, round_trip };
        }
    }

    /// Marks what is lost. Returns how many segments were not known to be.
    pub(super) fn detect(&mut self, now: Time) -> usize {
        self.late_at = None;
        if self.there == 0 && self.lost == 0 {
            return 0;
        }
        let is_sure = self.stage != Stage::Open || self.there >= HOLES_AFTER;
        let patience = if is_sure { 0 } else { self.least / 4 };
        let mut found = 0;
        for segment in self.segments.iter_mut().take(self.sent) {
            let is_known = segment.is_lost && !segment.is_repeated;
            if segment.is_there || is_known || segment.order > self.newest.order {
                continue;
            }
            let due = segment.sent + self.newest.round_trip + patience;
            if due > now {
                self.late_at = Some(self.late_at.map_or(due, |at| at.min(due)));
                continue;
            }
            found += 1;
            if !segment.is_lost {
                segment.is_lost = true;
                self.lost += 1;
            }
            self.repeated -= usize::from(std::mem::take(&mut segment.is_repeated));
        }
        found
    }
}
