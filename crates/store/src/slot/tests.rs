//! A slot takes, decides and refuses each operation as the protocol says, and comes to the same after a restart: the
//! steps are taken one by one, then the journal is replayed and the states are compared.

mod checkpoint;
mod copied;
mod fill;

use proptest::prelude::*;
use types::messages::brick::{DedupWindow, Span, Stage, WriteId};
use types::{ClientId, ClientSeq, VolumeId};

use self::fill::fill;
use super::*;
use crate::descriptor::Descriptor;
use crate::record::{Decided, Drop, Forget, Promise, Settle, Snapshot};
use crate::table::Change;

const GROUP: GroupId = GroupId { volume: VolumeId(1), index: 0 };
const CLIENT: ClientId = ClientId(5);
const BLOCKS: u64 = 256;
const UNIT: usize = 4 * BLOCK;

/// A record as the journal holds it.
#[derive(Clone, Debug)]
enum Recorded {
    Prepare(PrepareRecord),
    Decided(Decided),
    Promise(Promise),
    Settle(Settle),
    Snapshot(Snapshot),
    Drop(Drop),
    Forget(Forget),
}

/// A slot with a journal and descriptors, both only named.
struct Bench {
    core: SlotCore,
    journal: Vec<(Stamp, Recorded)>,
    at_rest: BTreeMap<StripeKey, Descriptor>,
    lsn: u64,
    epoch: u32,
    counter: u64,
    writes: u64,
}

fn key(n: u64) -> StripeKey {
    StripeKey { object: ObjectId(1 + n / 4), stripe: n % 4 }
}

impl Bench {
    fn new() -> Bench {
        let mut core = SlotCore::new(BLOCKS);
        core.replayed(0);
        let (journal, at_rest) = (Vec::new(), BTreeMap::new());
        Bench { core, journal, at_rest, lsn: 0, epoch: 0, counter: 0, writes: 0 }
    }

    /// A bench that serves its first epoch.
    fn serving() -> Bench {
        let mut bench = Bench::new();
        bench.take_over(&[]);
        bench
    }

    fn record(&mut self, record: Recorded) -> Stamp {
        self.lsn += 1;
        // Segments of seven records.
        let stamp = Stamp { lsn: self.lsn, serial: 1 + self.lsn / 7 };
        self.journal.push((stamp, record.clone()));
        apply(&mut self.core, &record, stamp);
        stamp
    }

    fn take_over(&mut self, aborted: &[Seq]) {
        self.epoch += 1;
        self.counter = 0;
        let epoch = Epoch(self.epoch);
        self.record(Recorded::Promise(Promise { group: GROUP, epoch }));
        let windows = self.core.tail(GROUP, 0).windows;
        let (upto, aborted) = (Seq::new(epoch, 0), aborted.to_vec());
        self.record(Recorded::Settle(Settle { group: GROUP, epoch, upto, aborted, windows }));
    }

    fn next_seq(&mut self) -> Seq {
        self.counter += 1;
        Seq::new(Epoch(self.epoch), self.counter)
    }

    fn request(&mut self, key: StripeKey, kind: OpKind, offset: usize, len: usize) -> Prepare {
        self.writes += 1;
        Prepare {
            group: GROUP,
            seq: self.next_seq(),
            key,
            slot: 0,
            kind,
            participants: 1,
            spans: match kind {
                OpKind::Overlay | OpKind::Zero => vec![Span { offset: offset as u32, len: len as u32 }],
                _ => Vec::new(),
            },
            identities: Vec::new(),
            base: if kind == OpKind::Patch { self.core.shape(key).identity } else { Seq::NONE },
            unit_blocks: if kind == OpKind::Full { vec![len.div_ceil(BLOCK) as u32] } else { Vec::new() },
            origins: vec![WriteId { client: CLIENT, seq: ClientSeq(self.writes), note: None }],
            acked: vec![(CLIENT, ClientSeq(self.writes.saturating_sub(5)))],
            decided: Seq::NONE,
            urgent: false,
            staged: false,
            crcs: if kind == OpKind::Full { vec![0; len.div_ceil(BLOCK)] } else { Vec::new() },
        }
    }

    /// A whole unit whose bytes are staged for the write that the operation carries.
    fn staged(&mut self, n: u64, now: u64) -> Result<Prepare, Refusal> {
        let mut p = self.request(key(n), OpKind::Full, 0, UNIT);
        (p.staged, p.crcs) = (true, Vec::new());
        let stage = self.stage_of(&p);
        let epoch = Epoch(self.epoch);
        let runs = self.core.room_for_stage(epoch, &stage, 0)?;
        self.core.stage(epoch, &stage, runs, now)?;
        Ok(p)
    }

    fn stage_of(&self, p: &Prepare) -> Stage {
        let (client, seq) = (CLIENT, p.origins[0].seq);
        Stage { group: GROUP, key: p.key, client, seq, slot: 0, crcs: vec![7; UNIT / BLOCK] }
    }

    /// The unit that was staged becomes an operation.
    fn adopt(&mut self, p: &Prepare) -> Result<(), Refusal> {
        match self.core.prepare(p.seq.epoch(), p, 0, 1000, UNIT)? {
            PrepareStep::Adopt(unit) => {
                assert_eq!(unit.crcs, [7; UNIT / BLOCK]);
                self.hold(p, unit.runs)
            }
            other => panic!("{other:?}"),
        }
    }

    fn payload(p: &Prepare) -> usize {
        match p.kind {
            OpKind::Full => p.unit_blocks[0] as usize * BLOCK,
            OpKind::Overlay => p.spans.iter().map(|span| span.len as usize).sum(),
            OpKind::Zero | OpKind::Patch => 0,
        }
    }

    fn prepare(&mut self, p: &Prepare) -> Result<PrepareStep, Refusal> {
        self.core.prepare(p.seq.epoch(), p, Bench::payload(p), 1000, UNIT)
    }

    /// The bytes have been written: the record.
    fn hold(&mut self, p: &Prepare, runs: Vec<Run>) -> Result<(), Refusal> {
        self.core.may_hold(p.group, p.key, p.seq)?;
        let blocks: u32 = runs.iter().map(|run| run.blocks).sum();
        let sums = if p.kind == OpKind::Full { blocks } else { p.spans.len() as u32 };
        let mut hold = PrepareRecord {
            group: p.group,
            seq: p.seq,
            key: p.key,
            slot: p.slot,
            kind: p.kind,
            participants: p.participants,
            spans: p.spans.clone(),
            base: p.base,
            blocks,
            unit_blocks: p.unit_blocks.clone(),
            identities: p.identities.clone(),
            fresh: runs.clone(),
            runs,
            crcs: (0..sums).map(|i| p.seq.0 as u32 + i).collect(),
            origins: p.origins.clone(),
            acked: p.acked.clone(),
        };
        if p.kind == OpKind::Patch {
            let found = self.core.patch_input(p, UNIT)?;
            hold.runs = found.runs(&hold.fresh);
            hold.blocks = found.blocks.len() as u32;
            hold.unit_blocks = found.unit_blocks;
            hold.crcs = found.blocks.iter().map(|(_, sum)| *sum).collect();
            found.rows.iter().for_each(|row| hold.crcs[*row as usize] = p.seq.0 as u32 + row);
        }
        self.record(Recorded::Prepare(hold));
        Ok(())
    }

    /// An operation from beginning to end, undecided.
    fn write(&mut self, n: u64, kind: OpKind, offset: usize, len: usize) -> Result<Seq, Refusal> {
        let p = self.request(key(n), kind, offset, len);
        match self.prepare(&p)? {
            PrepareStep::Write(runs) => self.hold(&p, runs)?,
            other => panic!("{other:?}"),
        }
        Ok(p.seq)
    }

    fn decide(&mut self, upto: Seq) {
        self.record(Recorded::Decided(Decided { group: GROUP, upto }));
    }

    fn read(&self, n: u64) -> Result<ReadPlan, Refusal> {
        self.core.plan_read(key(n), 0, 0, 0..UNIT, None, &[])
    }

    /// Empties the oldest segments of the journal, as a checkpoint does. `freed`: the power did not fail before.
    fn checkpoint(&mut self, segments: u64, freed: bool) {
        let oldest = self.journal.first().map_or(0, |(stamp, _)| stamp.serial);
        let upto = (oldest + segments).min(self.lsn / 7);
        for (key, seq) in self.core.live_records(upto) {
            let Some(LiveRecord { record, position }) = self.core.live_record(key, seq) else { continue };
            self.lsn += 1;
            let stamp = Stamp { lsn: self.lsn, serial: 1 + self.lsn / 7 };
            self.journal.push((stamp, Recorded::Prepare(record)));
            self.core.relocated(key, seq, position, stamp);
        }
        for id in self.core.stale_groups(upto) {
            let snapshot = self.core.snapshot(id).expect("a group");
            self.lsn += 1;
            let stamp = Stamp { lsn: self.lsn, serial: 1 + self.lsn / 7 };
            self.journal.push((stamp, Recorded::Snapshot(snapshot)));
            self.core.snapshotted(id, stamp);
        }
        self.core.drop_tombstones(oldest);
        for Change { key, descriptor, .. } in self.core.take_changes(upto, usize::MAX, &mut None) {
            match descriptor {
                Some(descriptor) => drop(self.at_rest.insert(key, descriptor)),
                None => {
                    self.at_rest.remove(&key);
                    self.core.erased_written(key);
                }
            }
        }
        if freed {
            self.journal.retain(|(stamp, _)| stamp.serial > upto);
        }
    }

    /// What a restart makes of the journal and the descriptors.
    fn replay(&self) -> SlotCore {
        let mut core = SlotCore::new(BLOCKS);
        let load = |core: &mut SlotCore, key: &StripeKey| {
            if let Some(descriptor) = self.at_rest.get(key) {
                core.loaded(descriptor.clone());
            }
        };
        for (stamp, record) in &self.journal {
            match record {
                Recorded::Prepare(hold) => load(&mut core, &hold.key),
                Recorded::Forget(forget) => load(&mut core, &forget.key),
                Recorded::Drop(drop) => {
                    self.at_rest
                        .range(below(drop.object, drop.stripes))
                        .for_each(|(key, _)| load(&mut core, key));
                }
                _ => {}
            }
            apply(&mut core, record, Stamp { lsn: 0, serial: stamp.serial });
        }
        let left = self.at_rest.values().filter(|descriptor| !core.is_resident(descriptor.key));
        let runs: Vec<Run> = left.flat_map(|descriptor| descriptor.base.runs.clone()).collect();
        core.mark_at_rest(&runs);
        core.replayed(1 + self.lsn / 7);
        core
    }

    /// Everything that matters, as text.
    fn state(&self, core: &SlotCore) -> Vec<String> {
        let mut lines = Vec::new();
        let overlays = core.units.values().flat_map(|unit| unit.overlays.values());
        assert_eq!(core.overlay_bytes, overlays.map(|kept| kept.weight()).sum::<usize>());
        for n in 0..16 {
            let key = key(n);
            let unit = core.units.get(&key);
            let base = match unit {
                Some(unit) => unit.base.clone(),
                None if core.erased.contains_key(&key) => None,
                None => self.at_rest.get(&key).map(|descriptor| descriptor.base.clone()),
            };
            let base = base.filter(|base| base.blocks > 0);
            let kept = |kept: &BTreeMap<Seq, Box<LogEntry>>| kept.keys().copied().collect::<Vec<Seq>>();
            let (pending, overlays) =
                unit.map_or_else(Default::default, |u| (kept(&u.pending), kept(&u.overlays)));
            lines.push(format!("{key} {base:?} pending {pending:?} overlays {overlays:?}"));
        }
        for (id, group) in &core.groups {
            let SlotGroup { promised, served, decided, held, aborted, .. } = group;
            let windows: Vec<DedupWindow> = group.windows();
            lines.push(format!("{id} {promised} {served:?} {decided} {held:?} {aborted:?} {windows:?}"));
        }
        lines.push(format!("{} free", core.free_blocks()));
        lines
    }
}

fn apply(core: &mut SlotCore, record: &Recorded, stamp: Stamp) {
    match record {
        Recorded::Prepare(hold) => core.apply_prepare(hold.clone(), Position::default(), stamp),
        Recorded::Decided(decided) => core.apply_decided(decided.group, decided.upto, stamp),
        Recorded::Promise(promise) => core.apply_promise(promise.group, promise.epoch, stamp),
        Recorded::Settle(settle) => core.apply_settle(settle, stamp),
        Recorded::Snapshot(snapshot) => core.apply_snapshot(snapshot, stamp),
        Recorded::Drop(drop) => core.apply_drop(drop.object, drop.stripes, stamp),
        Recorded::Forget(forget) => core.apply_forget(forget, stamp),
    }
}

#[test]
fn a_full_write_becomes_the_base_when_it_is_decided() {
    let mut bench = Bench::serving();
    let first = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    assert_eq!(bench.read(0).map(|_| ()), Err(Refusal::Pending));
    let known = bench.core.plan_read(key(0), 0, 0, 0..UNIT, None, &[first]).expect("the primary knows");
    assert_eq!((known.identity, known.blocks.1.len()), (first, 4));
    bench.decide(first);
    assert_eq!(bench.read(0).expect("decided").identity, first);
    // A shorter one takes its place; its blocks are free once that is durable.
    let second = bench.write(0, OpKind::Full, 0, 100).expect("space");
    assert_eq!(bench.core.free_blocks(), BLOCKS - 5);
    bench.decide(second);
    assert_eq!(bench.core.free_blocks(), BLOCKS - 1);
    assert!(bench.core.waits_for_sync());
    assert_eq!(bench.core.space.free(), BLOCKS - 5, "not before it is durable");
    bench.core.synced(bench.lsn);
    assert_eq!(bench.core.space.free(), BLOCKS - 1);
    let plan = bench.read(0).expect("decided");
    assert_eq!((plan.identity, plan.blocks.1.len(), plan.present), (second, 1, BLOCK));
}

#[test]
fn overlays_lie_over_the_base_until_a_full_write() {
    let mut bench = Bench::serving();
    let base = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    let over = bench.write(0, OpKind::Overlay, 100, 50).expect("space");
    let zero = bench.write(0, OpKind::Zero, 120, 5000).expect("space");
    bench.decide(over);
    assert_eq!(bench.read(0).map(|_| ()), Err(Refusal::Pending), "the zeros are undecided");
    let before = bench.core.plan_read(key(0), 0, 0, 0..110, None, &[]).expect("they do not reach so far");
    assert_eq!(before.overlays.len(), 1);
    bench.decide(zero);
    let plan = bench.read(0).expect("decided");
    let pieces: Vec<_> = plan.overlays.iter().map(|p| (p.source.is_some(), p.from, p.to, p.len)).collect();
    assert_eq!(pieces, [(true, 0, 100, 50), (false, 0, 120, 5000)]);
    // By identity: the base alone, and no other.
    let at = |identity| bench.core.plan_read(key(0), 0, 0, 0..UNIT, Some(identity), &[]);
    assert_eq!(at(base).expect("the base").overlays, []);
    assert_eq!(at(over).map(|_| ()), Err(Refusal::Corrupt));
    assert_eq!(at(Seq::NONE).map(|_| ()), Err(Refusal::Corrupt));
    let full = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    assert_eq!(bench.core.resident(), (1, 2));
    bench.decide(full);
    assert_eq!((bench.core.resident(), bench.read(0).expect("decided").overlays.len()), ((1, 0), 0));
}

#[test]
fn a_patch_moves_what_overlays_touch_and_changes_nothing_until_it_is_decided() {
    let mut bench = Bench::serving();
    let base = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    let over = bench.write(0, OpKind::Overlay, BLOCK + 100, 50).expect("space");
    bench.decide(over);
    let before = bench.read(0).expect("decided");
    let patch = bench.write(0, OpKind::Patch, 0, 0).expect("space");
    assert_eq!(bench.core.free_blocks(), BLOCKS - 5, "one block");
    let undecided = bench.read(0).expect("the content is the same");
    assert_eq!((undecided.identity, &undecided.blocks), (base, &before.blocks));
    assert_eq!(undecided.overlays, before.overlays);
    let known = bench.core.plan_read(key(0), 0, 0, 0..UNIT, None, &[patch]).expect("the primary knows");
    assert_eq!((known.identity, known.overlays.len()), (patch, 0));
    // An overlay behind it stays one.
    let later = bench.write(0, OpKind::Overlay, 0, 10).expect("space");
    bench.decide(later);
    let after = bench.read(0).expect("decided");
    assert_eq!((after.identity, after.overlays.len()), (patch, 1));
    let moved: Vec<bool> = before.blocks.1.iter().zip(&after.blocks.1).map(|(a, b)| a != b).collect();
    assert_eq!(moved, [false, true, false, false]);
    assert_eq!(bench.core.free_blocks(), BLOCKS - 4, "the old block is free");
    // One that is aborted leaves everything as it was.
    let dies = bench.write(0, OpKind::Patch, 0, 0).expect("space");
    bench.take_over(&[dies]);
    assert_eq!(bench.read(0).expect("settled").overlays, after.overlays);
    assert_eq!(bench.core.free_blocks(), BLOCKS - 4);
}

#[test]
fn amendment_5_a_patch_of_another_base_or_beyond_the_base_is_refused() {
    let mut bench = Bench::serving();
    bench.write(0, OpKind::Full, 0, 2 * BLOCK).expect("space");
    assert_eq!(bench.write(0, OpKind::Patch, 0, 0), Err(Refusal::Corrupt), "there is nothing to fold");
    bench.write(0, OpKind::Overlay, 10, 10).expect("space");
    let mut other = bench.request(key(0), OpKind::Patch, 0, 0);
    other.base = Seq::new(Epoch(0), 77);
    assert_eq!(bench.prepare(&other), Err(Refusal::Corrupt));
    bench.write(0, OpKind::Overlay, 3 * BLOCK, 10).expect("space");
    assert_eq!(bench.write(0, OpKind::Patch, 0, 0), Err(Refusal::Corrupt), "not within the base");
    assert_eq!(bench.core.free_blocks(), BLOCKS - 2);
}

#[test]
fn an_empty_full_write_leaves_zeros() {
    let mut bench = Bench::serving();
    bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    bench.write(0, OpKind::Overlay, 0, 10).expect("space");
    let empty = bench.write(0, OpKind::Full, 0, 0).expect("space");
    bench.decide(empty);
    let plan = bench.read(0).expect("decided");
    assert_eq!((plan.blocks.1.len(), plan.overlays.len(), plan.present), (0, 0, 0));
    assert_eq!(bench.core.free_blocks(), BLOCKS);
}

#[test]
fn repeats_are_recognised() {
    let mut bench = Bench::serving();
    let p = bench.request(key(0), OpKind::Full, 0, UNIT);
    let Ok(PrepareStep::Write(runs)) = bench.prepare(&p) else { panic!("fresh") };
    assert_eq!(bench.prepare(&p), Ok(PrepareStep::InFlight));
    bench.hold(&p, runs).expect("the epoch is the same");
    assert_eq!(bench.prepare(&p), Ok(PrepareStep::Prepared));
    bench.decide(p.seq);
    assert_eq!(bench.prepare(&p), Ok(PrepareStep::Prepared));
    assert_eq!(bench.core.free_blocks(), BLOCKS - 4);
}

#[test]
fn superseded_epochs_are_refused() {
    let mut bench = Bench::serving();
    let (old, coming) =
        (bench.request(key(0), OpKind::Full, 0, UNIT), bench.request(key(1), OpKind::Full, 0, UNIT));
    let Ok(PrepareStep::Write(runs)) = bench.prepare(&coming) else { panic!("fresh") };
    bench.record(Recorded::Promise(Promise { group: GROUP, epoch: Epoch(2) }));
    assert_eq!(bench.prepare(&old), Err(Refusal::StaleEpoch));
    assert_eq!(bench.hold(&coming, runs), Err(Refusal::StaleEpoch), "its bytes came too late");
    assert_eq!(bench.core.free_blocks(), BLOCKS);
    bench.epoch = 2;
    let early = bench.request(key(0), OpKind::Full, 0, UNIT);
    assert_eq!(bench.prepare(&early), Err(Refusal::NotServing), "promised, but not yet served");
    bench.epoch = 1;
    bench.take_over(&[]);
    bench.write(0, OpKind::Full, 0, UNIT).expect("served");
}

#[test]
fn a_take_over_aborts_what_it_names_and_commits_the_rest() {
    let mut bench = Bench::serving();
    let base = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    let lives = bench.write(1, OpKind::Full, 0, UNIT).expect("space");
    let dies = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    let over = bench.write(0, OpKind::Overlay, 0, 10).expect("space");
    assert_eq!(
        bench.core.tail(GROUP, 0).held.iter().map(|op| op.seq).collect::<Vec<_>>(),
        [base, lives, dies, over]
    );
    bench.take_over(&[dies, over]);
    assert_eq!(bench.read(0).expect("settled").identity, base);
    assert_eq!(bench.read(1).expect("settled").identity, lives);
    assert_eq!(bench.core.tail(GROUP, 0).held, []);
    assert_eq!(bench.core.free_blocks(), BLOCKS - 8);
    let seen: Vec<u64> = bench.core.tail(GROUP, 0).windows[0].seen.iter().map(|seq| seq.0).collect();
    assert_eq!(seen, [1, 2], "writes of aborted operations are not seen");
}

#[test]
fn a_dropped_object_takes_nothing_any_more() {
    let mut bench = Bench::serving();
    let decided = bench.write(0, OpKind::Full, 0, UNIT).expect("space");
    bench.decide(decided);
    bench.write(1, OpKind::Full, 0, UNIT).expect("space");
    let p = bench.request(key(2), OpKind::Full, 0, UNIT);
    let Ok(PrepareStep::Write(runs)) = bench.prepare(&p) else { panic!("fresh") };
    bench.write(4, OpKind::Full, 0, UNIT).expect("space");
    bench.record(Recorded::Drop(Drop { object: key(0).object, stripes: 4 }));
    assert_eq!(bench.hold(&p, runs), Err(Refusal::ObjectRemoved), "it came while the object went");
    assert_eq!(bench.write(3, OpKind::Overlay, 0, 10), Err(Refusal::ObjectRemoved));
    assert_eq!(bench.core.free_blocks(), BLOCKS - 4, "the other object's");
    assert_eq!(bench.read(0).expect("zeros").present, 0);
}

#[test]
fn without_space_nothing_is_taken() {
    let mut bench = Bench::serving();
    for n in 0..BLOCKS / 64 {
        let p = bench.request(key(n), OpKind::Full, 0, 64 * BLOCK);
        assert!(matches!(bench.prepare(&p), Ok(PrepareStep::Write(_))));
    }
    let p = bench.request(key(9), OpKind::Full, 0, BLOCK);
    assert_eq!(bench.prepare(&p), Err(Refusal::NoSpace));
    assert!(bench.write(9, OpKind::Overlay, 0, 10).is_ok(), "overlays lie in the journal");
    let mut bench = Bench::serving();
    let p = bench.request(key(0), OpKind::Full, 0, BLOCK);
    assert_eq!(
        bench.core.prepare(p.seq.epoch(), &p, BLOCK, 0, UNIT),
        Err(Refusal::NoSpace),
        "no place for a descriptor"
    );
}

#[test]
fn a_staged_unit_is_taken_once() {
    let mut bench = Bench::serving();
    let p = bench.staged(0, 5).expect("space");
    assert_eq!(bench.core.free_blocks(), BLOCKS, "what nobody has come for may be dropped at any time");
    assert_eq!(bench.core.space.free(), BLOCKS - 4);
    bench.adopt(&p).expect("staged");
    assert_eq!(bench.core.free_blocks(), BLOCKS - 4);
    assert_eq!(bench.core.prepare(p.seq.epoch(), &p, 0, 1000, UNIT), Ok(PrepareStep::Prepared));
    let again = Prepare { seq: bench.next_seq(), ..p.clone() };
    assert_eq!(bench.adopt(&again), Err(Refusal::NotStaged));
    bench.decide(p.seq);
    assert_eq!(bench.read(0).expect("decided").blocks.1.len(), 4);
}

#[test]
fn only_the_operation_that_it_is_for_takes_a_staged_unit() {
    let mut bench = Bench::serving();
    let p = bench.staged(0, 5).expect("space");
    let other_write = WriteId { client: CLIENT, seq: ClientSeq(99), note: None };
    for wrong in [
        Prepare { key: key(1), ..p.clone() },
        Prepare { slot: 1, participants: 3, ..p.clone() },
        Prepare { origins: vec![other_write], ..p.clone() },
        Prepare { unit_blocks: vec![3], ..p.clone() },
    ] {
        assert_eq!(bench.adopt(&wrong), Err(Refusal::NotStaged), "{wrong:?}");
    }
    for malformed in [
        Prepare { origins: Vec::new(), ..p.clone() },
        Prepare { kind: OpKind::Overlay, ..p.clone() },
        Prepare { crcs: vec![0; 3], staged: false, ..p.clone() },
    ] {
        assert_eq!(bench.adopt(&malformed), Err(Refusal::Malformed), "{malformed:?}");
    }
    bench.adopt(&p).expect("it is still there");
}

#[test]
fn staged_units_go_with_age_epoch_object_and_the_plain_way() {
    let gone = |how: &dyn Fn(&mut Bench, &Prepare)| {
        let mut bench = Bench::serving();
        let p = bench.staged(0, 5).expect("space");
        how(&mut bench, &p);
        bench.core.space.free()
    };
    assert_eq!(gone(&|bench, _| bench.core.drop_staged_before(5)), BLOCKS - 4, "young enough");
    assert_eq!(gone(&|bench, _| bench.core.drop_staged_before(6)), BLOCKS);
    assert_eq!(gone(&|bench, _| bench.take_over(&[])), BLOCKS);
    let drop = |bench: &mut Bench, _: &Prepare| {
        bench.record(Recorded::Drop(Drop { object: key(0).object, stripes: 4 }));
    };
    assert_eq!(gone(&drop), BLOCKS);
    let plain = |bench: &mut Bench, p: &Prepare| {
        let plain = Prepare { staged: false, crcs: vec![0; UNIT / BLOCK], ..p.clone() };
        assert!(matches!(bench.prepare(&plain), Ok(PrepareStep::Write(_))));
    };
    assert_eq!(gone(&plain), BLOCKS - 4, "one place, not two");
    // The bytes are on their way to the disk when the epoch ends.
    let mut bench = Bench::serving();
    let p = bench.request(key(0), OpKind::Full, 0, UNIT);
    let stage = bench.stage_of(&p);
    let runs = bench.core.room_for_stage(Epoch(1), &stage, 0).expect("space");
    bench.take_over(&[]);
    assert_eq!(bench.core.stage(Epoch(1), &stage, runs, 0), Err(Refusal::StaleEpoch));
    assert_eq!(bench.core.space.free(), BLOCKS);
    assert_eq!(bench.core.room_for_stage(Epoch(2), &stage, BLOCKS - 3), Err(Refusal::NoSpace), "the reserve");
    assert_eq!(bench.core.room_for_stage(Epoch(1), &stage, 0), Err(Refusal::StaleEpoch));
}

#[derive(Clone, Debug)]
enum Step {
    Full(u64, usize),
    Over(u64, OpKind, usize, usize),
    /// Stages a unit, and has an operation take it or not.
    Staged(u64, bool),
    /// Whatever is staged has become too old.
    Expire,
    /// Folds the overlays of a stripe, if they lie within its blocks.
    Patch(u64),
    /// Decides so many of the held operations.
    Decide(usize),
    /// A take-over that aborts every so-manieth held operation and its followers on the same stripe.
    TakeOver(usize),
    Drop(u64),
    Sync,
    Checkpoint(u64, bool),
    Evict,
    /// The process ends; the next one replays.
    Restart,
    /// A unit that this slot has missed.
    Fill(u64, u32),
    Forget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..16, 0..=UNIT).prop_map(|(n, len)| Step::Full(n, len)),
        1 => (0u64..16).prop_map(|n| Step::Full(n, 0)),
        5 => (0u64..16, any::<bool>(), 0..UNIT - 1, 1..2000usize).prop_map(|(n, zero, offset, len)| {
            Step::Over(n, if zero { OpKind::Zero } else { OpKind::Overlay }, offset, len.min(UNIT - offset))
        }),
        3 => (0u64..16, prop::bool::weighted(0.7)).prop_map(|(n, taken)| Step::Staged(n, taken)),
        1 => Just(Step::Expire),
        4 => (0u64..16).prop_map(Step::Patch),
        5 => (0usize..6).prop_map(Step::Decide),
        1 => (1usize..6).prop_map(Step::TakeOver),
        1 => (1u64..5).prop_map(Step::Drop),
        2 => Just(Step::Sync),
        2 => (0u64..4, prop::bool::weighted(0.8)).prop_map(|(n, freed)| Step::Checkpoint(n, freed)),
        2 => (0..16u64, 1..=4u32).prop_map(|(n, blocks)| Step::Fill(n, blocks)),
        1 => (0..16u64).prop_map(Step::Forget),
        1 => Just(Step::Evict),
        1 => Just(Step::Restart),
    ]
}

impl Bench {
    /// Brings a unit in, as the server does before it asks for anything.
    fn load(&mut self, key: StripeKey) {
        if let Some(descriptor) = self.at_rest.get(&key) {
            self.core.loaded(descriptor.clone());
        }
    }

    fn step(&mut self, step: &Step) {
        let held: Vec<(Seq, StripeKey)> =
            self.core.tail(GROUP, 0).held.iter().map(|op| (op.seq, op.key)).collect();
        match step {
            Step::Full(n, len) => {
                self.load(key(*n));
                let _ = self.write(*n, OpKind::Full, 0, *len);
            }
            Step::Over(n, kind, offset, len) => {
                self.load(key(*n));
                let _ = self.write(*n, *kind, *offset, *len);
            }
            Step::Staged(n, taken) => {
                self.load(key(*n));
                if let Ok(p) = self.staged(*n, 0)
                    && *taken
                {
                    self.adopt(&p).expect("it is there");
                }
            }
            Step::Expire => self.core.drop_staged_before(1),
            Step::Patch(n) => {
                self.load(key(*n));
                let _ = self.write(*n, OpKind::Patch, 0, 0);
            }
            Step::Decide(count) => {
                if let Some((seq, _)) = held.get(*count) {
                    self.decide(*seq);
                }
            }
            Step::TakeOver(every) => {
                let mut cut = BTreeSet::new();
                let dies = |(i, (_, key)): &(usize, &(Seq, StripeKey))| {
                    if i % every == every - 1 {
                        cut.insert(*key);
                    }
                    cut.contains(key)
                };
                let aborted: Vec<Seq> =
                    held.iter().enumerate().filter(dies).map(|(_, (seq, _))| *seq).collect();
                self.take_over(&aborted);
            }
            Step::Drop(object) => {
                let object = ObjectId(*object);
                (0..4).for_each(|stripe| self.load(StripeKey { object, stripe }));
                self.record(Recorded::Drop(Drop { object, stripes: 4 }));
            }
            Step::Fill(n, blocks) => {
                self.load(key(*n));
                let seq = self.next_seq();
                self.decide(seq);
                let _ = self.fill(&fill(*n, seq, *blocks));
            }
            Step::Forget(n) => {
                self.load(key(*n));
                self.fill(&fill(*n, Seq::NONE, 0)).expect("nothing is in the way");
            }
            Step::Sync => self.core.synced(self.lsn),
            Step::Checkpoint(segments, freed) => self.checkpoint(*segments, *freed),
            Step::Evict => self.core.evict(0),
            Step::Restart => self.core = self.replay(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// At any moment a restart would come to the same state, whatever of the journal has been freed. That no block
    /// has two owners, live or replayed, the allocator asserts.
    #[test]
    fn a_replay_comes_to_the_same(steps in proptest::collection::vec(step(), 0..120)) {
        let mut bench = Bench::serving();
        for (at, step) in steps.iter().enumerate() {
            bench.step(step);
            let replayed = bench.replay();
            prop_assert_eq!(bench.state(&replayed), bench.state(&bench.core), "after step {} {:?}", at, step);
        }
    }
}
