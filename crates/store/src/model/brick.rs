//! One brick: what is durable, what a crash loses, and how the brick recovers.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Range;

use types::limits::BLOCK;
use types::messages::brick::{OpKind, Prepare};
use types::{Epoch, GroupId, Refusal, Seq, StripeKey, VolumeId};

use super::bytes::{Cell, blocks};
use super::mutants::Mutant;
use crate::descriptor::Descriptor;
use crate::journal::Position;
use crate::record::{Decided, PrepareRecord, Promise, Settle, Snapshot, Torn};
use crate::slot::{LiveRecord, PrepareStep, ReadPlan, SlotCore, Stamp, expand};
use crate::table::Change;

/// The one group.
pub(super) const GROUP: GroupId = GroupId { volume: VolumeId(1), index: 0 };

/// A record of the journal.
#[derive(Clone, Debug)]
pub(super) enum Record {
    Prepare(PrepareRecord, Vec<Cell>),
    Decided(Decided),
    Promise(Promise),
    Settle(Settle),
    Torn(Torn),
    Snapshot(Snapshot),
}

/// Contents of a block whose write a crash has torn.
const TORN: Cell = 0xdead_beef;

/// A slot's state, with the fates of operations in it.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) core: SlotCore,
    /// Bytes of overlays in the journal.
    payloads: BTreeMap<Seq, Vec<Cell>>,
    /// Operations that it has applied to its units, and operations that a take-over told it to drop.
    pub(super) applied: BTreeSet<Seq>,
    pub(super) dropped: BTreeSet<Seq>,
}

impl Store {
    /// `recover.rs`, `apply`: the same functions run when a record is appended and when it is replayed.
    fn apply(&mut self, record: &Record, stamp: Stamp) {
        match record {
            Record::Prepare(hold, payload) => {
                let at = hold.seq.0 % (1 << 20) + u64::from(hold.seq.epoch().0) * 64;
                let Stamp { serial, .. } = stamp;
                let position = Position { serial, offset: at << 32, len: (payload.len() * BLOCK) as u32 };
                if hold.seq <= self.core.decided(GROUP) {
                    self.applied.insert(hold.seq);
                }
                self.payloads.insert(hold.seq, payload.clone());
                self.core.apply_prepare(hold.clone(), position, stamp);
            }
            Record::Decided(decided) => {
                self.note(decided.upto, &[]);
                self.core.apply_decided(GROUP, decided.upto, stamp);
            }
            Record::Promise(promise) => self.core.apply_promise(GROUP, promise.epoch, stamp),
            Record::Settle(settle) => {
                self.note(settle.upto, &settle.aborted);
                self.core.apply_settle(settle, stamp);
            }
            Record::Torn(torn) => self.core.apply_torn(GROUP, torn.seq, stamp),
            Record::Snapshot(snapshot) => self.core.apply_snapshot(snapshot, stamp),
        }
    }

    fn note(&mut self, upto: Seq, aborted: &[Seq]) {
        for op in self.core.tail(GROUP, 0).held {
            if aborted.contains(&op.seq) {
                self.dropped.insert(op.seq);
            } else if op.seq <= upto {
                self.applied.insert(op.seq);
            }
        }
    }

    fn forget_payloads(&mut self, keys: &[StripeKey]) {
        let core = &self.core;
        self.payloads.retain(|seq, _| keys.iter().any(|key| core.is_record_live(*key, *seq)));
    }

    /// `recover.rs`, `recover`, second half: the check for torn units and the end of the replay. Returns the torn
    /// operations.
    fn awake(&mut self, disk: &BTreeMap<u64, Cell>, serial: u64, mutant: Option<Mutant>) -> Vec<Torn> {
        let mut torn = Vec::new();
        for (hold, _) in self.core.undecided_units() {
            if !is_whole(disk, &hold) && mutant != Some(Mutant::TrustRecords) {
                torn.push(Torn { group: GROUP, seq: hold.seq });
                self.core.apply_torn(GROUP, hold.seq, Stamp::default());
            }
        }
        self.core.replayed(serial);
        torn
    }
}

/// `recover.rs`, `is_whole`.
fn is_whole(disk: &BTreeMap<u64, Cell>, hold: &PrepareRecord) -> bool {
    let sums: BTreeMap<u64, u32> = expand(&hold.runs).into_iter().zip(hold.crcs.iter().copied()).collect();
    expand(&hold.fresh).iter().all(|block| disk.get(block).copied().unwrap_or(0) == sums[block])
}

/// A slot's brick.
#[derive(Clone, Debug)]
pub(super) struct Brick {
    pub(super) slot: usize,
    /// The state that a replay of the durable journal over the descriptors at rest would give.
    image: Store,
    disk: BTreeMap<u64, Cell>,
    /// Descriptors at rest.
    table: BTreeMap<StripeKey, Descriptor>,
    /// The durable records of the journal, each with the serial of its segment; empty if there are no checkpoints.
    journal: Vec<(u64, Record)>,
    /// Serials of the oldest segment and of the newest.
    oldest: u64,
    serial: u64,
    checkpoints: bool,
    /// The running state.
    pub(super) now: Store,
    /// Records and blocks that are not durable yet.
    tail: Vec<Record>,
    dirty: BTreeMap<u64, Cell>,
}

/// What a patch does to a unit: touched rows, the whole new unit, old XOR new of the touched rows.
type Changed = (Vec<usize>, Vec<Cell>, Vec<Cell>);

/// What a slot does with a `Prepare`.
pub(super) enum PrepareOutcome {
    /// The slot holds the operation when every appended record is durable. Carries the delta of a data unit, if a
    /// patch.
    Prepared(Vec<Cell>),
    Refused(Refusal),
}

impl Brick {
    /// An empty brick. `checkpoints`: whether it may make checkpoints.
    pub(super) fn new(slot: usize, data_blocks: u64, checkpoints: bool) -> Brick {
        let store = Store {
            core: SlotCore::new(data_blocks),
            payloads: BTreeMap::new(),
            applied: BTreeSet::new(),
            dropped: BTreeSet::new(),
        };
        let mut brick = Brick {
            slot,
            image: store.clone(),
            disk: BTreeMap::new(),
            table: BTreeMap::new(),
            journal: Vec::new(),
            oldest: 1,
            serial: 1,
            checkpoints,
            now: store,
            tail: Vec::new(),
            dirty: BTreeMap::new(),
        };
        brick.now.core.replayed(1);
        brick
    }

    /// `journal.rs`, `append`, and the `apply_*` that always follows it.
    pub(super) fn append(&mut self, record: Record) {
        self.tail.push(record);
        let record = self.tail.last().expect("just appended");
        self.now.apply(record, Stamp { lsn: self.tail.len() as u64, serial: self.serial });
    }

    /// Whether it holds an operation without knowing the decision: `take_over.rs`, `ask_for_decisions`.
    pub(super) fn holds(&self) -> bool {
        !self.now.core.tail(GROUP, 0).held.is_empty()
    }

    /// Whether something waits for a sync.
    pub(super) fn is_dirty(&self) -> bool {
        !self.tail.is_empty() || !self.dirty.is_empty()
    }

    /// Records that wait for a sync.
    pub(super) fn unsynced(&self) -> usize {
        self.tail.len()
    }

    /// `journal.rs`, `run`: one sync for blocks and records alike.
    pub(super) fn sync(&mut self, keys: &[StripeKey]) {
        for record in std::mem::take(&mut self.tail) {
            self.durably(record);
        }
        self.disk.append(&mut self.dirty);
        self.now.core.synced(u64::MAX);
        self.image.forget_payloads(keys);
        self.now.forget_payloads(keys);
    }

    fn durably(&mut self, record: Record) {
        self.image.apply(&record, Stamp { lsn: 0, serial: self.serial });
        if self.checkpoints {
            self.journal.push((self.serial, record));
        }
    }

    /// Whether a crash may leave a state other than the running one. With checkpoints this cannot be excluded.
    pub(super) fn may_differ(&self) -> bool {
        self.is_dirty() || self.checkpoints
    }

    /// The power fails: `kept` records that were not durable survive, and their blocks if `whole`. The brick recovers
    /// at once.
    pub(super) fn crash(&mut self, kept: usize, whole: bool, mutant: Option<Mutant>) {
        for record in std::mem::take(&mut self.tail).into_iter().take(kept) {
            self.durably(record);
        }
        let dirty = std::mem::take(&mut self.dirty);
        // `journal.rs`, `open`: a restart begins another segment.
        self.serial += u64::from(self.checkpoints);
        match whole {
            true => self.disk.extend(dirty),
            false => self.disk.extend(dirty.into_keys().map(|block| (block, TORN))),
        }
        self.now = self.image.clone();
        let torn = self.now.awake(&self.disk, self.serial, mutant);
        self.tail = torn.into_iter().map(Record::Torn).collect();
    }

    /// `journal.rs`: later records go to another segment.
    pub(super) fn next_segment(&mut self) {
        self.serial += 1;
    }

    /// `checkpoint.rs`, `checkpoint`, as one step: the oldest segment is freed; if there is only one, its state goes
    /// to descriptors. Crashes in the middle of a checkpoint are tested by the crash points of one brick.
    pub(super) fn checkpoint(&mut self, data_blocks: u64, keys: &[StripeKey], mutant: Option<Mutant>) {
        self.sync(keys);
        let oldest = self.oldest;
        let freed = oldest.min(self.serial - 1);
        let core = &mut self.now.core;
        let mut copied = Vec::new();
        for (key, seq) in core.live_records(freed) {
            let Some(LiveRecord { record, position }) = core.live_record(key, seq) else { continue };
            let position = Position { serial: self.serial, ..position };
            core.relocated(key, seq, position, Stamp { lsn: 0, serial: self.serial });
            if mutant != Some(Mutant::SkipCopyForward) {
                let payload = self.now.payloads.get(&seq).cloned();
                copied.push(Record::Prepare(record, payload.expect("kept as long as its record is")));
            }
        }
        if !core.stale_groups(oldest).is_empty() {
            copied.extend(core.snapshot(GROUP).map(Record::Snapshot));
            core.snapshotted(GROUP, Stamp { lsn: 0, serial: self.serial });
        }
        core.drop_tombstones(oldest);
        for Change { key, descriptor, .. } in core.take_changes(oldest, usize::MAX, &mut None) {
            match descriptor {
                Some(descriptor) => drop(self.table.insert(key, descriptor)),
                None => {
                    self.table.remove(&key);
                    core.erased_written(key);
                }
            }
        }
        let serial = self.serial;
        self.journal.extend(copied.into_iter().map(|record| (serial, record)));
        self.journal.retain(|(serial, _)| *serial > freed);
        self.oldest = freed + 1;
        self.replay(data_blocks);
    }

    /// `recover.rs`, `recover`, first half: the journal over the descriptors at rest.
    fn replay(&mut self, data_blocks: u64) {
        let Store { applied, dropped, .. } = self.now.clone();
        let mut image =
            Store { core: SlotCore::new(data_blocks), payloads: BTreeMap::new(), applied, dropped };
        for (serial, record) in &self.journal {
            if let Record::Prepare(hold, _) = record
                && let Some(descriptor) = self.table.get(&hold.key)
            {
                image.core.loaded(descriptor.clone());
            }
            image.apply(record, Stamp { lsn: 0, serial: *serial });
        }
        // The other units are loaded on demand; the time makes no difference.
        self.table.values().for_each(|descriptor| image.core.loaded(descriptor.clone()));
        self.image = image;
    }

    /// The brick as it would be after a crash that loses everything that is not durable, or after a sync.
    pub(super) fn later(&self, crashed: bool, keys: &[StripeKey], mutant: Option<Mutant>) -> Brick {
        let mut later = self.clone();
        match crashed {
            true => later.crash(0, false, mutant),
            false => later.sync(keys),
        }
        later
    }

    /// `ops/prepare.rs`, `prepare` without the wait for the sync. `unit`: blocks of a unit.
    pub(super) fn prepare(
        &mut self,
        epoch: Epoch,
        p: &Prepare,
        payload: &[Cell],
        unit: usize,
        mutant: Option<Mutant>,
    ) -> PrepareOutcome {
        self.learn(epoch, p.decided);
        let step = self.now.core.prepare(epoch, p, payload_len(p, payload), usize::MAX / 2, unit * BLOCK);
        let fresh = match step {
            Ok(PrepareStep::Write(fresh)) => fresh,
            Ok(PrepareStep::Prepared) if p.kind == OpKind::Patch && p.identities.is_empty() => {
                let found = self.now.core.patch_input(p, unit * BLOCK);
                let change = found.and_then(|found| self.change(p, &found, payload));
                return change
                    .map_or_else(PrepareOutcome::Refused, |(_, _, delta)| PrepareOutcome::Prepared(delta));
            }
            Ok(PrepareStep::Prepared) => return PrepareOutcome::Prepared(Vec::new()),
            Ok(PrepareStep::Adopt(_) | PrepareStep::InFlight) => {
                unreachable!("nothing is staged or on its way")
            }
            Err(refusal) => return PrepareOutcome::Refused(refusal),
        };
        match self.hold(p, fresh, payload, unit, mutant) {
            Ok(delta) => PrepareOutcome::Prepared(delta),
            Err(refusal) => {
                self.now.core.give_up(p.group, p.seq);
                PrepareOutcome::Refused(refusal)
            }
        }
    }

    /// `ops/prepare.rs`, `hold` and `record`.
    fn hold(
        &mut self,
        p: &Prepare,
        fresh: Vec<crate::space::Run>,
        payload: &[Cell],
        unit: usize,
        mutant: Option<Mutant>,
    ) -> Result<Vec<Cell>, Refusal> {
        let mut hold = crate::ops::prepare_record(p, fresh);
        let mut delta = Vec::new();
        let mut bytes = Vec::new();
        match p.kind {
            OpKind::Overlay => {
                bytes = payload.to_vec();
                let mut at = 0;
                hold.crcs = p
                    .spans
                    .iter()
                    .map(|span| {
                        at += blocks(span.len as usize);
                        sum(&payload[at - blocks(span.len as usize)..at])
                    })
                    .collect();
            }
            OpKind::Zero => hold.crcs = vec![sum(&[]); p.spans.len()],
            OpKind::Full => {
                hold.crcs = p.crcs.clone();
                hold.blocks = hold.crcs.len() as u32;
                match mutant {
                    Some(Mutant::WriteInPlace) => self.overwrite_base(p.key, payload, unit),
                    Some(Mutant::ReuseEarly) => self.overwrite_base(p.key, &vec![TORN; unit], unit),
                    _ => {}
                }
                self.write_runs(&expand(&hold.fresh), payload);
            }
            OpKind::Patch => {
                let found = self.now.core.patch_input(p, unit * BLOCK)?;
                let runs = found.runs(&hold.fresh);
                let (written, new, change) = self.change(p, &found, payload)?;
                let is_whole = runs == hold.fresh;
                let cells: Vec<Cell> = match is_whole {
                    true => new.clone(),
                    false => written.iter().map(|row| new[*row]).collect(),
                };
                self.write_runs(&expand(&hold.fresh), &cells);
                hold.blocks = found.blocks.len() as u32;
                (hold.runs, hold.crcs, hold.unit_blocks) = (runs, new, found.unit_blocks);
                delta = change;
            }
        }
        self.now.core.may_hold(hold.group, hold.key, hold.seq)?;
        self.append(Record::Prepare(hold, bytes));
        Ok(delta)
    }

    fn write_runs(&mut self, blocks: &[u64], cells: &[Cell]) {
        self.dirty.extend(blocks.iter().copied().zip(cells.iter().copied()));
    }

    /// For mutants: writes these bytes over the old ones.
    fn overwrite_base(&mut self, key: StripeKey, cells: &[Cell], unit: usize) {
        if let Ok(plan) = self.now.core.plan_read(key, self.slot as u8, 0, 0..unit * BLOCK, None, &[]) {
            let blocks: Vec<u64> = plan.blocks.1.iter().map(|(block, _)| *block).collect();
            self.write_runs(&blocks, cells);
        }
    }

    /// `ops/patch.rs`, `patch_output`: touched rows, the whole new unit, and old XOR new of the touched rows.
    fn change(
        &self,
        p: &Prepare,
        found: &crate::slot::PatchInput,
        told: &[Cell],
    ) -> Result<Changed, Refusal> {
        let old: Vec<Cell> = found.blocks.iter().map(|block| self.block(*block)).collect::<Result<_, _>>()?;
        let mut new = old.clone();
        let rows: Vec<usize> = found.rows.iter().map(|row| *row as usize).collect();
        rows.iter().zip(told).for_each(|(row, delta)| new[*row] ^= delta);
        self.lay_over(&mut new, &found.overlays)?;
        let delta = match p.identities.is_empty() {
            true => rows.iter().map(|row| old[*row] ^ new[*row]).collect(),
            false => Vec::new(),
        };
        Ok((rows, new, delta))
    }

    /// A block, compared with its checksum.
    fn block(&self, (block, sum): (u64, u32)) -> Result<Cell, Refusal> {
        let cell = self.dirty.get(&block).or_else(|| self.disk.get(&block)).copied().unwrap_or(0);
        if cell == sum { Ok(cell) } else { Err(Refusal::Corrupt) }
    }

    /// `ops/read.rs`, `lay_over` and `overlay_bytes`.
    pub(super) fn lay_over(
        &self,
        cells: &mut [Cell],
        overlays: &[crate::slot::OverlayPiece],
    ) -> Result<(), Refusal> {
        for piece in overlays {
            let (to, from, len) = (blocks(piece.to), blocks(piece.from), blocks(piece.len));
            let Some(target) = cells.get_mut(to..(to + len).min(cells.len())) else { continue };
            let Some((position, expected)) = piece.source else {
                target.fill(0);
                continue;
            };
            let payload = self.payload_at(position).ok_or(Refusal::Corrupt)?;
            if sum(payload) != expected {
                return Err(Refusal::Corrupt);
            }
            target.copy_from_slice(&payload[from..from + target.len()]);
        }
        Ok(())
    }

    fn payload_at(&self, position: Position) -> Option<&[Cell]> {
        let (at, within) = (position.offset >> 32, blocks((position.offset & 0xffff_ffff) as usize));
        if position.serial < self.oldest {
            return None;
        }
        let payload =
            self.now.payloads.iter().find(|(seq, _)| seq.0 % (1 << 20) + u64::from(seq.epoch().0) * 64 == at);
        payload?.1.get(within..within + blocks(position.len as usize))
    }

    /// `ops/read.rs`, `unit`: a range of this brick's unit, in blocks. Blocks missing at the end are zeros.
    pub(super) fn read(
        &self,
        key: StripeKey,
        range: Range<usize>,
        unit: usize,
        identity: Option<Seq>,
        decided: &[Seq],
    ) -> Result<Vec<Cell>, Refusal> {
        let bytes = range.start * BLOCK..range.end * BLOCK;
        let at = self.slot * unit * BLOCK;
        let plan = self.now.core.plan_read(key, self.slot as u8, at, bytes, identity, decided)?;
        let ReadPlan { blocks: (_, found), overlays, .. } = plan;
        let mut cells: Vec<Cell> = found.iter().map(|block| self.block(*block)).collect::<Result<_, _>>()?;
        cells.resize(range.len(), 0);
        self.lay_over(&mut cells, &overlays)?;
        Ok(cells)
    }

    /// `ops/decide.rs`, `apply_decisions`. True if a decision was new.
    pub(super) fn learn(&mut self, epoch: Epoch, upto: Seq) -> bool {
        let news = self.now.core.served(GROUP) == Some(epoch) && self.now.core.decided(GROUP) < upto;
        if news {
            self.append(Record::Decided(Decided { group: GROUP, upto }));
        }
        news
    }

    /// Whether a durable record says that this slot holds an operation, or has made it part of a base.
    pub(super) fn has_durably(&self, key: StripeKey, seq: Seq) -> bool {
        self.image.core.is_record_live(key, seq) || self.image.core.shape(key).identity >= seq
    }

    /// A slot that joins: the fates of operations from its earlier epochs no longer count.
    pub(super) fn forget_past(&mut self) {
        for store in [&mut self.now, &mut self.image] {
            store.applied.clear();
            store.dropped.clear();
        }
    }

    /// A slot that was brought level has every committed operation.
    pub(super) fn has_all(&mut self, stands: &[Seq]) {
        for store in [&mut self.now, &mut self.image] {
            store.applied.extend(stands);
            store.dropped.clear();
        }
    }

    /// A unit that the primary sends: the record of a Full that was decided long ago. Its bytes are durable before
    /// the record is. False if there is no room.
    pub(super) fn fill(&mut self, mut hold: PrepareRecord, cells: &[Cell], identities: &[Seq]) -> bool {
        let mut fresh = Vec::new();
        if !cells.is_empty() {
            let Some(runs) = self.now.core.allocate_for_fill(cells.len() as u32) else { return false };
            fresh = runs;
        }
        self.disk.extend(expand(&fresh).into_iter().zip(cells.iter().copied()));
        hold.blocks = cells.len() as u32;
        hold.crcs = cells.to_vec();
        hold.identities = identities.to_vec();
        (hold.runs, hold.fresh) = (fresh.clone(), fresh);
        self.append(Record::Prepare(hold, Vec::new()));
        true
    }

    /// Whether a durable record says that this slot holds an operation, or that it is decided.
    pub(super) fn knows_durably(&self, seq: Seq) -> bool {
        let core = &self.image.core;
        core.decided(GROUP) >= seq || core.tail(GROUP, 0).held.iter().any(|op| op.seq == seq)
    }

    /// The epochs that it has promised and serves, durably.
    pub(super) fn durable_epochs(&self) -> (Epoch, Option<Epoch>) {
        (self.image.core.promised(GROUP), self.image.core.served(GROUP))
    }

    /// Whether every block has one owner, and no block is taken without one.
    pub(super) fn check_space(&self, data_blocks: u64) -> Result<(), String> {
        let mut owned = self.now.core.owned();
        let count = owned.len();
        owned.sort_unstable();
        owned.dedup();
        if owned.len() < count {
            return Err(format!("I9 slot {}: a block has two owners", self.slot));
        }
        let taken = self.now.core.allocated(data_blocks);
        match taken == count as u64 {
            true => Ok(()),
            false => Err(format!("I9 slot {}: {taken} blocks taken, {count} owned", self.slot)),
        }
    }

    /// Feeds its state to a hasher.
    pub(super) fn fingerprint(&self, state: &mut impl Hasher) {
        let content = |block| (self.disk.get(&block), self.dirty.get(&block));
        self.image.core.fingerprint(state, content);
        (&self.image.applied, &self.image.dropped).hash(state);
        if self.checkpoints {
            // The state that the next checkpoint and the replay after it depend on.
            self.now.core.fingerprint_for_checkpoint(state, self.oldest);
            (self.serial - self.oldest).hash(state);
            for (serial, record) in &self.journal {
                (serial - self.oldest).hash(state);
                record.fingerprint(state);
            }
            for (key, Descriptor { base, .. }) in &self.table {
                (key, base.identity, base.blocks, &base.identities).hash(state);
            }
        }
        if self.may_differ() {
            self.now.core.fingerprint(state, content);
            (&self.now.applied, &self.now.dropped).hash(state);
            self.tail.iter().for_each(|record| record.fingerprint(state));
        }
    }
}

impl Record {
    /// The fields that distinguish this record from others that may be in its place.
    fn fingerprint(&self, state: &mut impl Hasher) {
        match self {
            Record::Prepare(hold, _) => (0u8, hold.seq.0).hash(state),
            Record::Decided(decided) => (1u8, decided.upto.0).hash(state),
            Record::Promise(promise) => (2u8, promise.epoch.0).hash(state),
            Record::Settle(settle) => (3u8, settle.upto.0, &settle.aborted, settle.windows.len()).hash(state),
            Record::Torn(torn) => (4u8, torn.seq.0).hash(state),
            Record::Snapshot(snapshot) => {
                (5u8, snapshot.promised, snapshot.served, snapshot.decided, &snapshot.aborted).hash(state)
            }
        }
    }
}

/// The checksum of an overlay's span: of its bytes, in order.
fn sum(cells: &[Cell]) -> u32 {
    cells.iter().fold(17, |sum: u32, cell| sum.rotate_left(5).wrapping_add(*cell))
}

fn payload_len(p: &Prepare, payload: &[Cell]) -> usize {
    if p.kind == OpKind::Zero { 0 } else { payload.len() * BLOCK }
}
