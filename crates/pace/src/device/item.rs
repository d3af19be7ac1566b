//! What waits or is in flight, and the two orders that most policies need.

use std::collections::BTreeSet;

use super::request::{Direction, Operation};
use super::slots::Slots;

/// All that waits or is in flight.
pub(super) type Items = Slots<Item>;

/// One request, or several that were merged.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) operation: Operation,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// Of the first of its requests.
    pub(super) process: u32,
    pub(super) priority: u8,
    /// Whether somebody waits for any of them.
    pub(super) waited_for: bool,
    /// When the first of them was added.
    pub(super) added_us: u64,
    /// The earliest of their deadlines.
    pub(super) deadline_us: u64,
    pub(super) dispatched_us: u64,
    /// Its place among all that was added; that of the first of its requests.
    pub(super) number: u64,
    pub(super) state: State,
    /// Its requests, in the order of their bytes: a list.
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    /// Held requests that wait for this one: a list.
    pub(super) edges: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It overlaps so many earlier ones and waits until they are complete.
    Held(u32),
    /// The policy has it, or it is a flush that waits.
    Waiting,
    InFlight,
}

impl Item {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The way of its bytes. Flushes never get to a policy; they count as writes.
    pub(super) fn direction(&self) -> Direction {
        if self.operation == Operation::Read { Direction::Read } else { Direction::Write }
    }
}

/// Items in the order of their deadlines.
#[derive(Clone, Default, Debug)]
pub(super) struct Deadlines(BTreeSet<(u64, u64, u32)>);

impl Deadlines {
    pub(super) fn insert(&mut self, item: &Item, slot: u32) {
        self.0.insert((item.deadline_us, item.number, slot));
    }

    pub(super) fn remove(&mut self, item: &Item, slot: u32) {
        self.0.remove(&(item.deadline_us, item.number, slot));
    }

    /// The one with the earliest deadline.
    pub(super) fn head(&self) -> Option<u32> {
        self.0.first().map(|key| key.2)
    }

    /// The earliest deadline that has passed, the number of its item, and the item.
    pub(super) fn expired(&self, now_us: u64) -> Option<(u64, u64, u32)> {
        self.0.first().copied().filter(|key| key.0 <= now_us)
    }
}

/// How far back a head goes for a request rather than forward, in bytes, and how much dearer a byte back is.
const BACK_SEEK_MAX: u64 = 16 << 20;
const BACK_SEEK_TIMES: u64 = 2;

/// Items in the order of their places.
#[derive(Clone, Default, Debug)]
pub(super) struct Places(BTreeSet<(u64, u64, u32)>);

impl Places {
    pub(super) fn insert(&mut self, item: &Item, slot: u32) {
        self.0.insert((item.offset, item.number, slot));
    }

    pub(super) fn remove(&mut self, item: &Item, slot: u32) {
        self.0.remove(&(item.offset, item.number, slot));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first one at `offset` or behind it.
    pub(super) fn from(&self, offset: u64) -> Option<u32> {
        self.0.range((offset, 0, 0)..).next().map(|key| key.2)
    }

    /// The nearest one to `offset`, where going back is dearer than going forward; else the first of all.
    pub(super) fn nearest(&self, offset: u64) -> Option<u32> {
        let ahead = self.0.range((offset, 0, 0)..).next();
        let behind = self.0.range(..(offset, 0, 0)).next_back();
        let behind = behind.filter(|key| offset - key.0 <= BACK_SEEK_MAX);
        let nearer = match (ahead, behind) {
            (Some(ahead), Some(behind)) => {
                let is_behind = (offset - behind.0) * BACK_SEEK_TIMES < ahead.0 - offset;
                Some(if is_behind { behind } else { ahead })
            }
            (ahead, behind) => ahead.or(behind).or_else(|| self.0.first()),
        };
        nearer.map(|key| key.2)
    }
}

/// Where reads or writes lie that are released or held.
#[derive(Clone, Default, Debug)]
pub(super) struct Ranges {
    ranges: BTreeSet<(u64, u32)>,
    /// None of them was longer since there was none.
    longest: u64,
}

impl Ranges {
    pub(super) fn insert(&mut self, item: &Item, slot: u32) {
        self.ranges.insert((item.offset, slot));
        self.grow(item.length);
    }

    /// One of them is longer now.
    pub(super) fn grow(&mut self, length: u64) {
        self.longest = self.longest.max(length);
    }

    pub(super) fn remove(&mut self, item: &Item, slot: u32) {
        self.ranges.remove(&(item.offset, slot));
        if self.ranges.is_empty() {
            self.longest = 0;
        }
    }

    /// The last one that begins before `offset`.
    pub(super) fn before(&self, offset: u64) -> Option<u32> {
        self.ranges.range(..(offset, 0)).next_back().map(|range| range.1)
    }

    /// The first one that begins at `offset`.
    pub(super) fn at(&self, offset: u64) -> Option<u32> {
        self.ranges.range((offset, 0)..).next().filter(|range| range.0 == offset).map(|range| range.1)
    }

    /// Those that have bytes of `offset..end`.
    pub(super) fn overlapping<'a>(
        &'a self,
        items: &'a Items,
        offset: u64,
        end: u64,
    ) -> impl Iterator<Item = u32> + 'a {
        let from = (offset + 1).saturating_sub(self.longest);
        let near = self.ranges.range((from, 0)..(end, 0)).map(|range| range.1);
        near.filter(move |slot| items.known(*slot).end() > offset)
    }

    /// The same where no two of them overlap: nothing is looked at in vain.
    pub(super) fn overlapping_apart<'a>(
        &'a self,
        items: &'a Items,
        offset: u64,
        end: u64,
    ) -> impl Iterator<Item = u32> + 'a {
        let near = self.ranges.range(..(end, 0)).rev().map(|range| range.1);
        near.take_while(move |slot| items.known(*slot).end() > offset)
    }
}
