//! The stripes that have descriptors on this brick, in order, in little RAM.
//!
//! The [`Index`](crate::index::Index) finds the descriptor of a given stripe. This set knows which stripes exist, so
//! a walk over an object or a group visits only these, however long the file is.
//!
//! Two bitmaps, because small and large files differ. Object ids are consecutive and most files have one stripe, so
//! the bit for stripe 0 of an object costs one or two bytes. The other stripes of an object come in rows.
//!
//! | units | bytes of RAM for each |
//! |---|---|
//! | of files of one stripe | 1 to 2 |
//! | of long files, written in a row | below 1 |
//! | scattered: fewer than one in 64 stripes exists | up to 40 |

use std::collections::BTreeMap;

use types::{ObjectId, StripeKey};

/// Bits of an entry.
const ROW: u64 = 64;

/// A set of stripes, ordered by object, then stripe.
#[derive(Debug, Default)]
pub(crate) struct StripeIndex {
    /// By a 64th of the object's id: which of these objects have stripe 0.
    firsts: BTreeMap<u64, u64>,
    /// By object and a 64th of the stripe: which of these stripes exist, except stripe 0.
    others: BTreeMap<(ObjectId, u64), u64>,
}

/// Up to 64 stripes in a row of one object, at least one of which is in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) object: ObjectId,
    /// A 64th of the stripes' numbers.
    row: u64,
    bits: u64,
}

impl Row {
    /// Its stripes that are in the set, ascending.
    pub(crate) fn keys(self) -> impl Iterator<Item = StripeKey> {
        let Row { object, row, bits } = self;
        ones(bits).map(move |bit| StripeKey { object, stripe: row * ROW + bit })
    }

    /// The row without the stripes below `stripe`.
    fn from(self, stripe: u64) -> Row {
        let below = stripe.saturating_sub(self.row * ROW);
        let mask = if below >= ROW { 0 } else { u64::MAX << below };
        Row { bits: self.bits & mask, ..self }
    }
}

/// The numbers of the bits that are set, ascending.
fn ones(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| u64::from(bits.trailing_zeros()))?;
        bits &= bits - 1;
        Some(bit)
    })
}

impl StripeIndex {
    /// Adds a stripe, which may be in the set already.
    pub(crate) fn insert(&mut self, key: StripeKey) {
        let (entry, bit) = self.entry(key);
        *entry |= bit;
    }

    fn entry(&mut self, key: StripeKey) -> (&mut u64, u64) {
        match key.stripe {
            0 => (self.firsts.entry(key.object.0 / ROW).or_default(), 1 << (key.object.0 % ROW)),
            stripe => (self.others.entry((key.object, stripe / ROW)).or_default(), 1 << (stripe % ROW)),
        }
    }

    /// Takes a stripe out, which need not be in the set.
    pub(crate) fn remove(&mut self, key: StripeKey) {
        let (entry, bit) = self.entry(key);
        *entry &= !bit;
        if *entry == 0 {
            match key.stripe {
                0 => self.firsts.remove(&(key.object.0 / ROW)),
                stripe => self.others.remove(&(key.object, stripe / ROW)),
            };
        }
    }

    /// The first row with a stripe at `from` or after it, without stripes before `from`.
    pub(crate) fn next_row(&self, from: StripeKey) -> Option<Row> {
        types::cost::entries(1);
        let here = self.row(from.object, from.stripe / ROW).from(from.stripe);
        if here.bits != 0 {
            return Some(here);
        }
        let behind = match (from.stripe / ROW).checked_add(1) {
            Some(row) => (from.object, row),
            None => (ObjectId(from.object.0.checked_add(1)?), 0),
        };
        let other = self.others.range(behind..).next().map(|((object, row), _)| (*object, *row));
        let first = self.next_first(from.object.0.checked_add(1)).map(|object| (object, 0));
        let (object, row) = [other, first].into_iter().flatten().min()?;
        Some(self.row(object, row))
    }

    fn row(&self, object: ObjectId, row: u64) -> Row {
        let others = self.others.get(&(object, row)).copied().unwrap_or(0);
        let first = match row {
            0 => self.firsts.get(&(object.0 / ROW)).map_or(0, |bits| bits >> (object.0 % ROW) & 1),
            _ => 0,
        };
        Row { object, row, bits: others | first }
    }

    /// The first object from `from` on that has stripe 0.
    fn next_first(&self, from: Option<u64>) -> Option<ObjectId> {
        let from = from?;
        let rest = u64::MAX << (from % ROW);
        let of = |at: u64, bits: u64| ObjectId(at * ROW + u64::from(bits.trailing_zeros()));
        let mut entries = self.firsts.range(from / ROW..);
        let (at, bits) = entries.next()?;
        let bits = if *at == from / ROW { bits & rest } else { *bits };
        if bits != 0 {
            return Some(of(*at, bits));
        }
        entries.next().map(|(at, bits)| of(*at, *bits))
    }

    /// The stripes of an object from `from` on, ascending.
    pub(crate) fn of_object(&self, object: ObjectId, from: u64) -> impl Iterator<Item = StripeKey> + '_ {
        let mut next = Some(StripeKey { object, stripe: from });
        let rows = std::iter::from_fn(move || {
            let row = self.next_row(next?).filter(|row| row.object == object)?;
            next = row.end();
            Some(row)
        });
        rows.flat_map(Row::keys)
    }
}

impl Row {
    /// The first key after the row, `None` if there is no greater one.
    pub(crate) fn end(self) -> Option<StripeKey> {
        let stripe = (self.row + 1).checked_mul(ROW);
        match stripe {
            Some(stripe) => Some(StripeKey { object: self.object, stripe }),
            None => Some(StripeKey { object: ObjectId(self.object.0.checked_add(1)?), stripe: 0 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key() -> impl Strategy<Value = StripeKey> {
        let object = prop_oneof![0u64..4, 60u64..70, Just(1000), Just(u64::MAX - 1), Just(u64::MAX)];
        let stripe =
            prop_oneof![Just(0), 0u64..3, 60u64..70, Just(1 << 40), Just(u64::MAX - 1), Just(u64::MAX)];
        (object, stripe).prop_map(|(object, stripe)| StripeKey { object: ObjectId(object), stripe })
    }

    fn walk(set: &StripeIndex, from: StripeKey) -> Vec<StripeKey> {
        let (mut found, mut at) = (Vec::new(), Some(from));
        while let Some(row) = at.and_then(|at| set.next_row(at)) {
            found.extend(row.keys());
            at = row.end();
        }
        found
    }

    proptest! {
        #[test]
        fn is_an_ordered_set(
            steps in proptest::collection::vec((any::<bool>(), key()), 1..200),
            from in key(),
        ) {
            let (mut set, mut model) = (StripeIndex::default(), BTreeSet::new());
            for (insert, key) in steps {
                if insert {
                    set.insert(key);
                    model.insert(key);
                } else {
                    set.remove(key);
                    model.remove(&key);
                }
            }
            prop_assert_eq!(walk(&set, StripeKey::default()), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(walk(&set, from), model.range(from..).copied().collect::<Vec<_>>());
            let of_object: Vec<StripeKey> = set.of_object(from.object, from.stripe).collect();
            let expected = model.range(from..).take_while(|key| key.object == from.object);
            prop_assert_eq!(of_object, expected.copied().collect::<Vec<_>>());
            if model.is_empty() {
                prop_assert!(set.firsts.is_empty() && set.others.is_empty(), "nothing is kept of what is gone");
            }
        }
    }

    #[test]
    fn small_files_and_long_ones_take_few_entries() {
        let mut set = StripeIndex::default();
        (0..6400).for_each(|object| set.insert(StripeKey { object: ObjectId(object), stripe: 0 }));
        (0..6400).for_each(|stripe| set.insert(StripeKey { object: ObjectId(9_999), stripe }));
        assert_eq!((set.firsts.len(), set.others.len()), (101, 100));
    }
}
