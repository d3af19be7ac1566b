//! Where each unit's descriptor lies: 8 bytes of RAM per entry, at most 7/8 full.
//!
//! The table keeps a 32-bit tag of the key, so a search yields candidates; the descriptor itself holds the key.

use types::StripeKey;

const EMPTY: u32 = 0;
const GONE: u32 = u32::MAX;

/// A place in the descriptor table: page and entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Handle(u32);

impl Handle {
    /// Bits of the entry within its page.
    const ENTRY_BITS: u32 = 6;

    pub(crate) fn new(page: u32, entry: u32) -> Handle {
        assert!(
            entry < 1 << Self::ENTRY_BITS && page < 1 << (32 - Self::ENTRY_BITS),
            "a handle fits 32 bits"
        );
        Handle(page << Self::ENTRY_BITS | entry)
    }

    pub(crate) fn page(self) -> u32 {
        self.0 >> Self::ENTRY_BITS
    }

    pub(crate) fn entry(self) -> u32 {
        self.0 & ((1 << Self::ENTRY_BITS) - 1)
    }
}

/// Open addressing with linear probing.
#[derive(Debug)]
pub(crate) struct Index {
    /// `(tag, handle)`; the tag says whether the place is empty, gone or taken.
    places: Vec<(u32, u32)>,
    len: usize,
    /// Taken and gone places.
    filled: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { places: vec![(EMPTY, 0); 64], len: 0, filled: 0 }
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The tag: 32 well-mixed bits of the key (SplitMix64's finaliser), never `EMPTY` or `GONE`. Probing starts at
    /// its low bits, so that the table can grow without knowing the keys.
    fn tag(key: StripeKey) -> u32 {
        let mut x = key.object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.stripe;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) as u32).clamp(EMPTY + 1, GONE - 1)
    }

    /// Handles that may belong to `key`.
    pub(crate) fn candidates(&self, key: StripeKey) -> Vec<Handle> {
        self.probe(Self::tag(key)).map(|at| Handle(self.places[at].1)).collect()
    }

    /// Places with this tag.
    fn probe(&self, tag: u32) -> impl Iterator<Item = usize> + '_ {
        let mask = self.places.len() - 1;
        (0..self.places.len())
            .map(move |step| (tag as usize + step) & mask)
            .take_while(|&at| self.places[at].0 != EMPTY)
            .filter(move |&at| self.places[at].0 == tag)
    }

    pub(crate) fn insert(&mut self, key: StripeKey, handle: Handle) {
        if (self.filled + 1) * 8 > self.places.len() * 7 {
            self.grow();
        }
        self.put(Self::tag(key), handle.0);
        self.len += 1;
    }

    fn put(&mut self, tag: u32, handle: u32) {
        let mask = self.places.len() - 1;
        let mut at = tag as usize & mask;
        while !matches!(self.places[at].0, EMPTY | GONE) {
            at = (at + 1) & mask;
        }
        self.filled += usize::from(self.places[at].0 == EMPTY);
        self.places[at] = (tag, handle);
    }

    pub(crate) fn remove(&mut self, key: StripeKey, handle: Handle) {
        let found = self.probe(Self::tag(key)).find(|&at| self.places[at].1 == handle.0);
        let at = found.expect("an entry is removed once");
        self.places[at] = (GONE, 0);
        self.len -= 1;
    }

    /// Rehashes into a table with room, without the places of removed entries.
    fn grow(&mut self) {
        let size = ((self.len + 1) * 2).next_power_of_two().max(self.places.len());
        let old = std::mem::replace(&mut self.places, vec![(EMPTY, 0); size]);
        self.filled = 0;
        old.into_iter()
            .filter(|(tag, _)| !matches!(*tag, EMPTY | GONE))
            .for_each(|(tag, h)| self.put(tag, h));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use types::ObjectId;

    proptest! {
        #[test]
        fn finds_what_was_put(steps in proptest::collection::vec((any::<bool>(), 0u64..40, 0u64..10), 1..500)) {
            let mut index = Index::new();
            let mut model = BTreeMap::new();
            for (n, (insert, object, stripe)) in steps.into_iter().enumerate() {
                let key = StripeKey { object: ObjectId(object), stripe };
                match (insert, model.get(&key).copied()) {
                    (true, None) => {
                        let handle = Handle::new(n as u32, n as u32 % 64);
                        index.insert(key, handle);
                        model.insert(key, handle);
                    }
                    (false, Some(handle)) => {
                        index.remove(key, handle);
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for (key, handle) in &model {
                prop_assert!(index.candidates(*key).contains(handle));
            }
        }
    }
}
