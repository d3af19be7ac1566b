//! As they came.

use std::collections::BTreeSet;

use super::item::Items;

/// Requests by number. A merged one has the place of its first.
#[derive(Clone, Default, Debug)]
pub(super) struct Noop(BTreeSet<(u64, u32)>);

impl Noop {
    pub(super) fn insert(&mut self, items: &Items, slot: u32) {
        self.0.insert((items.known(slot).number, slot));
    }

    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        self.0.remove(&(items.known(slot).number, slot));
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        self.0.pop_first().map(|key| key.1)
    }
}
