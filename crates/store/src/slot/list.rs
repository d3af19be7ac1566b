//! What a slot knows of the units of a group, to compare slots and to find stripes.

use std::ops::{Bound, Range};

use types::messages::brick::UnitState;
use types::{GroupId, ObjectId, Seq, StripeKey, cost};

use super::{SlotCore, Unit, below};
use crate::descriptor::{Base, Descriptor};

/// Which units are listed, and by which slot.
#[derive(Clone, Debug)]
pub(crate) struct UnitQuery {
    pub(crate) group: GroupId,
    /// The slot that is asked.
    pub(crate) slot: u8,
    /// The slot whose units are listed.
    pub(crate) of: u8,
    /// The place of the listed unit in its stripe; the whole stripe for parity.
    pub(crate) range: Range<usize>,
}

impl UnitQuery {
    /// The state of the unit by its base, if there is one.
    fn state(&self, key: StripeKey, base: Option<&Base>, dirty: bool) -> UnitState {
        let (base, blocks) = match base {
            None => (Seq::NONE, 0),
            Some(base) if self.of == self.slot => (base.identity, base.blocks),
            Some(base) => {
                let of = usize::from(self.of);
                let identity = base.identities.get(of).copied().unwrap_or(base.identity);
                // Parity is as long as the longest data unit.
                let longest = || base.unit_blocks.iter().max().copied().unwrap_or(0);
                (identity, base.unit_blocks.get(of).copied().unwrap_or_else(longest))
            }
        };
        UnitState { key, base, blocks, dirty }
    }

    /// The state of a unit by its descriptor, if it is of this group.
    pub(crate) fn at_rest(&self, descriptor: &Descriptor) -> Option<UnitState> {
        let Descriptor { key, group, slot, base } = descriptor;
        (*group == self.group).then(|| match *slot == self.slot {
            true => self.state(*key, Some(base), false),
            false => self.stranger(*key),
        })
    }

    /// The state of a unit in RAM.
    fn resident(&self, key: StripeKey, unit: &Unit) -> UnitState {
        if unit.slot != self.slot {
            return self.stranger(key);
        }
        let spans = unit.overlays.values().flat_map(|entry| &entry.record.spans).map(|span| span.range());
        let overlaid =
            spans.into_iter().any(|span| span.start < self.range.end && self.range.start < span.end);
        self.state(key, unit.base.as_ref(), overlaid || !unit.pending.is_empty())
    }

    /// The state of a unit from a time when the brick was another slot of the group: it does not count.
    fn stranger(&self, key: StripeKey) -> UnitState {
        UnitState { key, base: Seq::NONE, blocks: 0, dirty: true }
    }
}

impl SlotCore {
    /// The state of a unit, if it is in RAM.
    pub(crate) fn unit_state(&self, query: &UnitQuery, key: StripeKey) -> Option<UnitState> {
        let unit = self.units.get(&key).filter(|unit| unit.group == query.group)?;
        Some(query.resident(key, unit))
    }

    /// Units in RAM of the first stripes of an object, each with its group.
    pub(crate) fn units_of(
        &self,
        object: ObjectId,
        stripes: u64,
    ) -> impl Iterator<Item = (StripeKey, GroupId)> + '_ {
        cost::walked(self.units.range(below(object, stripes))).map(|(key, unit)| (*key, unit.group))
    }

    /// Every unit of a group in RAM with a key above `after` and up to `upto`, inclusive; `None` for units whose
    /// descriptors at rest are void.
    pub(crate) fn unit_states<'a>(
        &'a self,
        query: &'a UnitQuery,
        after: Option<StripeKey>,
        upto: Option<StripeKey>,
    ) -> impl Iterator<Item = (StripeKey, Option<UnitState>)> + 'a {
        let range =
            (after.map_or(Bound::Unbounded, Bound::Excluded), upto.map_or(Bound::Unbounded, Bound::Included));
        let empty = after.zip(upto).is_some_and(|(after, upto)| after >= upto);
        let erased = (!empty).then(|| self.erased.range(range)).into_iter().flatten();
        let units = (!empty).then(|| self.units.range(range)).into_iter().flatten();
        let units = cost::walked(units).filter(|(_, unit)| unit.group == query.group);
        let units = units.map(|(key, unit)| (*key, Some(query.resident(*key, unit))));
        cost::walked(erased).map(|(key, _)| (*key, None)).chain(units)
    }
}
