//! Staged units: clients have put them on this brick before their operation is ordered.
//!
//! Nothing durable refers to them: their blocks are free as soon as the entry is dropped, and a restart forgets them.
//! An entry lives until an operation takes it, its object is dropped, its group gets a new epoch, or it is too old.
//!
//! # Invariants
//! - Blocks allocated for staging are counted until an operation takes them or they are freed.
//! - Every block of a unit has its checksum from the allocation on.
//! - Staged and coming units stay within the limits.

use std::collections::BTreeMap;

use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{OpKind, Prepare, Stage};
use types::{ClientId, ClientSeq, Epoch, GroupId, ObjectId, Refusal, StripeKey};

use super::patch::blocks_of;
use super::{PrepareStep, SlotCore};
use crate::descriptor::descriptor_max;
use crate::space::Run;
use crate::table::class_for;

/// How long a unit waits for its operation, in microseconds.
pub(crate) const STAGED_US: u64 = 10_000_000;
/// Most bytes that wait on a brick.
const STAGED_BYTES_MAX: u64 = 64 << 20;
/// Most units that wait on a brick.
const STAGED_MAX: usize = 4096;

/// Identifies a staged unit: client, write and stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct StagedId {
    key: StripeKey,
    client: ClientId,
    seq: ClientSeq,
}

/// A unit that waits for its operation.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct Entry {
    group: GroupId,
    slot: u8,
    since: u64,
    unit: StagedUnit,
}

/// Where a unit's bytes lie, and their checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StagedUnit {
    pub(crate) runs: Vec<Run>,
    pub(crate) crcs: Vec<u32>,
}

/// All units that wait.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(super) struct Staged {
    entries: BTreeMap<StagedId, Entry>,
    /// Blocks of the entries, and of those whose bytes are being written.
    pub(super) blocks: u64,
    in_flight: usize,
}

impl Staged {
    /// What must hold between two calls.
    fn check(&self) {
        assert!(
            self.blocks == 0 || self.in_flight > 0 || !self.entries.is_empty(),
            "blocks would wait for an operation that does not exist"
        );
        assert!(
            self.blocks * BLOCK as u64 <= STAGED_BYTES_MAX,
            "clients could fill the brick without writing"
        );
        assert!(
            self.entries.len() + self.in_flight <= STAGED_MAX,
            "clients could fill the RAM without writing"
        );
    }

    /// The attempt to stage a unit has ended.
    fn arrived(&mut self) {
        assert!(self.in_flight > 0, "a unit would be staged or given up without an allocation");
        self.in_flight -= 1;
    }

    /// The blocks of a unit are no longer staged.
    fn uncount(&mut self, runs: &[Run]) {
        let blocks = blocks_of(runs);
        assert!(
            blocks <= self.blocks,
            "staged units would seem to take all space, and none would be accepted"
        );
        self.blocks -= blocks;
    }
}

impl SlotCore {
    /// Finds fresh space for a unit to be staged and leaves `reserve` blocks free. The caller writes the bytes there,
    /// then calls [`SlotCore::stage`] or [`SlotCore::unstage`].
    pub(crate) fn room_for_stage(
        &mut self,
        epoch: Epoch,
        stage: &Stage,
        reserve: u64,
    ) -> Result<Vec<Run>, Refusal> {
        self.check_stage(epoch, stage)?;
        let blocks = stage.crcs.len() as u64;
        let many = self.staged.entries.len() + self.staged.in_flight >= STAGED_MAX;
        let much = (self.staged.blocks + blocks) * BLOCK as u64 > STAGED_BYTES_MAX;
        if many || much || self.space.free() < blocks + reserve {
            return Err(Refusal::NoSpace);
        }
        let runs = self.allocate(stage.crcs.len() as u32)?;
        self.staged.blocks += blocks;
        self.staged.in_flight += 1;
        self.staged.check();
        Ok(runs)
    }

    fn check_stage(&self, epoch: Epoch, stage: &Stage) -> Result<(), Refusal> {
        self.check_epoch(stage.group, epoch)?;
        if self.dropped.contains(&stage.key.object) { Err(Refusal::ObjectRemoved) } else { Ok(()) }
    }

    /// The bytes of a unit are written: it is staged from now on, unless it has come too late.
    pub(crate) fn stage(
        &mut self,
        epoch: Epoch,
        stage: &Stage,
        runs: Vec<Run>,
        now: u64,
    ) -> Result<(), Refusal> {
        if let Err(refusal) = self.check_stage(epoch, stage) {
            self.unstage(&runs);
            return Err(refusal);
        }
        assert_eq!(
            blocks_of(&runs),
            stage.crcs.len() as u64,
            "a block would be compared with the wrong checksum, or with none"
        );
        self.staged.arrived();
        let id = StagedId { key: stage.key, client: stage.client, seq: stage.seq };
        let unit = StagedUnit { runs, crcs: stage.crcs.clone() };
        let entry = Entry { group: stage.group, slot: stage.slot, since: now, unit };
        if let Some(older) = self.staged.entries.insert(id, entry) {
            self.free_staged(&older.unit.runs);
        }
        self.staged.check();
        Ok(())
    }

    /// The bytes of a unit could not be written.
    pub(crate) fn unstage(&mut self, runs: &[Run]) {
        self.staged.arrived();
        self.free_staged(runs);
        self.staged.check();
    }

    fn free_staged(&mut self, runs: &[Run]) {
        self.staged.uncount(runs);
        runs.iter().for_each(|run| self.space.release(run));
    }

    /// Turns the staged unit of this operation into a coming one.
    pub(super) fn take_staged(&mut self, p: &Prepare, places: usize) -> Result<PrepareStep, Refusal> {
        let blocks = p.unit_blocks.iter().max().copied().unwrap_or(0);
        let class = class_for(descriptor_max(blocks, p.unit_blocks.len()));
        if places == 0 && self.needs_place(p.key, class) {
            return Err(Refusal::NoSpace);
        }
        let id = staged_id(p).ok_or(Refusal::Malformed)?;
        let fits = |entry: &Entry| {
            entry.group == p.group && entry.slot == p.slot && entry.unit.crcs.len() == blocks as usize
        };
        if !self.staged.entries.get(&id).is_some_and(fits) {
            hit(CodeProbe::NotStaged);
            return Err(Refusal::NotStaged);
        }
        let entry = self
            .staged
            .entries
            .remove(&id)
            .ok_or(Refusal::NotStaged)
            .inspect_err(|_| hit(CodeProbe::NotStaged))?;
        self.staged.uncount(&entry.unit.runs);
        self.staged.check();
        assert_eq!(
            blocks_of(&entry.unit.runs),
            entry.unit.crcs.len() as u64,
            "the unit would be held with blocks that no checksum covers"
        );
        self.in_flight.insert((p.group, p.seq), entry.unit.runs.clone());
        Ok(PrepareStep::Adopt(entry.unit))
    }

    /// The operation brings its bytes along: a unit that was staged for it is dropped.
    pub(super) fn forget_staged(&mut self, p: &Prepare) {
        if p.kind == OpKind::Full
            && let Some(id) = staged_id(p)
            && let Some(entry) = self.staged.entries.remove(&id)
        {
            self.free_staged(&entry.unit.runs);
        }
    }

    /// Drops units that have waited since before `since`.
    pub(crate) fn drop_staged_before(&mut self, since: u64) {
        let before = self.staged.entries.len();
        self.drop_staged(|_, entry| entry.since < since);
        if self.staged.entries.len() < before {
            hit(CodeProbe::StageDropped);
        }
    }

    /// Drops the staged units of a group that has a new epoch.
    pub(super) fn drop_staged_of_group(&mut self, group: GroupId) {
        self.drop_staged(|_, entry| entry.group == group);
    }

    /// Drops the staged units of an object that is gone.
    pub(super) fn drop_staged_of_object(&mut self, object: ObjectId) {
        self.drop_staged(|id, _| id.key.object == object);
    }

    fn drop_staged(&mut self, mut which: impl FnMut(&StagedId, &Entry) -> bool) {
        let dropped: Vec<Entry> = self
            .staged
            .entries
            .extract_if(.., |id, entry| which(id, entry))
            .map(|(_, entry)| entry)
            .collect();
        dropped.iter().for_each(|entry| self.free_staged(&entry.unit.runs));
        self.staged.check();
    }
}

/// The id under which the unit of an operation was staged: such an operation carries one write.
fn staged_id(p: &Prepare) -> Option<StagedId> {
    let [origin] = p.origins.as_slice() else { return None };
    Some(StagedId { key: p.key, client: origin.client, seq: origin.seq })
}
