//! Units that clients have laid on this brick before their operation is ordered.
//!
//! Nothing durable refers to them: their blocks are free again as soon as the entry is dropped, and after a restart
//! nobody remembers. An entry lives until an operation takes it, its object or epoch is gone, or it is too old.

use std::collections::BTreeMap;

use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::brick::{OpKind, Prepare, Stage};
use types::{ClientId, ClientSeq, Epoch, GroupId, ObjectId, Refusal, StripeKey};

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

/// Which write of whom, of which stripe.
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

fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.blocks)).sum()
}

impl SlotCore {
    /// Finds fresh space for a unit to be staged, `reserve` blocks left alone: its caller writes the bytes there, then
    /// calls [`SlotCore::stage`] or [`SlotCore::unstage`].
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
        let runs = self.space.allocate(stage.crcs.len() as u32).ok_or(Refusal::NoSpace)?;
        self.staged.blocks += blocks;
        self.staged.in_flight += 1;
        Ok(runs)
    }

    fn check_stage(&self, epoch: Epoch, stage: &Stage) -> Result<(), Refusal> {
        self.check_epoch(stage.group, epoch)?;
        if self.dropped.contains(&stage.key.object) { Err(Refusal::ObjectRemoved) } else { Ok(()) }
    }

    /// The bytes of a unit are written: it waits for its operation from now on, unless it has come too late.
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
        self.staged.in_flight -= 1;
        let id = StagedId { key: stage.key, client: stage.client, seq: stage.seq };
        let unit = StagedUnit { runs, crcs: stage.crcs.clone() };
        let entry = Entry { group: stage.group, slot: stage.slot, since: now, unit };
        if let Some(older) = self.staged.entries.insert(id, entry) {
            self.free_staged(&older.unit.runs);
        }
        Ok(())
    }

    /// The bytes of a unit could not be written.
    pub(crate) fn unstage(&mut self, runs: &[Run]) {
        self.staged.in_flight -= 1;
        self.free_staged(runs);
    }

    fn free_staged(&mut self, runs: &[Run]) {
        self.staged.blocks -= blocks_of(runs);
        runs.iter().for_each(|run| self.space.release(run));
    }

    /// Makes the unit that waits for this operation the one that is coming.
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
        self.staged.blocks -= blocks_of(&entry.unit.runs);
        self.in_flight.insert((p.group, p.seq), entry.unit.runs.clone());
        Ok(PrepareStep::Adopt(entry.unit))
    }

    /// An operation brings its bytes along: what may have been staged for it is of no use.
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
        self.drop_staged(|_, entry| entry.since < since);
    }

    /// A group has a new epoch.
    pub(super) fn drop_staged_of_group(&mut self, group: GroupId) {
        self.drop_staged(|_, entry| entry.group == group);
    }

    /// An object is gone.
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
    }
}

/// What the unit of an operation was staged as: it carries one write.
fn staged_id(p: &Prepare) -> Option<StagedId> {
    let [origin] = p.origins.as_slice() else { return None };
    Some(StagedId { key: p.key, client: origin.client, seq: origin.seq })
}
