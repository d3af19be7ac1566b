//! By place, in batches; reads before writes; a batch begins with the oldest request if that has expired.
//!
//! Source: block/mq-deadline.c of Linux, without its classes of priorities and its limit for write-back.

use super::item::{Deadlines, Items, Places};
use super::parameters::Parameters;
use super::request::Direction;

#[derive(Clone, Default, Debug)]
pub(super) struct Deadline {
    reads: Side,
    writes: Side,
    /// The direction of the batch, and where its last request ended.
    batch: Option<(Direction, u64)>,
    /// Requests of the batch so far.
    batched: u64,
    /// Batches of reads since writes began to wait.
    starved: u64,
}

#[derive(Clone, Default, Debug)]
struct Side {
    places: Places,
    deadlines: Deadlines,
}

impl Deadline {
    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    pub(super) fn insert(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        let side = self.side(item.direction());
        side.places.insert(item, slot);
        side.deadlines.insert(item, slot);
    }

    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        let side = self.side(item.direction());
        side.places.remove(item, slot);
        side.deadlines.remove(item, slot);
    }

    pub(super) fn next(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<u32> {
        let following = self.batch.and_then(|(direction, end)| {
            let slot = self.side(direction).places.from(end)?;
            Some((direction, slot))
        });
        let (direction, slot) = match following {
            Some(following) if self.batched < parameters.fifo_batch => following,
            _ => {
                let direction = self.choose(parameters)?;
                let expired = self.side(direction).deadlines.expired(now_us).map(|key| key.2);
                let following = following.filter(|following| following.0 == direction);
                let following = following.map(|following| following.1);
                self.batched = 0;
                (direction, expired.or(following).or_else(|| self.side(direction).deadlines.head())?)
            }
        };
        self.batched += 1;
        self.batch = Some((direction, items.known(slot).end()));
        self.remove(items, slot);
        Some(slot)
    }

    /// The direction of a new batch.
    fn choose(&mut self, parameters: &Parameters) -> Option<Direction> {
        match (!self.reads.places.is_empty(), !self.writes.places.is_empty()) {
            (false, false) => None,
            (true, false) => Some(Direction::Read),
            (true, true) if self.starved < parameters.reads_per_write => {
                self.starved += 1;
                Some(Direction::Read)
            }
            (_, true) => {
                self.starved = 0;
                Some(Direction::Write)
            }
        }
    }
}
