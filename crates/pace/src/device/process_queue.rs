//! The requests of one process, for `cfq` and `bfq`: by place, but each turn begins with the oldest if it has expired.

use super::item::{Deadlines, Item, Items, Places};
use super::request::Request;

/// How long a request may wait in its queue, if somebody waits for it and if not.
const EXPIRY_SYNC_US: u64 = 125_000;
const EXPIRY_ASYNC_US: u64 = 250_000;

/// When a request of a process expires.
pub(super) fn expiry_us(request: &Request) -> u64 {
    if request.waited_for { EXPIRY_SYNC_US } else { EXPIRY_ASYNC_US }
}

/// Whose queue it is. All write-back of one priority is one queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    /// Requests of write-back, by priority.
    WriteBack(u8),
    /// Requests that somebody waits for, by process and priority.
    Process(u32, u8),
}

impl Owner {
    pub(super) fn of(item: &Item) -> Owner {
        if item.waited_for {
            Owner::Process(item.process, item.priority)
        } else {
            Owner::WriteBack(item.priority)
        }
    }

    pub(super) fn is_sync(self) -> bool {
        matches!(self, Owner::Process(..))
    }

    pub(super) fn priority(self) -> u8 {
        match self {
            Owner::WriteBack(priority) | Owner::Process(_, priority) => priority,
        }
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct ProcessQueue {
    places: Places,
    deadlines: Deadlines,
    /// Whether the oldest was looked at in this turn.
    looked: bool,
}

impl ProcessQueue {
    pub(super) fn insert(&mut self, item: &Item, slot: u32) {
        self.places.insert(item, slot);
        self.deadlines.insert(item, slot);
    }

    pub(super) fn remove(&mut self, item: &Item, slot: u32) {
        self.places.remove(item, slot);
        self.deadlines.remove(item, slot);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Its turn begins.
    pub(super) fn begin(&mut self) {
        self.looked = false;
    }

    pub(super) fn has_expired(&self, now_us: u64) -> bool {
        self.deadlines.expired(now_us).is_some()
    }

    /// The one that is next by place, the head of the device being at `position`.
    pub(super) fn peek(&self, position: u64) -> Option<u32> {
        self.places.nearest(position)
    }

    /// The next one, the head of the device being at `position`.
    pub(super) fn next(&mut self, now_us: u64, items: &Items, position: u64) -> Option<u32> {
        let expired = if self.looked { None } else { self.deadlines.expired(now_us) };
        self.looked = true;
        let slot = expired.map(|key| key.2).or_else(|| self.places.nearest(position))?;
        self.remove(items.known(slot), slot);
        Some(slot)
    }
}
