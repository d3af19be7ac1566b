//! Where each unit's descriptor lies: 8 bytes of RAM per entry, at most 7/8 full.
//!
//! The table keeps a 32-bit tag of the key, so a search yields candidates; the descriptor itself holds the key. It is
//! split into shards that grow and shrink separately: one table of all units would have to be moved at once.

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

/// Shards of the index, a power of two: the high bits of the tag choose one.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 8;
/// Least places of a shard.
const PLACES_MIN: usize = 16;

/// Finds the descriptors of units.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Vec<Shard>,
    len: usize,
}

impl Index {
    pub(crate) fn new() -> Index {
        Index { shards: (0..SHARDS).map(|_| Shard::default()).collect(), len: 0 }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The tag: 32 well-mixed bits of the key (SplitMix64's finaliser), never `EMPTY` or `GONE`. Probing starts at
    /// its low bits, so that a shard can grow without knowing the keys.
    fn tag(key: StripeKey) -> u32 {
        let mut x = key.object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.stripe;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) as u32).clamp(EMPTY + 1, GONE - 1)
    }

    fn shard_of(tag: u32) -> usize {
        (tag >> (32 - SHARD_BITS)) as usize
    }

    /// Handles that may belong to `key`.
    pub(crate) fn candidates(&self, key: StripeKey) -> Vec<Handle> {
        let tag = Self::tag(key);
        let shard = &self.shards[Self::shard_of(tag)];
        shard.probe(tag).map(|at| Handle(shard.places[at].1)).collect()
    }

    pub(crate) fn insert(&mut self, key: StripeKey, handle: Handle) {
        let tag = Self::tag(key);
        self.shards[Self::shard_of(tag)].insert(tag, handle.0);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, key: StripeKey, handle: Handle) {
        let tag = Self::tag(key);
        self.shards[Self::shard_of(tag)].remove(tag, handle.0);
        self.len -= 1;
    }

    /// Places that take RAM.
    #[cfg(test)]
    fn places(&self) -> usize {
        self.shards.iter().map(|shard| shard.places.len()).sum()
    }
}

/// Open addressing with linear probing.
#[derive(Debug, Default)]
struct Shard {
    /// `(tag, handle)`; the tag says whether the place is empty, gone or taken.
    places: Vec<(u32, u32)>,
    len: usize,
    /// Taken and gone places.
    filled: usize,
}

impl Shard {
    /// Places with this tag.
    fn probe(&self, tag: u32) -> impl Iterator<Item = usize> + '_ {
        let mask = self.places.len().wrapping_sub(1);
        (0..self.places.len())
            .map(move |step| (tag as usize + step) & mask)
            .take_while(|&at| self.places[at].0 != EMPTY)
            .filter(move |&at| self.places[at].0 == tag)
    }

    fn insert(&mut self, tag: u32, handle: u32) {
        if (self.filled + 1) * 8 > self.places.len() * 7 {
            self.rehash(((self.len + 1) * 2).next_power_of_two());
        }
        self.put(tag, handle);
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

    fn remove(&mut self, tag: u32, handle: u32) {
        let found = self.probe(tag).find(|&at| self.places[at].1 == handle);
        let at = found.expect("an entry is removed once");
        self.places[at] = (GONE, 0);
        self.len -= 1;
        if self.places.len() > PLACES_MIN && self.len * 8 < self.places.len() {
            self.rehash((self.len * 2).next_power_of_two());
        }
    }

    /// Moves to a table of so many places and drops the places of removed entries.
    fn rehash(&mut self, size: usize) {
        types::cost::entries(self.len);
        let old = std::mem::replace(&mut self.places, vec![(EMPTY, 0); size.max(PLACES_MIN)]);
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

    #[test]
    fn gives_its_ram_back() {
        let key = |stripe| StripeKey { object: ObjectId(7), stripe };
        let mut index = Index::new();
        (0..100_000).for_each(|n| index.insert(key(n), Handle::new(n as u32, 0)));
        assert!(index.places() <= 100_000 * 4);
        (0..100_000).for_each(|n| index.remove(key(n), Handle::new(n as u32, 0)));
        assert_eq!((index.len(), index.places()), (0, SHARDS * PLACES_MIN));
    }
}
