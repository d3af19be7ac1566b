//! The size nearest to the dispatch priority first.
//!
//! Source: Lee, Ju and Jeon 2014. Sizes up to the dispatch priority wait in one queue, largest first (LISF), larger ones in
//! another, smallest first (SISF). The paper does not say which goes first while both have requests: `slq-nearest` takes
//! the head that is nearer to the dispatch priority, `slq-lisf-first` the largest of LISF.
//!
//! Both queues are ranges of one tree by size, on both sides of the dispatch priority. So a new dispatch priority costs
//! nothing.

use std::collections::BTreeSet;

use super::auto::Auto;
use super::item::{Deadlines, Item, Items};
use super::parameters::Parameters;
use super::request::Direction;

/// Which queue goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Nearest,
    LisfFirst,
}

#[derive(Clone, Debug)]
pub(super) struct Slq {
    order: Order,
    reads: Side,
    writes: Side,
    /// Reads since the last write, while writes waited.
    reads_in_row: u64,
    auto: Option<Box<Auto>>,
}

#[derive(Clone, Default, Debug)]
struct Side {
    /// By length, and as they came.
    sizes: BTreeSet<(u64, u64, u32)>,
    deadlines: Deadlines,
}

impl Side {
    fn remove(&mut self, item: &Item, slot: u32) {
        self.sizes.remove(&(item.length, item.number, slot));
        self.deadlines.remove(item, slot);
    }

    /// The next one by size.
    fn head(&self, priority: u64, order: Order) -> Option<u32> {
        let larger = self.sizes.range((priority + 1, 0, 0)..).next();
        let smaller = self.sizes.range(..(priority + 1, 0, 0)).next_back();
        let Some(smaller) = smaller else { return larger.map(|key| key.2) };
        if let Some(larger) = larger
            && order == Order::Nearest
            && larger.0 - priority < priority - smaller.0
        {
            return Some(larger.2);
        }
        // Of those with this length the first one that came.
        self.sizes.range((smaller.0, 0, 0)..).next().map(|key| key.2)
    }
}

impl Slq {
    pub(super) fn new(order: Order, auto: Option<Auto>) -> Slq {
        let (reads, writes) = (Side::default(), Side::default());
        Slq { order, reads, writes, reads_in_row: 0, auto: auto.map(Box::new) }
    }

    pub(super) fn priority(&self, direction: Direction, parameters: &Parameters) -> u64 {
        match &self.auto {
            Some(auto) => auto.priority(direction),
            None => parameters.priority(direction),
        }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    pub(super) fn insert(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        let side = self.side(item.direction());
        side.sizes.insert((item.length, item.number, slot));
        side.deadlines.insert(item, slot);
    }

    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        self.side(item.direction()).remove(item, slot);
    }

    pub(super) fn next(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<u32> {
        let expired = [&self.reads, &self.writes].map(|side| side.deadlines.expired(now_us));
        let expired = expired.into_iter().flatten().min();
        let slot = match expired {
            Some((_, _, slot)) => slot,
            None => {
                let direction = self.choose(parameters)?;
                let (priority, order) = (self.priority(direction, parameters), self.order);
                self.side(direction).head(priority, order)?
            }
        };
        self.remove(items, slot);
        if let Some(auto) = &mut self.auto {
            let others_wait = !self.reads.sizes.is_empty() || !self.writes.sizes.is_empty();
            auto.dispatched(others_wait, expired.is_some());
        }
        Some(slot)
    }

    fn choose(&mut self, parameters: &Parameters) -> Option<Direction> {
        match (!self.reads.sizes.is_empty(), !self.writes.sizes.is_empty()) {
            (false, false) => None,
            (true, false) => Some(Direction::Read),
            (false, true) => Some(Direction::Write),
            (true, true) if self.reads_in_row < parameters.reads_per_write => {
                self.reads_in_row += 1;
                Some(Direction::Read)
            }
            (true, true) => {
                self.reads_in_row = 0;
                Some(Direction::Write)
            }
        }
    }

    pub(super) fn completed(&mut self, now_us: u64, items: &Items, item: &Item) {
        if let Some(auto) = &mut self.auto {
            let waiting = (self.reads.sizes.len() + self.writes.sizes.len()) as u64;
            let heads = [&self.reads, &self.writes].map(|side| side.deadlines.head());
            let oldest = heads.into_iter().flatten().map(|slot| items.known(slot).added_us).min();
            auto.completed(now_us, item, waiting, oldest.unwrap_or(now_us));
        }
    }
}
