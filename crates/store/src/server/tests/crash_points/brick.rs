//! One brick whose messages the test sends itself: no arbiter, no client, no task but the one that syncs the journal.

use std::collections::BTreeSet;

use types::Seq;
use types::checksum::crc_blocks;
use types::messages::brick::{Decide, Fill, GroupDecision, NewEpoch, OpKind, Prepare, Stage, Tail};
use world::sim::{DiskEvent, DiskImage, Recording};

use super::super::*;
use super::UNIT;
use super::images::Crash;
use super::oracle::{Fate, History, Op, Settled, UnitContent};
use crate::ops::UnitRead;
use crate::slot::ClientTable;

/// The object that the workloads write to, which has one stripe, and another one.
pub(super) const FIRST: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
pub(super) const OTHER: StripeKey = StripeKey { object: ObjectId(2), stripe: 0 };
/// Epochs of the take-overs behind the first and the second crash.
const LATER: [Epoch; 2] = [Epoch(90), Epoch(91)];

/// Which slot of a `2+1` the brick is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Data,
    Parity,
}

impl Role {
    pub(super) fn slot(self) -> u8 {
        match self {
            Role::Data => 0,
            Role::Parity => 2,
        }
    }

    /// The part of a stripe that is the slot's own.
    pub(super) fn unit(self) -> std::ops::Range<usize> {
        match self {
            Role::Data => 0..UNIT,
            Role::Parity => 0..0,
        }
    }
}

/// A machine with a disk that is opened, and lost, again and again.
pub(super) struct Rig {
    pub(super) sim: Simulation,
    pub(super) role: Role,
    superblock: Superblock,
}

/// A journal of which a few records fill a segment. Space for two units and a bit, 9 blocks: they are soon used again.
fn superblock(data_blocks: u64) -> Superblock {
    let base = small(data_blocks);
    let (segment, segments, pages) = (12 << 10, 8, 16);
    let pages_start = base.journal_start + segment * u64::from(segments);
    let data_start = pages_start + u64::from(pages) * 2 * crate::table::PAGE as u64;
    Superblock { segment, segments, pages_start, pages, data_start, ..base }
}

impl Rig {
    pub(super) fn new(seed: u64, role: Role) -> Rig {
        Rig::with(seed, role, superblock(9))
    }

    /// A rig with space for more units.
    pub(super) fn roomy(seed: u64, role: Role) -> Rig {
        Rig::with(seed, role, superblock(64))
    }

    fn with(seed: u64, role: Role, superblock: Superblock) -> Rig {
        let rig = Rig { sim: Simulation::new(seed, SimOptions::default()), role, superblock };
        let world = rig.sim.node("brick");
        rig.sim.block_on("brick", async {
            let disk = world.create_disk("disk", rig.superblock.size).await.expect("a new disk");
            rig.superblock.write(&disk).await.expect("written");
            disk.sync().await.expect("synced");
        });
        rig.sim.kill("brick");
        rig
    }

    /// Puts the disk as an image has it.
    pub(super) fn restore(&self, image: &DiskImage) {
        self.sim.kill("brick");
        self.sim.restore_disk("brick", "disk", image);
    }

    pub(super) fn record(&self) -> (DiskImage, Recording) {
        self.sim.record_disk("brick", "disk")
    }

    /// Writes what the last process on the disk had written and not synced.
    async fn leave_in_cache(&self, writes: &[(u64, &Buf)]) {
        if writes.is_empty() {
            return;
        }
        let world = self.sim.node("brick");
        let disk = world.open_disk("disk").await.expect("the disk is there");
        for (offset, bytes) in writes {
            disk.write(*offset, vec![(*bytes).clone()]).await.expect("written");
        }
    }

    /// Opens the brick, which must recover.
    pub(super) async fn open(&self) -> Rc<Server> {
        let world = self.sim.node("brick");
        let disk = world.open_disk("disk").await.expect("the disk is there");
        let options = BrickOptions {
            brick: BRICK,
            node: NodeId(1),
            identity: identity(types::messages::session::Role::Brick),
            listen: AT.to_owned(),
            advertise: None,
            meta: "meta:1".to_owned(),
            memory_budget: 1 << 20,
            threads: 1,
            depth: world::direct::DEPTH,
            policy: PolicyName::Noop,
            priority: None,
            class: BrickClass::Ssd,
        };
        let Brick { server, .. } =
            Brick::start(world.clone(), disk, None, options).await.expect("a brick recovers");
        server.shards.first().lease_until.set(u64::MAX);
        *server.shards.first().map.borrow_mut() = Rc::new(map(Epoch(1), self.role));
        world.spawn("test", server.clone().sync_journal());
        server
    }
}

fn config(epoch: Epoch, role: Role) -> GroupConfig {
    let slot = |slot: u8| {
        let brick = if slot == role.slot() { BRICK } else { BrickId(100 + u32::from(slot)) };
        SlotConfig { brick, state: SlotState::Live }
    };
    GroupConfig { epoch, slots: (0..3).map(slot).collect() }
}

fn map(epoch: Epoch, role: Role) -> ClusterMap {
    let code = Code::new(2, 1).expect("a code");
    let geometry = Geometry::new(code, UNIT as u32, 64).expect("a geometry");
    cluster_map(geometry, vec![config(epoch, role)])
}

/// Sends an operation, its unit staged before if `staged`.
pub(super) async fn send(
    server: &Rc<Server>,
    role: Role,
    op: &Op,
    base: Seq,
    data: [Seq; 2],
    staged: bool,
) -> Result<(), Refusal> {
    let epoch = op.seq.epoch();
    let payload = Buf::copy_of(&op.bytes);
    let blocks = (op.bytes.len() / BLOCK) as u32;
    let crcs = if op.kind == OpKind::Full { crc_blocks(&payload) } else { Vec::new() };
    let origins: Vec<_> = op
        .origin
        .iter()
        .map(|seq| types::messages::brick::WriteId { client: CLIENT, seq: *seq, note: None })
        .collect();
    let is_patch = op.kind == OpKind::Patch;
    let prepare = Prepare {
        group: GROUP,
        seq: op.seq,
        key: op.key,
        slot: role.slot(),
        kind: op.kind,
        participants: 0b111,
        spans: op.spans.clone(),
        unit_blocks: if op.kind == OpKind::Full { vec![blocks; 2] } else { Vec::new() },
        identities: if is_patch && role == Role::Parity { data.to_vec() } else { Vec::new() },
        base: if is_patch { base } else { Seq::NONE },
        origins,
        acked: Vec::new(),
        decided: Seq::NONE,
        urgent: false,
        staged,
        crcs: if staged { Vec::new() } else { crcs.clone() },
    };
    if op.filled {
        let identities = if role == Role::Parity { vec![op.seq; 2] } else { Vec::new() };
        let (group, key, slot, base, decided) = (GROUP, op.key, role.slot(), op.seq, op.seq);
        let unit_blocks = vec![blocks; 2];
        let fill = Fill { group, key, slot, base, unit_blocks, identities, decided, crcs };
        return server.take_fill(epoch, fill, payload).await.map(drop);
    }
    if !staged {
        return server.prepare(epoch, &prepare, payload).await.map(drop);
    }
    let seq = op.origin.expect("a staged unit belongs to a write");
    let stage = Stage { group: GROUP, key: op.key, client: CLIENT, seq, slot: role.slot(), crcs };
    server.stage(epoch, stage, payload).await?;
    server.prepare(epoch, &prepare, Buf::empty()).await.map(drop)
}

/// The group gets a new epoch here: what the slot holds.
pub(super) async fn promise(server: &Rc<Server>, role: Role, epoch: Epoch) -> Tail {
    *server.shards.first().map.borrow_mut() = Rc::new(map(epoch, role));
    let new = NewEpoch { group: GROUP, config: config(epoch, role), map: MapVersion(0) };
    server.new_epoch(new).await.expect("a newer epoch is promised")
}

/// The end of a take-over.
pub(super) async fn decide(server: &Rc<Server>, epoch: Epoch, tail: &Tail, aborted: &[Seq]) {
    let mut windows = ClientTable::default();
    windows.merge(&tail.windows);
    let forwarded = tail.held.iter().filter(|op| !aborted.contains(&op.seq));
    for origin in forwarded.flat_map(|op| &op.origins) {
        windows.mark_seen(origin);
    }
    let decide = Decide {
        group: GROUP,
        upto: Seq::new(epoch, 0),
        aborted: aborted.to_vec(),
        windows: windows.windows(),
    };
    server.decide(epoch, decide).await.expect("the epoch is the promised one");
}

/// Everything up to here is decided.
pub(super) fn decided(epoch: Epoch, upto: Seq) -> GroupDecision {
    GroupDecision { group: GROUP, epoch, upto }
}

/// The unit of a stripe as the brick has it.
pub(super) async fn found(server: &Server, role: Role, epoch: Epoch, key: StripeKey) -> UnitContent {
    let mut content = UnitContent::empty(2 * UNIT);
    let range = 0..UNIT;
    let read = UnitRead {
        group: GROUP,
        key,
        slot: role.slot(),
        range,
        identity: None,
        decided: Vec::new(),
        may_use_cache: false,
    };
    let (answer, bytes) = server.unit(epoch, &read).await.expect("a decided unit can be read");
    let identity = answer.identity;
    let pieces = server.slot.borrow().overlays_over(key, &(0..2 * UNIT), identity);
    for piece in pieces {
        let bytes = server.overlay_bytes(&piece).await.expect("an overlay can be read");
        for i in 0..piece.len {
            content.over[piece.to + i] = Some(bytes.as_ref().map_or(0, |bytes| bytes[i]));
        }
    }
    content.base[..bytes.len()].copy_from_slice(&bytes);
    content
}

/// Fills the segment that is appended to with what nobody needs. False if the journal is too full for that already.
pub(super) fn next_segment(server: &Server) -> bool {
    if server.journal.fill() > 25 {
        return false;
    }
    let record = crate::record::Drop { object: ObjectId(77), stripes: 0 };
    server.journal.append(&record, &Buf::from(vec![0; 7000]));
    true
}

/// Whether a unit's base is what an operation made.
async fn has_base(server: &Server, role: Role, op: &Op) -> bool {
    server.load(op.key).await.expect("it can be looked up");
    server.slot.borrow().plan_read(op.key, role.slot(), 0, 0..UNIT, Some(op.seq), &[]).is_ok()
}

/// Asserts that every block belongs to one unit or is free.
pub(super) async fn check_space(server: &Server) {
    let (mut owned, free) = server.slot.borrow().owned_in_ram();
    server
        .table
        .for_each(|descriptor| {
            if !server.slot.borrow().is_resident(descriptor.key) {
                owned.extend(descriptor.base.runs.iter().cloned());
            }
        })
        .await
        .expect("the descriptors can be read");
    let blocks: Vec<u64> =
        owned.iter().flat_map(|run| run.start..run.start + u64::from(run.blocks)).collect();
    let distinct: BTreeSet<u64> = blocks.iter().copied().collect();
    assert_eq!(distinct.len(), blocks.len(), "a block has two owners: {owned:?}");
    assert_eq!(free + distinct.len() as u64, server.superblock.data_blocks, "a block is lost: {owned:?}");
}

/// A disk, what was asked of it, and what had happened before and meanwhile.
pub(super) struct Crashed {
    pub(super) start: DiskImage,
    pub(super) events: Vec<DiskEvent>,
    pub(super) history: History,
}

/// Opens a brick from what a crash has left, and compares with its history. Returns what the brick did about it, with
/// the history of a second crash.
pub(super) async fn examine(
    rig: &Rig,
    history: &History,
    crash: &Crash<'_>,
    turn: usize,
    forward: bool,
) -> Crashed {
    let ((start, recording), at) = (rig.record(), crash.at);
    rig.leave_in_cache(&crash.cached).await;
    let server = rig.open().await;
    check_space(&server).await;
    let (known, is_dropped) = {
        let slot = server.slot.borrow();
        (slot.decided(GROUP), slot.is_dropped(FIRST.object))
    };
    let tail = promise(&server, rig.role, LATER[turn]).await;
    let told = recording.len();
    assert_eq!(tail.decided, known);
    for settled in &history.settled {
        let is_known = settled.upto <= known;
        assert!(is_known || settled.acked.is_none_or(|acked| acked > at), "a take-over is forgotten");
        assert!(!is_known || settled.issued <= at, "a take-over that never was");
    }
    let purged = match history.purged {
        Some((_, Some(acked))) if acked <= at => true,
        Some((issued, _)) => is_dropped && issued <= at,
        None => false,
    };
    let held: BTreeSet<Seq> = tail.held.iter().map(|op| op.seq).collect();
    let seen: BTreeSet<ClientSeq> = tail.windows.iter().flat_map(|window| window.seen.clone()).collect();
    let mut next = history.until(at);
    // A unit that was given and not answered for is there or not; nothing else tells.
    let unsure = |op: &&Op| {
        let is_over = |time: Option<usize>| time.is_some_and(|time| time <= at);
        op.filled && !op.refused && op.issued <= at && !is_over(op.acked) && !is_over(op.gone)
    };
    let unsure = history.ops.iter().find(unsure);
    let given = match unsure {
        Some(op) => has_base(&server, rig.role, op).await,
        None => false,
    };
    let fate = |op: &Op| match op {
        _ if op.refused
            || op.issued > at
            || (purged && op.key == FIRST)
            || history.is_aborted(op.seq, known) =>
        {
            Fate::Gone
        }
        _ if op.gone.is_some_and(|gone| gone <= at) && !held.contains(&op.seq) => Fate::Gone,
        _ if unsure.is_some_and(|unsure| unsure.seq == op.seq) => {
            if given {
                Fate::Committed
            } else {
                Fate::Gone
            }
        }
        _ if op.seq <= known => Fate::Committed,
        _ if held.contains(&op.seq) => Fate::Held,
        _ => Fate::Gone,
    };
    assert!(
        held.iter().all(|seq| history.ops.iter().any(|op| op.seq == *seq && fate(op) == Fate::Held)),
        "held: {held:?}"
    );
    for op in &history.ops {
        let found = fate(op);
        let acked = op.acked.is_some_and(|acked| acked <= at);
        let excused = op.refused || (purged && op.key == FIRST) || history.is_aborted(op.seq, known);
        assert!(
            found != Fate::Gone || !acked || excused,
            "{}: an operation that was answered is lost",
            op.seq
        );
        let settled = history.known(known).any(|settled| op.seq <= settled.upto);
        assert!(
            found != Fate::Committed || acked || settled || op.filled,
            "{}: decided, but never durable",
            op.seq
        );
        assert!(
            found == Fate::Gone || op.gone.is_none_or(|gone| gone > at),
            "{}: back from the dead",
            op.seq
        );
        let remembered = op.origin.is_some_and(|origin| seen.contains(&origin));
        if op.key != FIRST || !purged {
            assert!(
                found != Fate::Committed || op.origin.is_none() || remembered,
                "{}: its write is forgotten",
                op.seq
            );
            assert!(found != Fate::Gone || !remembered, "{}: its write counts as done", op.seq);
        }
        if let Some(op) = next.ops.iter_mut().find(|later| later.seq == op.seq) {
            match found {
                Fate::Gone => op.gone = op.gone.or(Some(told)),
                Fate::Held | Fate::Committed => op.acked = op.acked.or(Some(told)),
            }
        }
    }
    next.purged = match next.purged {
        Some((_, None)) if purged => Some((0, Some(told))),
        before => before.filter(|_| purged),
    };
    let aborted: Vec<Seq> = if forward { Vec::new() } else { held.iter().copied().collect() };
    let issued = recording.len();
    decide(&server, LATER[turn], &tail, &aborted).await;
    let acked = Some(recording.len());
    let remains = |op: &Op| fate(op) == Fate::Committed || (fate(op) == Fate::Held && forward);
    // One that this recovery has not found never was.
    next.settled.retain(|settled| settled.upto <= known);
    next.settled.push(Settled { upto: Seq::new(LATER[turn], 0), aborted: aborted.clone(), issued, acked });
    for key in [FIRST, OTHER] {
        let mut right = history.content(key, 2 * UNIT, rig.role.unit(), remains);
        right.base = right.read(rig.role.unit());
        assert!(
            found(&server, rig.role, LATER[turn], key).await == right,
            "{key}: other bytes than were written"
        );
    }
    check_space(&server).await;
    let events = recording.events();
    drop_everything(&server).await;
    Crashed { start, events, history: next }
}

/// Purges all objects: every block must come back.
async fn drop_everything(server: &Rc<Server>) {
    for object in [FIRST.object, OTHER.object] {
        server.purge(Purge { objects: vec![object] }).await.expect("purged");
    }
    server.nudge().await.expect("synced");
    server.world.sleep(1).await;
    let free = server.slot.borrow().owned_in_ram().1;
    assert_eq!(free, server.superblock.data_blocks, "a block has not come back");
}
