//! A slot is brought level: units that it is given, or has to forget, whatever it had before.

use types::limits::{BLOCK, UNIT_MAX};
use types::messages::brick::{Fill, OpKind};
use types::{Epoch, Refusal, Seq, StripeKey};

use super::{SlotCore, Stamp};
use crate::descriptor::descriptor_max;
use crate::record::{Forget, PrepareRecord};
use crate::space::Run;
use crate::table::class_for;

/// What to do with a `Fill`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FillStep {
    /// Write the bytes to these runs, sync them, append the record, then [`SlotCore::apply_prepare`].
    Write(Vec<Run>),
    /// The base has this identity already.
    Held,
    /// Append the record, then [`SlotCore::apply_forget`].
    Forget,
}

impl SlotCore {
    /// Decides about a unit that a primary gives. `places` is how many more descriptors find room.
    pub(crate) fn fill(
        &mut self,
        epoch: Epoch,
        fill: &Fill,
        payload: usize,
        places: usize,
    ) -> Result<FillStep, Refusal> {
        self.check_fill(epoch, fill)?;
        if fill.base == Seq::NONE {
            return if payload == 0 { Ok(FillStep::Forget) } else { Err(Refusal::Malformed) };
        }
        let blocks = payload / BLOCK;
        let whole = payload.is_multiple_of(BLOCK) && payload > 0 && payload <= UNIT_MAX as usize;
        if !whole || fill.crcs.len() != blocks {
            return Err(Refusal::Malformed);
        }
        if self.base_of(fill) == Some(fill.base) {
            return Ok(FillStep::Held);
        }
        let class = class_for(descriptor_max(blocks as u32, fill.unit_blocks.len()));
        if places == 0 && self.needs_place(fill.key, class) {
            return Err(Refusal::NoSpace);
        }
        // The same unit, given twice: the first one has not ended.
        if self.in_flight.contains_key(&(fill.group, fill.base)) {
            return Err(Refusal::NotServing);
        }
        let runs = self.space.allocate(blocks as u32).ok_or(Refusal::NoSpace)?;
        self.in_flight.insert((fill.group, fill.base), runs.clone());
        Ok(FillStep::Write(runs))
    }

    /// Whether a unit that was given may be held now. If not, its blocks are free again.
    pub(crate) fn may_fill(&mut self, epoch: Epoch, fill: &Fill) -> Result<(), Refusal> {
        self.check_fill(epoch, fill).inspect_err(|_| self.give_up(fill.group, fill.base))
    }

    fn check_fill(&self, epoch: Epoch, fill: &Fill) -> Result<(), Refusal> {
        self.check_epoch(fill.group, epoch)?;
        if fill.base != Seq::NONE && self.dropped.contains(&fill.key.object) {
            return Err(Refusal::ObjectRemoved);
        }
        // Decided at once: were it not so, it could be aborted, and a late operation from before could come on top.
        if self.decided(fill.group) < fill.decided.max(fill.base) {
            return Err(Refusal::NotServing);
        }
        match self.base_of(fill) {
            // Something newer, or another slot's, is to be forgotten first.
            Some(base) if fill.base != Seq::NONE && base > fill.base => Err(Refusal::Corrupt),
            _ => Ok(()),
        }
    }

    fn base_of(&self, fill: &Fill) -> Option<Seq> {
        let unit = self.units.get(&fill.key)?;
        // A unit of another slot counts as newer than everything.
        let base = unit.base.as_ref().map(|base| base.identity);
        if unit.slot == fill.slot { base } else { Some(Seq(u64::MAX)) }
    }

    /// Forgets a unit with everything that lies over it.
    pub(crate) fn apply_forget(&mut self, forget: &Forget, stamp: Stamp) {
        self.drop_unit(forget.key, stamp);
    }

    /// Drops a unit from RAM; its descriptor at rest goes with the next checkpoint.
    pub(super) fn drop_unit(&mut self, key: StripeKey, stamp: Stamp) {
        let Some(unit) = self.units.remove(&key) else { return };
        self.unplaced.remove(&key);
        self.overlay_bytes -= unit.overlays.values().map(|entry| entry.weight()).sum::<usize>();
        if unit.at_rest {
            self.erased.insert(key, unit.dirty.unwrap_or(stamp.serial));
        }
        if let Some(group) = self.groups.get_mut(&unit.group) {
            unit.pending.keys().chain(unit.overlays.keys()).for_each(|seq| {
                group.held.remove(seq);
            });
            group.drop_applied(key);
        }
        let pending = unit.pending.into_values().flat_map(|entry| entry.record.fresh);
        let freed = unit.base.into_iter().flat_map(|base| base.runs).chain(pending).collect();
        self.release(freed, stamp.lsn);
    }
}

/// The record of a unit that was given: a full write that was decided long ago.
///
/// A replay finds the decision before it, or with the group's state behind it; in either case it is never among the
/// undecided ones whose bytes are compared. So those must be durable before the record is written.
pub(crate) fn fill_record(fill: &Fill, runs: Vec<Run>) -> PrepareRecord {
    PrepareRecord {
        group: fill.group,
        seq: fill.base,
        key: fill.key,
        slot: fill.slot,
        kind: OpKind::Full,
        participants: 1 << fill.slot,
        spans: Vec::new(),
        base: Seq::NONE,
        blocks: fill.crcs.len() as u32,
        unit_blocks: fill.unit_blocks.clone(),
        identities: fill.identities.clone(),
        runs: runs.clone(),
        fresh: runs,
        crcs: fill.crcs.clone(),
        origins: Vec::new(),
        acked: Vec::new(),
    }
}
