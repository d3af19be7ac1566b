//! What one brick holds: the state machine of a slot.
//!
//! ```text
//! Prepare ──▶ coming ──(bytes written, record appended)──▶ held ──(Decided)──▶ base or overlay
//!                                                            └──(aborted by a take-over)──▶ gone
//! ```
//!
//! Pure: it decides, and its caller moves the bytes. A replay of the journal calls the same `apply_*` functions as
//! the running brick, so a restart rebuilds the same state.
//!
//! # Invariants
//! - The promised epoch only grows; nothing older is accepted.
//! - Decided operations of a stripe apply in the order of their numbers; a Full hides every overlay before it.
//! - A Patch merges the newest base before it with overlays, and hides both. Until it is decided they answer reads,
//!   and if it is aborted they stay.
//! - Blocks are freed only once the record that released them is durable.
//! - The blocks that are allocated for a coming operation are exactly those that it holds in the end. A replay
//!   allocates nothing.
//! - An empty base is remembered as long as the journal may hold records of operations before it: records that are
//!   copied forward may stand behind the one that emptied it.
//!
//! `invariants.rs` asserts those that can be checked on the state between two calls.

mod checkpoint;
mod configured;
mod fill;
mod group;
mod invariants;
mod list;
#[cfg(test)]
mod model_hooks;
mod patch;
mod read;
mod staged;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::code_probe::{CodeProbe, hit};
use types::limits::{BLOCK, STRIPE_MAX, UNIT_MAX};
use types::messages::brick::{OpKind, Prepare, PreparedOp, Tail, spans_len};
use types::{Epoch, GroupId, ObjectId, Refusal, Seq, StripeKey};

pub(crate) use checkpoint::LiveRecord;
pub(crate) use fill::{FillStep, fill_record};
pub(crate) use group::{ClientTable, SlotGroup};
pub(crate) use list::UnitQuery;
pub(crate) use patch::{PatchInput, coalesce, expand, touched_rows};
pub(crate) use read::{OverlayPiece, ReadPlan, Shape};
pub(crate) use staged::{STAGED_US, StagedUnit};

use crate::descriptor::{Base, descriptor_max};
use crate::journal::Position;
use crate::record::PrepareRecord;
use crate::slot::group::{AppliedOp, take_upto};
use crate::slot::invariants::{check_record, uncount};
use crate::slot::patch::blocks_of;
use crate::slot::staged::Staged;
use crate::space::{RUNS_MAX, Run, Space};
use crate::table::class_for;

/// Most dropped objects that are remembered: a late operation on one of them is refused.
const DROPPED_MAX: usize = 16 << 10;

/// The place of a change in the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamp {
    /// Number of the record.
    pub(crate) lsn: u64,
    /// Serial of its segment.
    pub(crate) serial: u64,
}

/// An operation on a unit, held or decided, that is not part of its base.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) record: PrepareRecord,
    /// The bytes of an overlay.
    pub(crate) position: Position,
    /// Serial of the segment with its record.
    pub(crate) serial: u64,
    /// Number of its first known record: its bytes were synced with that record.
    lsn: u64,
}

/// Approximate bytes of RAM of an operation without its ranges.
const ENTRY_BYTES: usize = 768;
/// Bytes of RAM that a range of an overlay takes: its place and its checksum, in lists that may be half empty.
const SPAN_BYTES: usize = 24;

impl LogEntry {
    /// Approximate bytes of RAM. Constant while the entry exists.
    fn weight(&self) -> usize {
        ENTRY_BYTES + SPAN_BYTES * self.record.spans.len()
    }
}

/// A unit of a stripe as this brick knows it.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) group: GroupId,
    pub(crate) slot: u8,
    /// The decided bytes without overlays; `None` if the unit is absent (zeros).
    pub(crate) base: Option<Base>,
    /// Fulls and Patches whose decision is not known.
    pub(crate) pending: BTreeMap<Seq, Box<LogEntry>>,
    /// Overlays over the base, decided or not.
    pub(crate) overlays: BTreeMap<Seq, Box<LogEntry>>,
    /// Serial of the first segment with a change that the descriptor at rest lacks.
    dirty: Option<u64>,
    /// A descriptor is at rest.
    at_rest: bool,
    /// If the base is empty: serial of the last segment that may hold records from before it.
    emptied: u64,
}

impl Unit {
    fn new(group: GroupId, slot: u8) -> Unit {
        Unit {
            group,
            slot,
            base: None,
            pending: BTreeMap::new(),
            overlays: BTreeMap::new(),
            dirty: None,
            at_rest: false,
            emptied: 0,
        }
    }

    /// Whether RAM has nothing that the descriptor lacks, and the descriptor is still needed.
    fn is_clean(&self) -> bool {
        self.dirty.is_none() && self.pending.is_empty() && self.overlays.is_empty() && !self.is_empty()
    }

    /// Whether its base is all zeros, by a Full.
    fn is_empty(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.blocks == 0)
    }

    fn touch(&mut self, serial: u64) {
        // Records that are copied forward may stand behind those of later operations.
        self.dirty = Some(self.dirty.map_or(serial, |dirty| dirty.min(serial)));
    }
}

/// What to do with a `Prepare`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PrepareStep {
    /// Write the bytes to these runs (none for an overlay), append the record, then [`SlotCore::apply_prepare`].
    Write(Vec<Run>),
    /// The unit was staged: its bytes lie here. Append the record, then [`SlotCore::apply_prepare`].
    Adopt(StagedUnit),
    /// The operation is held already: answer when every appended record is durable.
    Prepared,
    /// The same operation is coming already: look again when that attempt has ended.
    InFlight,
}

/// The state of a brick.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct SlotCore {
    groups: BTreeMap<GroupId, SlotGroup>,
    /// Units with changes that their descriptors lack, and some that were read lately.
    units: BTreeMap<StripeKey, Unit>,
    /// Approximate bytes of RAM of the overlays of all units.
    overlay_bytes: usize,
    /// Erased units whose descriptors are still at rest, with the serial of the segment that has the erasure.
    erased: BTreeMap<StripeKey, u64>,
    /// Units that need a new place among the descriptors; `class_max` is the largest class that any unit needed.
    unplaced: BTreeSet<StripeKey>,
    class_max: u16,
    dropped: BTreeSet<ObjectId>,
    dropped_order: VecDeque<ObjectId>,
    space: Space,
    /// All blocks, free or not.
    data_blocks: u64,
    /// Blocks to free once a record is durable.
    released: VecDeque<(u64, Vec<Run>)>,
    in_flight: BTreeMap<(GroupId, Seq), Vec<Run>>,
    /// Staged units, which wait for their operation.
    staged: Staged,
    /// During a replay blocks have no owners yet.
    replaying: bool,
    /// Number of evictions of units that may have had newer state than their descriptors.
    evictions: u64,
}

impl SlotCore {
    /// An empty brick with so many data blocks, before the replay.
    pub(crate) fn new(data_blocks: u64) -> SlotCore {
        SlotCore {
            groups: BTreeMap::new(),
            units: BTreeMap::new(),
            overlay_bytes: 0,
            erased: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            class_max: 0,
            dropped: BTreeSet::new(),
            dropped_order: VecDeque::new(),
            space: Space::new(data_blocks),
            data_blocks,
            released: VecDeque::new(),
            in_flight: BTreeMap::new(),
            staged: Staged::default(),
            replaying: true,
            evictions: 0,
        }
    }

    /// Free blocks. Blocks that only wait for a sync count, and so do those of staged units, because a new epoch
    /// frees them.
    pub(crate) fn free_blocks(&self) -> u64 {
        let waiting: u64 = types::cost::walked(&self.released)
            .flat_map(|(_, runs)| runs)
            .map(|run| u64::from(run.blocks))
            .sum();
        let free = self.space.free() + waiting + self.staged.blocks;
        assert!(free <= self.data_blocks, "writes would be accepted for space that the brick lacks");
        free
    }

    /// Takes fresh blocks.
    fn allocate(&mut self, blocks: u32) -> Result<Vec<Run>, Refusal> {
        assert!(!self.replaying, "blocks in use would be given out: the replay has not marked them yet");
        let runs = self.space.allocate(blocks).ok_or(Refusal::NoSpace)?;
        assert_eq!(blocks_of(&runs), u64::from(blocks), "the last bytes of a unit would have no block");
        assert!(runs.len() <= RUNS_MAX, "the descriptor of the unit would have no room for its runs");
        Ok(runs)
    }

    /// Number of descriptors that need a new place, and the largest class that any unit needed.
    pub(crate) fn unplaced(&self) -> (usize, u16) {
        assert!(
            self.unplaced.is_empty() || self.class_max > 0,
            "descriptors would count as smaller than they are, and find no page when written"
        );
        (self.unplaced.len(), self.class_max)
    }

    /// Whether a unit will need a new place among the descriptors for a base of this class.
    fn needs_place(&self, key: StripeKey, class: u16) -> bool {
        if self.unplaced.contains(&key) {
            return false;
        }
        let at_rest = self.units.get(&key).filter(|unit| unit.at_rest);
        at_rest.and_then(|unit| unit.base.as_ref()).is_none_or(|base| base.class() < class)
    }

    /// Whether released blocks wait for a sync.
    pub(crate) fn waits_for_sync(&self) -> bool {
        !self.released.is_empty()
    }

    /// Decides about an operation that a primary sends. `places` is the number of descriptors that still find room,
    /// `unit` the length of a unit in bytes.
    pub(crate) fn prepare(
        &mut self,
        epoch: Epoch,
        p: &Prepare,
        payload: usize,
        places: usize,
        unit: usize,
    ) -> Result<PrepareStep, Refusal> {
        self.check_epoch(p.group, epoch)?;
        if p.seq.epoch() != epoch || !well_formed(p, payload) {
            return Err(Refusal::Malformed);
        }
        if self.dropped.contains(&p.key.object) {
            hit(CodeProbe::RemovedObject);
            return Err(Refusal::ObjectRemoved);
        }
        let group = self.groups.get(&p.group).ok_or(Refusal::NotServing)?;
        if p.seq <= group.decided || group.held.contains_key(&p.seq) {
            hit(CodeProbe::PrepareRepeated);
            return Ok(PrepareStep::Prepared);
        }
        if self.in_flight.contains_key(&(p.group, p.seq)) {
            hit(CodeProbe::PrepareRepeatedInFlight);
            return Ok(PrepareStep::InFlight);
        }
        if p.staged {
            return self.take_staged(p, places);
        }
        self.forget_staged(p);
        let class = class_for(descriptor_max((payload / BLOCK) as u32, p.unit_blocks.len()));
        if p.kind == OpKind::Full && payload > 0 && places == 0 && self.needs_place(p.key, class) {
            return Err(Refusal::NoSpace);
        }
        let runs = match p.kind {
            OpKind::Full => self.allocate((payload / BLOCK) as u32)?,
            OpKind::Patch => {
                let patched = self.patch_input(p, unit)?;
                // A data slot has everything that it needs; a parity slot needs the delta.
                let told = if p.identities.is_empty() { 0 } else { patched.rows.len() * BLOCK };
                if payload != told {
                    return Err(Refusal::Corrupt);
                }
                self.allocate_patch(&patched)?
            }
            OpKind::Overlay | OpKind::Zero => Vec::new(),
        };
        self.in_flight.insert((p.group, p.seq), runs.clone());
        Ok(PrepareStep::Write(runs))
    }

    /// Whether a coming operation may be held now. If not, its blocks are freed: while its bytes were written, either
    /// the epoch has changed and the take-over has learnt that the operation is not here, or its object was dropped.
    pub(crate) fn may_hold(&mut self, group: GroupId, key: StripeKey, seq: Seq) -> Result<(), Refusal> {
        let may = match self.check_epoch(group, seq.epoch()) {
            Ok(()) if self.dropped.contains(&key.object) => Err(Refusal::ObjectRemoved),
            // The operation was decided without this slot, which joins and has got its effect by a fill or a fold.
            Ok(()) if seq <= self.decided(group) => Err(Refusal::NotServing),
            checked => checked,
        };
        assert!(
            may.is_err() || self.in_flight.contains_key(&(group, seq)),
            "the operation would be held in blocks that are free or belong to another one"
        );
        may.inspect_err(|_| {
            hit(CodeProbe::PreparedTooLate);
            self.give_up(group, seq);
        })
    }

    /// Forgets a coming operation.
    pub(crate) fn give_up(&mut self, group: GroupId, seq: Seq) {
        if let Some(runs) = self.in_flight.remove(&(group, seq)) {
            runs.iter().for_each(|run| self.space.release(run));
        }
    }

    /// The operation is in the journal: it is held, or decided at once if a replay already knows the decision.
    pub(crate) fn apply_prepare(&mut self, hold: PrepareRecord, position: Position, stamp: Stamp) {
        let taken = self.in_flight.remove(&(hold.group, hold.seq));
        assert!(
            taken.is_none_or(|taken| taken == hold.fresh),
            "blocks that were allocated for the operation would have no owner, or two"
        );
        let (id, key, seq, kind) = (hold.group, hold.key, hold.seq, hold.kind);
        let group = self.groups.entry(id).or_insert_with(|| SlotGroup::new(stamp.serial));
        for (client, acked) in &hold.acked {
            group.acknowledge(*client, *acked);
        }
        let decided = seq <= group.decided;
        if !self.replaying {
            check_record(&hold);
            assert!(
                decided || group.served == Some(seq.epoch()),
                "the take-over of a newer epoch has learnt that the operation is not here, and has aborted it"
            );
        }
        let unit = self.units.entry(key).or_insert_with(|| Unit::new(id, hold.slot));
        if let Some(serial) = self.erased.remove(&key) {
            unit.at_rest = true;
            unit.touch(serial);
        }
        if unit.base.as_ref().is_some_and(|base| seq <= base.identity) {
            // The effect of this replayed record is at rest already: only its writes are still to be marked as seen.
            match decided {
                true => group.mark_all_seen(&hold.origins, stamp.serial),
                false => drop(
                    group.applied.insert(seq, AppliedOp { key, origins: hold.origins, serial: stamp.serial }),
                ),
            }
            return;
        }
        let class = class_for(descriptor_max(hold.blocks, hold.unit_blocks.len()));
        // Boxed: a map node has space for many entries, but mostly one is used.
        let lsn = unit.pending.get(&seq).map_or(stamp.lsn, |older| older.lsn.min(stamp.lsn));
        let entry = Box::new(LogEntry { record: hold, position, serial: stamp.serial, lsn });
        match kind {
            OpKind::Full | OpKind::Patch => drop(unit.pending.insert(seq, entry)),
            OpKind::Overlay | OpKind::Zero => {
                self.overlay_bytes += entry.weight();
                let older = unit.overlays.insert(seq, entry);
                uncount(&mut self.overlay_bytes, older.map_or(0, |entry| entry.weight()));
            }
        }
        if !decided {
            group.held.insert(seq, key);
        }
        group.check();
        if matches!(kind, OpKind::Full | OpKind::Patch) && self.needs_place(key, class) {
            self.unplaced.insert(key);
            self.class_max = self.class_max.max(class);
        }
        if decided {
            self.commit(id, key, seq, stamp);
        }
        self.check_unit(key);
    }

    /// Every operation of the group up to `upto` is committed.
    pub(crate) fn apply_decided(&mut self, id: GroupId, upto: Seq, stamp: Stamp) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if upto <= group.decided {
            return;
        }
        group.decided = upto;
        group.mark_applied_seen(upto);
        let committed = take_upto(&mut group.held, upto);
        group.check();
        for (seq, key) in committed {
            self.commit(id, key, seq, stamp);
        }
    }

    /// Applies a decided operation to its unit.
    fn commit(&mut self, id: GroupId, key: StripeKey, seq: Seq, stamp: Stamp) {
        let Some(unit) = self.units.get_mut(&key) else { return };
        let mut freed = Vec::new();
        let (mut origins, mut told) = (Vec::new(), 0);
        if let Some(entry) = unit.pending.remove(&seq) {
            let LogEntry { record: hold, serial, .. } = *entry;
            let hidden = take_upto(&mut unit.overlays, seq);
            uncount(&mut self.overlay_bytes, hidden.values().map(|entry| entry.weight()).sum());
            let old = unit.base.take();
            let PrepareRecord { kind, base, blocks, runs, crcs, unit_blocks, identities, .. } = hold;
            if kind == OpKind::Patch && !self.replaying {
                let found = old.as_ref().map(|old| old.identity);
                assert_eq!(found, Some(base), "a patch replaces exactly the base that it was made of");
                freed.extend(old.iter().flat_map(|old| patch::without(&old.runs, &runs)));
            } else {
                freed.extend(old.into_iter().flat_map(|old| old.runs));
            }
            // The brick may have been another slot of the group before.
            unit.slot = hold.slot;
            unit.base = Some(Base { identity: seq, blocks, runs, crcs, unit_blocks, identities });
            unit.emptied = stamp.serial;
            (origins, told) = (hold.origins, serial);
            // The record with the place of the bytes is needed until the descriptor is at rest, and may be older than
            // the record of the decision.
            unit.touch(serial);
        } else if let Some(entry) = unit.overlays.get_mut(&seq) {
            (origins, told) = (std::mem::take(&mut entry.record.origins), entry.serial);
        }
        self.forget_if_nothing(key, stamp);
        self.release(freed, stamp.lsn);
        if let Some(group) = self.groups.get_mut(&id) {
            assert!(
                seq <= group.decided,
                "an operation that may still be aborted would be shown, and could vanish afterwards"
            );
            group.mark_all_seen(&origins, told);
        }
        self.check_unit(key);
    }

    /// A take-over has aborted an operation.
    fn abort(&mut self, key: StripeKey, seq: Seq, stamp: Stamp) {
        let Some(unit) = self.units.get_mut(&key) else { return };
        let freed = unit.pending.remove(&seq).map(|entry| entry.record.fresh);
        uncount(&mut self.overlay_bytes, unit.overlays.remove(&seq).map_or(0, |entry| entry.weight()));
        if unit.pending.is_empty() && unit.dirty.is_none() {
            self.unplaced.remove(&key);
        }
        self.forget_if_nothing(key, stamp);
        self.release(freed.unwrap_or_default(), stamp.lsn);
        self.check_unit(key);
    }

    /// Drops a unit that has neither base nor operations. A checkpoint removes its descriptor later.
    fn forget_if_nothing(&mut self, key: StripeKey, stamp: Stamp) {
        let Some(unit) = self.units.get(&key) else { return };
        if unit.base.is_none() && unit.pending.is_empty() && unit.overlays.is_empty() {
            if unit.at_rest {
                self.erased.insert(key, unit.dirty.unwrap_or(stamp.serial));
            }
            self.units.remove(&key);
            self.unplaced.remove(&key);
        }
    }

    /// Promises to accept nothing older than `epoch` for a group.
    pub(crate) fn apply_promise(&mut self, id: GroupId, epoch: Epoch, stamp: Stamp) {
        let group = self.groups.entry(id).or_insert_with(|| SlotGroup::new(stamp.serial));
        assert!(epoch >= group.promised, "a promise only grows");
        if epoch > group.promised {
            group.promised = epoch;
            group.served = None;
            self.drop_staged_of_group(id);
        }
    }

    /// Ends a take-over: aborts, commits the rest, serves the epoch.
    pub(crate) fn apply_settle(&mut self, settle: &crate::record::Settle, stamp: Stamp) {
        self.apply_promise(settle.group, settle.epoch, stamp);
        for seq in &settle.aborted {
            let key = self.groups.get_mut(&settle.group).and_then(|group| {
                group.applied.remove(seq);
                let key = group.held.remove(seq);
                assert!(
                    key.is_none() || *seq > group.decided,
                    "a decided operation that a reader may have seen would be taken back"
                );
                key
            });
            if let Some(key) = key {
                self.abort(key, *seq, stamp);
            }
        }
        self.apply_decided(settle.group, settle.upto, stamp);
        if let Some(group) = self.groups.get_mut(&settle.group) {
            assert!(
                settle.upto <= group.decided,
                "an operation that this take-over forwarded would stay open here, and the next one could abort it"
            );
            group.merge(&settle.windows);
            group.aborted.clone_from(&settle.aborted);
            group.served = Some(settle.epoch);
            group.check();
        }
    }

    /// Restores a group as a whole.
    pub(crate) fn apply_snapshot(&mut self, snapshot: &crate::record::Snapshot, stamp: Stamp) {
        assert!(self.replaying, "a running group would go back to an older promise");
        self.apply_promise(snapshot.group, snapshot.promised, stamp);
        self.apply_decided(snapshot.group, snapshot.decided, stamp);
        if let Some(group) = self.groups.get_mut(&snapshot.group) {
            group.merge(&snapshot.windows);
            group.aborted.clone_from(&snapshot.aborted);
            group.served = (snapshot.served != Epoch(0)).then_some(snapshot.served);
            group.note_snapshot(stamp.serial);
        }
    }

    /// Forgets the first `stripes` stripes of an object. The caller has loaded all their units, so that a replay,
    /// with other units in RAM, comes to the same state.
    pub(crate) fn apply_drop(&mut self, object: ObjectId, stripes: u64, stamp: Stamp) {
        let units = types::cost::walked(self.units.range(below(object, stripes)));
        let keys: Vec<StripeKey> = units.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_unit(key, stamp));
        self.drop_staged_of_object(object);
        if self.dropped.insert(object) {
            self.dropped_order.push_back(object);
            if self.dropped_order.len() > DROPPED_MAX
                && let Some(oldest) = self.dropped_order.pop_front()
            {
                self.dropped.remove(&oldest);
            }
        }
        assert_eq!(
            self.dropped.len(),
            self.dropped_order.len(),
            "an object would count as dropped forever, or a late operation could bring it back"
        );
        assert!(self.dropped.len() <= DROPPED_MAX, "dropped objects would fill the RAM");
    }

    /// Whether an object was dropped lately.
    pub(crate) fn is_dropped(&self, object: ObjectId) -> bool {
        self.dropped.contains(&object)
    }

    fn release(&mut self, runs: Vec<Run>, lsn: u64) {
        if !self.replaying && !runs.is_empty() {
            assert!(
                self.released.back().is_none_or(|(last, _)| *last <= lsn),
                "free blocks would wait for the sync of an unrelated record"
            );
            self.released.push_back((lsn, runs));
        }
    }

    /// The journal is durable up to `lsn`: blocks that those records released may be used again.
    pub(crate) fn synced(&mut self, lsn: u64) {
        while self.released.front().is_some_and(|(at, _)| *at <= lsn) {
            if let Some((_, runs)) = self.released.pop_front() {
                types::cost::entries(runs.len());
                runs.iter().for_each(|run| self.space.release(run));
            }
        }
    }

    fn check_epoch(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let group = self.groups.get(&id).ok_or(Refusal::NotServing)?;
        if epoch < group.promised {
            hit(CodeProbe::StaleEpochRefused);
            return Err(Refusal::StaleEpoch);
        }
        if group.served != Some(epoch) {
            return Err(Refusal::NotServing);
        }
        Ok(())
    }

    /// Forgets the seen writes of clients that `which` selects: they write no more.
    pub(crate) fn forget_clients(&mut self, which: impl Fn(types::ClientId) -> bool) {
        self.groups.values_mut().for_each(|group| group.clients.forget(&which));
    }

    /// The epoch promised for a group, 0 if none.
    pub(crate) fn promised(&self, id: GroupId) -> Epoch {
        self.groups.get(&id).map_or(Epoch(0), |group| group.promised)
    }

    /// The epoch served for a group.
    pub(crate) fn served(&self, id: GroupId) -> Option<Epoch> {
        self.groups.get(&id)?.served
    }

    /// The last decision known of a group.
    pub(crate) fn decided(&self, id: GroupId) -> Seq {
        self.groups.get(&id).map_or(Seq::NONE, |group| group.decided)
    }

    /// Groups with operations whose decision is not known: the served epoch, and the first of these operations.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = (GroupId, Epoch, Seq)> {
        self.groups
            .iter()
            .filter_map(|(id, group)| Some((*id, group.served?, *group.held.first_key_value()?.0)))
    }

    /// What this slot holds of a group, for a take-over.
    pub(crate) fn tail(&self, id: GroupId, free: u64) -> Tail {
        let Some(group) = self.groups.get(&id) else {
            return Tail {
                decided: Seq::NONE,
                held: Vec::new(),
                aborted: Vec::new(),
                windows: Vec::new(),
                free,
            };
        };
        let held = group.held.iter().filter_map(|(seq, key)| {
            let unit = self.units.get(key)?;
            let hold = &unit.pending.get(seq).or_else(|| unit.overlays.get(seq))?.record;
            Some(PreparedOp {
                seq: *seq,
                key: *key,
                kind: hold.kind,
                participants: hold.participants,
                origins: hold.origins.clone(),
            })
        });
        let aborted = group.aborted.clone();
        Tail { decided: group.decided, held: held.collect(), aborted, windows: group.windows(), free }
    }
}

/// The first `stripes` stripes of an object.
fn below(object: ObjectId, stripes: u64) -> std::ops::Range<StripeKey> {
    StripeKey { object, stripe: 0 }..StripeKey { object, stripe: stripes }
}

/// Whether the fields of an operation are consistent. They came over the wire, and nothing else checks them.
fn well_formed(p: &Prepare, payload: usize) -> bool {
    let slot = u64::from(p.slot) < 64 && p.participants & 1 << p.slot != 0;
    let bytes = match p.kind {
        _ if p.staged => p.kind == OpKind::Full && payload == 0 && p.spans.is_empty() && p.origins.len() == 1,
        OpKind::Full => {
            let sums = p.crcs.len() == payload / BLOCK;
            sums && p.spans.is_empty() && payload.is_multiple_of(BLOCK) && payload <= UNIT_MAX as usize
        }
        OpKind::Overlay => spans_len(&p.spans, STRIPE_MAX) == Some(payload),
        OpKind::Zero => spans_len(&p.spans, STRIPE_MAX).is_some() && payload == 0,
        OpKind::Patch => p.spans.is_empty() && payload.is_multiple_of(BLOCK) && p.base < p.seq,
    };
    slot && bytes
}

#[cfg(test)]
mod tests;
