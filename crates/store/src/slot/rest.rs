//! Between the journal and the descriptors at rest: loading, checkpoints, eviction, and the end of a replay.

use std::ops::Bound;

use types::{Epoch, GroupId, ObjectId, Seq, StripeKey};

use super::{Kept, SlotCore, SlotGroup, Stamp, Unit};
use crate::descriptor::Descriptor;
use crate::journal::Position;
use crate::record::{Hold, Snapshot};
use crate::space::Run;
use crate::table::Change;

/// A record to be copied to the end of the journal.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) hold: Hold,
    pub(crate) position: Position,
}

impl SlotCore {
    /// Whether a unit's state is in RAM.
    pub(crate) fn is_resident(&self, key: StripeKey) -> bool {
        self.units.contains_key(&key) || self.erased.contains_key(&key)
    }

    /// The stripe behind the last one of an object whose unit is in RAM.
    pub(crate) fn end_of(&self, object: ObjectId) -> u64 {
        let last = StripeKey { object, stripe: u64::MAX };
        let found = self.units.range(StripeKey { object, stripe: 0 }..=last).next_back();
        found.map_or(0, |(key, _)| key.stripe + 1)
    }

    /// Whether descriptors are at rest that are no longer needed.
    pub(crate) fn has_erased(&self) -> bool {
        !self.erased.is_empty()
    }

    /// Changes whenever a unit's state leaves RAM: what was read from the descriptors before may be older.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes in what was found at rest, unless something newer has come meanwhile.
    pub(crate) fn loaded(&mut self, descriptor: Descriptor) {
        if self.is_resident(descriptor.key) {
            return;
        }
        let mut unit = Unit::new(descriptor.group, descriptor.slot);
        unit.base = Some(descriptor.base);
        unit.at_rest = true;
        self.units.insert(descriptor.key, unit);
    }

    /// Forgets clean units until at most `max` are resident. They can be loaded again.
    pub(crate) fn evict(&mut self, max: usize) {
        let excess = self.units.len().saturating_sub(max);
        if excess == 0 {
            return;
        }
        let clean = self.units.iter().filter(|(_, unit)| unit.is_clean()).map(|(key, _)| *key);
        let victims: Vec<StripeKey> = clean.take(excess + max / 8).collect();
        victims.iter().for_each(|key| {
            self.units.remove(key);
        });
        self.forgotten += 1;
    }

    /// Units in RAM.
    pub(crate) fn resident_units(&self) -> usize {
        self.units.len()
    }

    /// Units in RAM, and overlays in the journal. Looks at all of them.
    pub(crate) fn resident(&self) -> (usize, usize) {
        (self.units.len(), self.units.values().map(|unit| unit.overlays.len()).sum())
    }

    /// Changes of descriptors whose records lie in segments up to `serial`, at most `max`. Their units count as clean
    /// from here on: the caller writes and syncs them before it frees a segment, or the brick is lost. `oldest` is the
    /// serial of the first segment that a replay would read.
    pub(crate) fn take_changes(&mut self, serial: u64, oldest: u64, max: usize) -> Vec<Change> {
        self.bury(oldest);
        let mut changes = Vec::new();
        for (key, unit) in &mut self.units {
            if changes.len() >= max {
                return changes;
            }
            if unit.dirty.is_none_or(|dirty| dirty > serial) {
                continue;
            }
            unit.dirty = None;
            let descriptor = unit.base.clone().map(|base| Descriptor {
                key: *key,
                group: unit.group,
                slot: unit.slot,
                base,
            });
            if descriptor.is_some() || unit.at_rest {
                unit.at_rest = descriptor.is_some();
                if unit.pend.is_empty() {
                    self.unplaced.remove(key);
                }
                changes.push(Change { key: *key, descriptor });
            }
        }
        let erased: Vec<StripeKey> =
            self.erased.iter().filter(|(_, at)| **at <= serial).map(|(key, _)| *key).collect();
        for key in erased.into_iter().take(max - changes.len().min(max)) {
            // Stays in `erased` until written, so that nobody loads it meanwhile: see `erased_written`.
            changes.push(Change { key, descriptor: None });
        }
        changes
    }

    /// Forgets empty units whose past has left the journal.
    fn bury(&mut self, oldest: u64) {
        let gone = |unit: &Unit| {
            let idle = unit.dirty.is_none() && unit.pend.is_empty() && unit.overlays.is_empty();
            idle && unit.is_empty() && unit.emptied < oldest
        };
        let erased = &mut self.erased;
        self.units.retain(|key, unit| {
            if gone(unit) && unit.at_rest {
                erased.insert(*key, 0);
            }
            !gone(unit)
        });
    }

    /// The descriptor of an erased unit is gone from its page.
    pub(crate) fn erased_written(&mut self, key: StripeKey) {
        self.erased.remove(&key);
        self.forgotten += 1;
    }

    /// Bytes of RAM that overlays take, about.
    pub(crate) fn overlay_bytes(&self) -> usize {
        self.overlay_bytes
    }

    fn kept_upto(&self, serial: u64) -> impl Iterator<Item = (StripeKey, &Kept)> {
        let kept = self.units.iter().flat_map(|(key, unit)| {
            unit.pend.values().chain(unit.overlays.values()).map(|kept| (*key, &**kept))
        });
        kept.filter(move |(_, kept)| kept.serial <= serial)
    }

    /// Operations whose records lie in segments up to `serial` and are still needed.
    pub(crate) fn forwards(&self, serial: u64) -> Vec<(StripeKey, Seq)> {
        self.kept_upto(serial).map(|(key, kept)| (key, kept.hold.seq)).collect()
    }

    /// About how many bytes of the journal they take.
    pub(crate) fn forward_bytes(&self, serial: u64) -> u64 {
        self.kept_upto(serial).map(|(_, kept)| u64::from(kept.position.len) + 256).sum()
    }

    /// The record of an operation, if it is still needed.
    pub(crate) fn forward(&self, key: StripeKey, seq: Seq) -> Option<Forward> {
        let unit = self.units.get(&key)?;
        let kept = unit.pend.get(&seq).or_else(|| unit.overlays.get(&seq))?;
        Some(Forward { hold: kept.hold.clone(), position: kept.position })
    }

    /// Whether an operation is still needed: it may have been folded or aborted while its bytes were read.
    pub(crate) fn is_kept(&self, key: StripeKey, seq: Seq) -> bool {
        self.units
            .get(&key)
            .is_some_and(|unit| unit.pend.contains_key(&seq) || unit.overlays.contains_key(&seq))
    }

    /// An operation's record now stands elsewhere in the journal.
    pub(crate) fn forwarded(&mut self, key: StripeKey, seq: Seq, position: Position, stamp: Stamp) {
        let Some(unit) = self.units.get_mut(&key) else { return };
        for kept in [unit.pend.get_mut(&seq), unit.overlays.get_mut(&seq)].into_iter().flatten() {
            kept.position = position;
            kept.serial = stamp.serial;
        }
    }

    /// Groups whose state stands in segments up to `serial`.
    pub(crate) fn stale_groups(&self, serial: u64) -> Vec<GroupId> {
        let stale = |group: &SlotGroup| group.since.min(group.told) <= serial;
        self.groups.iter().filter(|(_, group)| stale(group)).map(|(id, _)| *id).collect()
    }

    /// The state of a group as a record.
    pub(crate) fn snapshot(&self, id: GroupId) -> Option<Snapshot> {
        let group = self.groups.get(&id)?;
        Some(Snapshot {
            group: id,
            promised: group.promised,
            served: group.served.unwrap_or_default(),
            decided: group.decided,
            aborted: group.aborted.clone(),
            windows: group.windows(),
        })
    }

    /// The state of a group now stands in a snapshot.
    pub(crate) fn snapshotted(&mut self, id: GroupId, stamp: Stamp) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.stands(stamp.serial);
        }
    }

    /// Full writes and patches that a replay found without their decision, with the numbers of their records: if those
    /// are not known to be synced, the bytes must be checked, because both went to the disk in no particular order.
    pub(crate) fn undecided_units(&self) -> Vec<(Hold, u64)> {
        let held = self.groups.values().flat_map(|group| &group.held);
        let pend = held.filter_map(|(seq, key)| self.units.get(key)?.pend.get(seq));
        pend.map(|kept| (kept.hold.clone(), kept.lsn)).collect()
    }

    /// A held full write whose bytes did not survive: it was never acknowledged, and is not held.
    pub(crate) fn apply_torn(&mut self, id: GroupId, seq: Seq, stamp: Stamp) {
        let key = self.groups.get_mut(&id).and_then(|group| group.held.remove(&seq));
        if let Some(key) = key {
            self.abort(key, seq, stamp);
        }
    }

    /// Ends the replay: from here on blocks have owners. `at_rest` are the runs of units that are not resident,
    /// `serial` is that of the newest segment.
    pub(crate) fn replayed(&mut self, at_rest: impl IntoIterator<Item = Run>, serial: u64) {
        assert!(self.replaying, "a replay ends once");
        self.replaying = false;
        at_rest.into_iter().for_each(|run| self.space.mark(&run));
        for unit in self.units.values_mut() {
            unit.emptied = serial;
            let pend = unit.pend.values().flat_map(|kept| &kept.hold.fresh);
            unit.base.iter().flat_map(|base| &base.runs).chain(pend).for_each(|run| self.space.mark(run));
        }
    }

    /// Blocks that something in RAM refers to, and how many are free at once.
    #[cfg(test)]
    pub(crate) fn owned_in_ram(&self) -> (Vec<Run>, u64) {
        let pend =
            |unit: &Unit| unit.pend.values().flat_map(|kept| kept.hold.fresh.clone()).collect::<Vec<_>>();
        let base = |unit: &Unit| unit.base.iter().flat_map(|base| base.runs.clone()).collect::<Vec<_>>();
        let owned = self.units.values().flat_map(|unit| [base(unit), pend(unit)].concat());
        (owned.collect(), self.space.free())
    }

    /// Stripes of some groups with overlays, at most `max`, each with its group: those first whose oldest overlay has
    /// been in the journal for longest, and of those the ones with most.
    pub(crate) fn overlaid(&self, of: impl Fn(GroupId) -> bool, max: usize) -> Vec<(StripeKey, GroupId)> {
        let units = self.units.iter().filter(|(_, unit)| !unit.overlays.is_empty() && of(unit.group));
        let overlaid = units.filter_map(|(key, unit)| {
            let oldest = unit.overlays.values().map(|kept| kept.serial).min()?;
            Some((oldest, std::cmp::Reverse(unit.overlays.len()), *key, unit.group))
        });
        let mut overlaid: Vec<_> = overlaid.collect();
        if overlaid.len() > max {
            overlaid.select_nth_unstable(max);
            overlaid.truncate(max);
        }
        overlaid.sort_unstable();
        overlaid.into_iter().map(|(_, _, key, group)| (key, group)).collect()
    }

    /// Stripes above `after` with overlays from before an epoch of their group, if `epoch` tells one, in the order of
    /// their keys, at most `max`. What is to be hidden by a write whose decision is not known yet is left out.
    pub(crate) fn overlaid_before(
        &self,
        epoch: impl Fn(GroupId) -> Option<Epoch>,
        after: Option<StripeKey>,
        max: usize,
    ) -> Vec<(StripeKey, GroupId)> {
        let above = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let units = self.units.range(above).filter(|(_, unit)| !unit.overlays.is_empty());
        let overlaid = units.filter(|(_, unit)| {
            let hiding = unit.pend.last_key_value().map(|(seq, _)| *seq);
            let hiding = hiding.or(unit.base.as_ref().map(|base| base.identity)).unwrap_or(Seq::NONE);
            let oldest = unit.overlays.range(hiding.next()..).next();
            oldest.is_some_and(|(seq, _)| epoch(unit.group).is_some_and(|epoch| seq.epoch() < epoch))
        });
        overlaid.map(|(key, unit)| (*key, unit.group)).take(max).collect()
    }
}
