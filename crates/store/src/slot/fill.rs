//! A slot that joins takes units from the primary or forgets them, whatever it had before.
//!
//! # Invariants
//! - A filled unit is decided at once, and its blocks are reserved for it until it is held or refused.
//! - A dropped unit takes its overlays with it, and frees its blocks, its weight in RAM and its place among the
//!   descriptors.

use types::limits::{BLOCK, UNIT_MAX};
use types::messages::brick::{Fill, OpKind};
use types::{Epoch, Refusal, Seq, StripeKey};

use super::{SlotCore, Stamp};
use crate::descriptor::descriptor_max;
use crate::record::{Forget, PrepareRecord};
use crate::slot::invariants::uncount;
use crate::slot::patch::blocks_of;
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
    /// Decides about a unit that a primary sends. `places` is the number of descriptors that still find room.
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
        // The same unit was sent twice, and the first attempt has not ended.
        if self.in_flight.contains_key(&(fill.group, fill.base)) {
            return Err(Refusal::NotServing);
        }
        let runs = self.allocate(blocks as u32)?;
        self.in_flight.insert((fill.group, fill.base), runs.clone());
        Ok(FillStep::Write(runs))
    }

    /// Whether a filled unit may be held now. If not, its blocks are freed.
    pub(crate) fn may_fill(&mut self, epoch: Epoch, fill: &Fill) -> Result<(), Refusal> {
        let may = self.check_fill(epoch, fill);
        assert!(
            may.is_err() || fill.base == Seq::NONE || self.in_flight.contains_key(&(fill.group, fill.base)),
            "the unit would be held in blocks that are free or belong to another one"
        );
        may.inspect_err(|_| self.give_up(fill.group, fill.base))
    }

    fn check_fill(&self, epoch: Epoch, fill: &Fill) -> Result<(), Refusal> {
        self.check_epoch(fill.group, epoch)?;
        if fill.base != Seq::NONE && self.dropped.contains(&fill.key.object) {
            return Err(Refusal::ObjectRemoved);
        }
        // The fill must be decided here. Otherwise it could be aborted, and a late earlier operation could be applied
        // over it.
        if self.decided(fill.group) < fill.decided.max(fill.base) {
            return Err(Refusal::NotServing);
        }
        match self.base_of(fill) {
            // The slot must first forget a newer unit, or one of another slot.
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

    /// Forgets a unit with its overlays.
    pub(crate) fn apply_forget(&mut self, forget: &Forget, stamp: Stamp) {
        self.drop_unit(forget.key, stamp);
    }

    /// Drops a unit from RAM. A checkpoint removes its descriptor later.
    pub(super) fn drop_unit(&mut self, key: StripeKey, stamp: Stamp) {
        let Some(unit) = self.units.remove(&key) else { return };
        self.unplaced.remove(&key);
        uncount(&mut self.overlay_bytes, unit.overlays.values().map(|entry| entry.weight()).sum());
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
        self.check_unit(key);
    }
}

/// The record of a filled unit: a Full that was decided long ago.
///
/// A replay finds the decision before this record, or in a snapshot of the group after it. In both cases the record
/// is not among the undecided ones whose bytes are compared. So the bytes must be durable before the record is
/// written.
pub(crate) fn fill_record(fill: &Fill, runs: Vec<Run>) -> PrepareRecord {
    assert_ne!(fill.base, Seq::NONE, "the unit would count as absent, and its blocks would never be freed");
    assert_eq!(
        blocks_of(&runs),
        fill.crcs.len() as u64,
        "a block would be compared with the wrong checksum, or with none"
    );
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
