//! Between the journal and the descriptors at rest: loading, checkpoints, eviction, and the end of a replay.
//!
//! # Invariants
//! - Units that leave RAM can be loaded again.
//! - Records are only copied forward, never into a segment that is freed before the one that they come from.
//! - During a replay blocks have no owners: none is allocated or released. At its end every used block has one.

use std::ops::Bound;

use types::wire::Last;
use types::{Epoch, GroupId, ObjectId, Seq, StripeKey, cost};

use super::{LogEntry, SlotCore, SlotGroup, Stamp, Unit};
use crate::descriptor::Descriptor;
use crate::journal::Position;
use crate::record::{Configured, Floor, PrepareRecord, Snapshot};
use crate::space::Run;
use crate::table::Change;

/// A record to be copied to the end of the journal.
#[derive(Debug)]
pub(crate) struct LiveRecord {
    pub(crate) record: PrepareRecord,
    pub(crate) position: Position,
}

impl SlotCore {
    /// Whether a unit's state is in RAM.
    pub(crate) fn is_resident(&self, key: StripeKey) -> bool {
        self.units.contains_key(&key) || self.erased.contains_key(&key)
    }

    /// Whether a unit is erased while its descriptor is still at rest.
    pub(crate) fn is_erased(&self, key: StripeKey) -> bool {
        self.erased.contains_key(&key)
    }

    /// Stripes of an object, from `from` on, whose units are in RAM: ascending, at most `max`.
    pub(crate) fn stripes_of(&self, object: ObjectId, from: u64, max: usize) -> Vec<StripeKey> {
        let range = StripeKey { object, stripe: from }..=StripeKey { object, stripe: u64::MAX };
        self.units.range(range).map(|(key, _)| *key).take(max).collect()
    }

    /// Number of units whose descriptors at rest are no longer needed.
    pub(crate) fn erased(&self) -> usize {
        self.erased.len()
    }

    /// Changes that remove the descriptors of erased units, at most `max`.
    pub(crate) fn erasures(&self, max: usize) -> Vec<Change> {
        // They stay in `erased` until written, so that nobody loads them meanwhile: see `erased_written`.
        self.erased
            .keys()
            .take(max)
            .map(|key| Change { key: *key, descriptor: None, is_new: false })
            .collect()
    }

    /// A counter that grows whenever a unit's state leaves RAM: a descriptor that was read before that may be older.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Takes a descriptor into RAM, unless newer state has arrived meanwhile.
    pub(crate) fn loaded(&mut self, descriptor: Descriptor) {
        if self.is_resident(descriptor.key) {
            return;
        }
        let mut unit = Unit::new(descriptor.group, descriptor.slot);
        unit.base = Some(descriptor.base);
        unit.at_rest = true;
        let key = descriptor.key;
        self.units.insert(key, unit);
        self.check_unit(key);
    }

    /// Forgets clean units until at most `max` are resident. They can be loaded again.
    pub(crate) fn evict(&mut self, max: usize) {
        let excess = self.units.len().saturating_sub(max);
        if excess == 0 {
            return;
        }
        let clean = cost::walked(&self.units).filter(|(_, unit)| unit.is_clean()).map(|(key, _)| *key);
        let victims: Vec<StripeKey> = clean.take(excess + max / 8).collect();
        victims.iter().for_each(|key| {
            let unit = self.units.remove(key);
            assert!(
                unit.is_none_or(|unit| unit.at_rest),
                "the place of the unit would be lost: it would read as zeros"
            );
        });
        self.evictions += 1;
    }

    /// Units in RAM.
    pub(crate) fn resident_units(&self) -> usize {
        self.units.len()
    }

    /// Units in RAM, and overlays in the journal. Looks at all of them.
    pub(crate) fn resident(&self) -> (usize, usize) {
        cost::entries(self.units.len());
        (self.units.len(), self.units.values().map(|unit| unit.overlays.len()).sum())
    }

    /// Units that have no descriptor at rest yet. Looks at all units in RAM.
    pub(crate) fn new_units(&self) -> usize {
        self.units.values().filter(|unit| !unit.at_rest).count()
    }

    /// Changes of descriptors whose records lie in segments up to `serial`, at most `max`, of units above `after`, which
    /// becomes the last one that was looked at; `None` when all were, and the erased ones. From now on the units count as
    /// clean: the caller must write and sync the changes before it frees a segment; if that fails, the brick is lost.
    pub(crate) fn take_changes(
        &mut self,
        serial: u64,
        max: usize,
        after: &mut Option<StripeKey>,
    ) -> Vec<Change> {
        assert!(!self.replaying, "a descriptor would have the state of only a part of the journal");
        let mut changes = Vec::new();
        let above = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        for (key, unit) in cost::walked(self.units.range_mut(above)) {
            if changes.len() >= max {
                return changes;
            }
            *after = Some(*key);
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
                let is_new = !std::mem::replace(&mut unit.at_rest, descriptor.is_some());
                if unit.pending.is_empty() {
                    self.unplaced.remove(key);
                }
                changes.push(Change { key: *key, descriptor, is_new });
            }
        }
        let erased: Vec<StripeKey> =
            cost::walked(&self.erased).filter(|(_, at)| **at <= serial).map(|(key, _)| *key).collect();
        // More of them come with the next pass.
        for key in erased.into_iter().take(max - changes.len().min(max)) {
            // Stays in `erased` until written, so that nobody loads it meanwhile: see `erased_written`.
            changes.push(Change { key, descriptor: None, is_new: false });
        }
        assert!(changes.len() <= max, "more pages would be written between two syncs than a crash may tear");
        *after = None;
        changes
    }

    /// Forgets empty units once the records of their earlier operations have left the journal. `oldest` is the serial of
    /// the first segment that a replay would read.
    pub(crate) fn drop_tombstones(&mut self, oldest: u64) {
        let gone = |unit: &Unit| {
            let idle = unit.dirty.is_none() && unit.pending.is_empty() && unit.overlays.is_empty();
            idle && unit.is_empty() && unit.emptied < oldest
        };
        cost::entries(self.units.len());
        let erased = &mut self.erased;
        self.units.retain(|key, unit| {
            if gone(unit) && unit.at_rest {
                erased.insert(*key, 0);
            }
            !gone(unit)
        });
    }

    /// The descriptor of an erased unit was removed from its page.
    pub(crate) fn erased_written(&mut self, key: StripeKey) {
        self.erased.remove(&key);
        self.evictions += 1;
    }

    /// Approximate bytes of RAM of overlays.
    pub(crate) fn overlay_bytes(&self) -> usize {
        self.overlay_bytes
    }

    fn entries_upto(&self, serial: u64) -> impl Iterator<Item = (StripeKey, &LogEntry)> {
        let entries = cost::walked(&self.units).flat_map(|(key, unit)| {
            unit.pending.values().chain(unit.overlays.values()).map(|entry| (*key, &**entry))
        });
        entries.filter(move |(_, entry)| entry.serial <= serial)
    }

    /// Operations whose records in segments up to `serial` are still needed.
    pub(crate) fn live_records(&self, serial: u64) -> Vec<(StripeKey, Seq)> {
        self.entries_upto(serial).map(|(key, entry)| (key, entry.record.seq)).collect()
    }

    /// Approximate bytes of these records in the journal.
    pub(crate) fn live_bytes(&self, serial: u64) -> u64 {
        self.entries_upto(serial).map(|(_, entry)| u64::from(entry.position.len) + 256).sum()
    }

    /// The record of an operation, if it is still needed.
    pub(crate) fn live_record(&self, key: StripeKey, seq: Seq) -> Option<LiveRecord> {
        let unit = self.units.get(&key)?;
        let entry = unit.pending.get(&seq).or_else(|| unit.overlays.get(&seq))?;
        Some(LiveRecord { record: entry.record.clone(), position: entry.position })
    }

    /// Whether an operation is still needed: it may have been folded or aborted while its bytes were read.
    pub(crate) fn is_record_live(&self, key: StripeKey, seq: Seq) -> bool {
        self.units
            .get(&key)
            .is_some_and(|unit| unit.pending.contains_key(&seq) || unit.overlays.contains_key(&seq))
    }

    /// An operation's record now stands elsewhere in the journal.
    pub(crate) fn relocated(&mut self, key: StripeKey, seq: Seq, position: Position, stamp: Stamp) {
        let Some(unit) = self.units.get_mut(&key) else { return };
        for entry in [unit.pending.get_mut(&seq), unit.overlays.get_mut(&seq)].into_iter().flatten() {
            assert!(
                stamp.serial >= entry.serial,
                "the copy would be freed before the record, and the operation with it"
            );
            entry.position = position;
            entry.serial = stamp.serial;
        }
    }

    /// Groups whose snapshot, or seen writes since then, stand in segments up to `serial`.
    pub(crate) fn stale_groups(&self, serial: u64) -> Vec<GroupId> {
        let stale = |group: &SlotGroup| group.snapshot_serial.min(group.windows_serial) <= serial;
        cost::walked(&self.groups).filter(|(_, group)| stale(group)).map(|(id, _)| *id).collect()
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

    /// What stands behind the snapshot of a group: its configuration, and its floor.
    pub(crate) fn beside_snapshot(&self, id: GroupId) -> (Option<Configured>, Option<Floor>) {
        let Some(group) = self.groups.get(&id) else { return (None, None) };
        let config = group.config.clone().map(|config| Configured { group: id, config: Last(config) });
        let floor = (group.floor > Epoch(0)).then_some(Floor { group: id, floor: group.floor });
        (config, floor)
    }

    /// The state of a group now stands in a snapshot.
    pub(crate) fn snapshotted(&mut self, id: GroupId, stamp: Stamp) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.note_snapshot(stamp.serial);
        }
    }

    /// Fulls and Patches that a replay found without a decision, with the numbers of their records. If a record is
    /// not known to be synced, the bytes must be checked, because record and bytes went to the disk in no particular
    /// order.
    pub(crate) fn undecided_units(&self) -> Vec<(PrepareRecord, u64)> {
        let held = self.groups.values().flat_map(|group| &group.held);
        let pending = held.filter_map(|(seq, key)| self.units.get(key)?.pending.get(seq));
        pending.map(|entry| (entry.record.clone(), entry.lsn)).collect()
    }

    /// Drops a held Full or Patch whose bytes did not survive the crash: it was never acknowledged.
    pub(crate) fn apply_torn(&mut self, id: GroupId, seq: Seq, stamp: Stamp) {
        assert!(self.replaying, "a running brick would drop an operation that it has acknowledged");
        let key = self.groups.get_mut(&id).and_then(|group| group.held.remove(&seq));
        if let Some(key) = key {
            assert!(
                seq > self.decided(id),
                "a decided operation would be gone on this slot and nowhere else"
            );
            self.abort(key, seq, stamp);
        }
    }

    /// Ends the replay, after [`mark_at_rest`](SlotCore::mark_at_rest) of all units that are not in RAM: from now on
    /// blocks have owners. `serial` is that of the newest segment.
    pub(crate) fn replayed(&mut self, serial: u64) {
        assert!(self.replaying, "a replay ends once");
        assert!(
            self.released.is_empty() && self.in_flight.is_empty() && self.staged.blocks == 0,
            "blocks would be released that nobody has marked as used"
        );
        self.replaying = false;
        cost::entries(self.units.len());
        let mut overlay_bytes = 0;
        for unit in self.units.values_mut() {
            assert!(
                unit.dirty.is_none_or(|dirty| dirty <= serial),
                "checkpoints would skip the unit and free the segment that has it"
            );
            overlay_bytes += unit.overlays.values().map(|entry| entry.weight()).sum::<usize>();
            unit.emptied = serial;
            let pending = unit.pending.values().flat_map(|entry| &entry.record.fresh);
            unit.base.iter().flat_map(|base| &base.runs).chain(pending).for_each(|run| self.space.mark(run));
        }
        assert_eq!(self.overlay_bytes, overlay_bytes, "writers would wait for RAM that is free");
    }

    /// Marks the blocks of a unit that is at rest and not in RAM as used.
    pub(crate) fn mark_at_rest(&mut self, runs: &[Run]) {
        assert!(self.replaying, "blocks that may have been given out since would get a second owner");
        runs.iter().for_each(|run| self.space.mark(run));
    }

    /// Blocks that are referenced from RAM, and the number of blocks that are free now.
    #[cfg(test)]
    pub(crate) fn owned_in_ram(&self) -> (Vec<Run>, u64) {
        let pending = |unit: &Unit| {
            unit.pending.values().flat_map(|entry| entry.record.fresh.clone()).collect::<Vec<_>>()
        };
        let base = |unit: &Unit| unit.base.iter().flat_map(|base| base.runs.clone()).collect::<Vec<_>>();
        let owned = self.units.values().flat_map(|unit| [base(unit), pending(unit)].concat());
        (owned.collect(), self.space.free())
    }

    /// Stripes of some groups with overlays, at most `max`, each with its group. Those whose oldest overlay has been
    /// in the journal for longest come first; among equals, those with the most overlays.
    pub(crate) fn overlaid(&self, of: impl Fn(GroupId) -> bool, max: usize) -> Vec<(StripeKey, GroupId)> {
        let units = cost::walked(&self.units).filter(|(_, unit)| !unit.overlays.is_empty() && of(unit.group));
        let overlaid = units.filter_map(|(key, unit)| {
            let oldest = unit.overlays.values().map(|entry| entry.serial).min()?;
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

    /// Stripes above `after` with overlays from before an epoch of their group, if `epoch` names one, in the order of
    /// their keys, at most `max`. Overlays that a write with an unknown decision would hide are left out.
    pub(crate) fn overlaid_before(
        &self,
        epoch: impl Fn(GroupId) -> Option<Epoch>,
        after: Option<StripeKey>,
        max: usize,
    ) -> Vec<(StripeKey, GroupId)> {
        let above = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let units = cost::walked(self.units.range(above)).filter(|(_, unit)| !unit.overlays.is_empty());
        let overlaid = units.filter(|(_, unit)| {
            let hiding = unit.pending.last_key_value().map(|(seq, _)| *seq);
            let hiding = hiding.or(unit.base.as_ref().map(|base| base.identity)).unwrap_or(Seq::NONE);
            let oldest = unit.overlays.range(hiding.next()..).next();
            oldest.is_some_and(|(seq, _)| epoch(unit.group).is_some_and(|epoch| seq.epoch() < epoch))
        });
        overlaid.map(|(key, unit)| (*key, unit.group)).take(max).collect()
    }
}
