//! Measures the store and the operations without a network; behind `examples/creates.rs` and `examples/growth.rs`.

use std::time::Duration;

use types::messages::cluster::{BrickClass, BrickJoin, ClientJoin, VolumeCreate};
use types::messages::names::{Caller, Create, FileKind, GetAttr, Linked, Lookup, Owner, ReadDir, Unlink};
use types::wire::from_bytes;
use types::{BrickId, ClientId, ClusterId, Code, Geometry, Incarnation, InodeId, NodeId, Refusal, VolumeId};

use crate::kv::{Engine, Journal, writes_of};
use crate::ops;
use crate::replicas::Opened;
use crate::state::{Change, State};
use crate::{check, create_cluster, keys};
use world::{Notify, World};

/// Why something could not be measured.
type Fault = Box<dyn std::error::Error>;

/// The cost of one kind of operation.
pub struct Measured {
    /// Operations.
    pub changes: u64,
    /// Commits.
    pub batches: u64,
    /// Time that passed.
    pub wall: Duration,
    /// CPU time of the process.
    pub cpu: Duration,
}

struct Load<'a> {
    world: &'a World,
    journal: Option<Journal>,
    state: State,
    volume: VolumeId,
    client: ClientId,
    op: u64,
    clock: &'a dyn Fn() -> (Duration, Duration),
}

/// Makes `count` files in directories of a thousand, reads their attributes, and removes them, `batch` changes to a
/// commit. `clock` tells the time and the CPU time so far. The engine must be empty.
///
/// The time includes the engine's commits, made when half the journal is full: there is no other thread here.
pub fn creates(
    world: &World,
    engine: Engine,
    batch: usize,
    count: usize,
    clock: &dyn Fn() -> (Duration, Duration),
) -> Result<Vec<(&'static str, Measured)>, Fault> {
    create_cluster(&engine, CLUSTER)?;
    let mut load = Load::new(world, engine, clock)?;
    Ok(load.run(batch, count)?)
}

/// The only cluster here.
const CLUSTER: ClusterId = ClusterId([1; 16]);

/// Opens a store as a service that starts.
fn open(world: &World, engine: Engine) -> Result<(State, Option<Journal>), Fault> {
    let (budget, work) = (crate::MEMORY_BUDGET_DEFAULT, Notify::new());
    let opened = crate::replicas::open_store(world, engine, CLUSTER, budget, &work);
    let Opened { store, journal, .. } = world.block_on(opened)?;
    Ok((State::of(store, world.now())?, journal))
}

/// What a store with a number of files costs.
pub struct Grown {
    /// Files.
    pub files: u64,
    /// Creates and removals of further files, lookups of names, and names listed, a second.
    pub creates: f64,
    /// Removals of files a second.
    pub unlinks: f64,
    /// Lookups of names anywhere a second.
    pub lookups: f64,
    /// Names listed a second.
    pub listed: f64,
    /// Time of a start: until the store is open and the service could answer.
    pub start: Duration,
    /// Time of a check of all names.
    pub check: Duration,
}

/// Operations behind each rate of [`Grown`].
const SAMPLE: usize = 20_000;
/// Changes in a record.
const BATCH: usize = 64;

/// Makes files, `in_directory` in each directory, and measures at each of these counts.
pub fn growth(
    world: &World,
    open_engine: &dyn Fn() -> Result<Engine, Fault>,
    counts: &[usize],
    in_directory: usize,
    clock: &dyn Fn() -> (Duration, Duration),
    told: &mut dyn FnMut(&Grown),
) -> Result<(), Fault> {
    let engine = open_engine()?;
    create_cluster(&engine, CLUSTER)?;
    let mut load = Load::new(world, engine, clock)?;
    let (mut directories, mut made) = (Vec::new(), 0);
    for &count in counts {
        let missing = (count + SAMPLE).div_ceil(in_directory) - directories.len();
        directories.extend(load.directories_from(directories.len(), missing)?);
        let file = |at: usize| (directories[at / in_directory], format!("file-{at:08}").into_bytes());
        let make = |load: &mut Load<'_>, range: std::ops::Range<usize>| {
            let files: Vec<_> = range.map(file).collect();
            load.measure(BATCH, &files, |load, (parent, name)| load.create(*parent, name.clone()))
        };
        while made < count {
            let next = count.min(made + SAMPLE);
            make(&mut load, made..next)?;
            made = next;
        }
        let rate = |measured: &Measured| measured.changes as f64 / measured.wall.as_secs_f64();
        let creates = rate(&make(&mut load, count..count + SAMPLE)?);
        let more: Vec<_> = (count..count + SAMPLE).map(file).collect();
        let gone = load.measure(BATCH, &more, |load, (parent, name)| load.unlink(*parent, name.clone()));
        let unlinks = rate(&gone?);

        let before = clock();
        for at in 0..SAMPLE {
            let (parent, name) = file(at * 7919 % count);
            let request = Lookup { volume: load.volume, parent, name };
            load.state.read(|txn| ops::lookup(txn, &request))?;
        }
        let lookups = rate(&load.since(before, SAMPLE as u64, 1));
        let (before, mut names) = (clock(), 0);
        for directory in &directories[..(SAMPLE / in_directory).clamp(1, directories.len())] {
            names += load.list(*directory, SAMPLE as u64)?;
        }
        let listed = rate(&load.since(before, names, 1));

        drop(load);
        let before = clock();
        let engine = open_engine()?;
        load = Load::reopen(world, engine.clone(), clock)?;
        let start = clock().0 - before.0;
        let before = clock();
        let checked = check::check(&mut engine.snapshot()?, 8 << 30, 0, None, &mut |_| {});
        let is_well = checked.is_ok_and(|checked| checked.found.is_empty() && checked.inodes > count as u64);
        if !is_well {
            return Err("the check finds faults".into());
        }
        let check = clock().0 - before.0;
        told(&Grown { files: count as u64, creates, unlinks, lookups, listed, start, check });
    }
    Ok(())
}

impl<'a> Load<'a> {
    /// A client of a new volume in a new store.
    fn new(
        world: &'a World,
        engine: Engine,
        clock: &'a dyn Fn() -> (Duration, Duration),
    ) -> Result<Load<'a>, Fault> {
        let (mut state, journal) = open(world, engine)?;
        make_volume(&mut state)?;
        Load::join(world, state, journal, clock)
    }

    /// A client of a volume that exists.
    fn reopen(
        world: &'a World,
        engine: Engine,
        clock: &'a dyn Fn() -> (Duration, Duration),
    ) -> Result<Load<'a>, Fault> {
        let (state, journal) = open(world, engine)?;
        Load::join(world, state, journal, clock)
    }

    fn join(
        world: &'a World,
        mut state: State,
        journal: Option<Journal>,
        clock: &'a dyn Fn() -> (Duration, Duration),
    ) -> Result<Load<'a>, Fault> {
        let join = ClientJoin {
            volume: "v".into(),
            client: None,
            opens: Vec::new(),
            exclusive: false,
            place: String::new(),
        };
        let joined = state.client_join(&join, 0, 0)?;
        let (client, volume) = (joined.client, joined.volume);
        Ok(Load { world, journal, state, volume, client, op: 0, clock })
    }
}

fn make_volume(state: &mut State) -> Result<(), Fault> {
    let join = BrickJoin {
        brick: BrickId(1),
        device: [1; 16],
        node: NodeId(1),
        address: "n1:1".into(),
        capacity: 1,
        free: 1,
        incarnation: Incarnation(1),
        class: BrickClass::Ssd,
        shard: types::ShardId::FIRST,
        shards: Vec::new(),
        restored: 0,
        reach: Default::default(),
    };
    let writes = state.cluster.join(&join, 0)?;
    state.commit_or_fail(writes)?;
    let code = Code::new(1, 0).expect("1+0 is a code");
    let geometry = Geometry::new(code, 4096, 64).expect("a small geometry is one");
    let make = VolumeCreate {
        name: "v".into(),
        geometry,
        groups: 1,
        same_node: true,
        block: None,
        class: None,
        tiers: Vec::new(),
        placement: None,
        near_writer: false,
        shard: None,
        token: 0,
    };
    state.volume_create(&make, 1)?;
    Ok(())
}

/// Writes the gathered changes to the journal.
async fn write(state: &mut State, journal: Option<&mut Journal>) -> Result<(), Refusal> {
    let Some(journal) = journal else { return Ok(()) };
    let failed = |_| Refusal::MetaFailed;
    while let Some(record) = state.store.next_record().map_err(failed)? {
        if !journal.fits(record.bytes.len()) {
            state.store.freeze();
            if let Some((table, last)) = state.store.frozen() {
                let engine = state.store.engine().clone();
                engine.advance(&keys::applied(), last, writes_of(&table)).map_err(failed)?;
                state.store.take_flushed(&table).map_err(failed)?;
            }
            journal.switch_half();
        }
        journal.append(&record.bytes).await.map_err(|_| Refusal::MetaFailed)?;
        state.store.first_is_chosen();
    }
    Ok(())
}

impl Load<'_> {
    fn run(&mut self, batch: usize, count: usize) -> Result<Vec<(&'static str, Measured)>, Refusal> {
        let directories = self.directories(count.div_ceil(1000))?;
        let names: Vec<(InodeId, Vec<u8>)> = (0..count)
            .map(|at| {
                (directories[at / 1000], format!("file-{:06}", at * 7919 % 1000 + at / 1000 * 1000).into())
            })
            .collect();
        let made = self.measure(batch, &names, |load, (parent, name)| load.create(*parent, name.clone()))?;
        let before = (self.clock)();
        for inode in 0..count as u64 {
            // Ids follow each other: the client, the directories, the files.
            let inode = InodeId(self.client.0 + directories.len() as u64 + 1 + inode);
            let request = GetAttr { volume: self.volume, inode };
            self.state.read(|txn| ops::getattr(txn, &request))?;
        }
        let read = self.since(before, count as u64, 1);
        let gone = self.measure(batch, &names, |load, (parent, name)| load.unlink(*parent, name.clone()))?;
        Ok(vec![("create", made), ("getattr", read), ("unlink", gone)])
    }

    fn since(&self, before: (Duration, Duration), changes: u64, batches: u64) -> Measured {
        let after = (self.clock)();
        Measured { changes, batches, wall: after.0 - before.0, cpu: after.1 - before.1 }
    }

    fn measure<T>(
        &mut self,
        batch: usize,
        items: &[T],
        mut change: impl FnMut(&mut Load<'_>, &T) -> Change,
    ) -> Result<Measured, Refusal> {
        let (before, batches) = ((self.clock)(), self.state.batches);
        for part in items.chunks(batch) {
            let changes = part.iter().map(|item| change(self, item)).collect();
            self.state.run_batch(changes).into_iter().try_for_each(|outcome| outcome.map(drop))?;
            self.world.block_on(write(&mut self.state, self.journal.as_mut()))?;
        }
        Ok(self.since(before, items.len() as u64, self.state.batches - batches))
    }

    fn directories(&mut self, count: usize) -> Result<Vec<InodeId>, Refusal> {
        self.directories_from(0, count)
    }

    fn directories_from(&mut self, first: usize, count: usize) -> Result<Vec<InodeId>, Refusal> {
        let owner = Owner { uid: 0, gid: 0, mode: 0o755 };
        let make = |load: &mut Self, at: usize| {
            let (caller, owner) = (load.caller(), owner.clone());
            let (volume, parent, name) = (load.volume, InodeId::ROOT, format!("d{at}").into());
            let request =
                types::messages::names::Mkdir { caller: caller.clone(), volume, parent, name, owner, now: 1 };
            Change::once(&caller, volume, move |txn| ops::mkdir(txn, &request))
        };
        let inode = |bytes: Vec<u8>| {
            let reply: Linked = from_bytes(&bytes).map_err(|_| Refusal::MetaFailed)?;
            Ok(reply.attr.inode)
        };
        let mut inodes = Vec::new();
        // As many at a time as surely fit into a record.
        for from in (first..first + count).step_by(1000) {
            let changes = (from..(from + 1000).min(first + count)).map(|at| make(self, at)).collect();
            let answers = self.state.run_batch(changes);
            for answer in answers {
                inodes.push(answer.and_then(inode)?);
            }
            self.world.block_on(write(&mut self.state, self.journal.as_mut()))?;
        }
        Ok(inodes)
    }

    /// Lists a directory, `most` names at most. Returns how many there were.
    fn list(&self, inode: InodeId, most: u64) -> Result<u64, Refusal> {
        let (mut names, mut cookie) = (0, 0);
        while names < most {
            let request = ReadDir { volume: self.volume, inode, cookie, count: 1000 };
            let part = self.state.read(|txn| ops::readdir(txn, &request))?;
            names += part.entries.len() as u64;
            match part.entries.last() {
                Some(last) if !part.end => cookie = last.cookie,
                _ => break,
            }
        }
        Ok(names)
    }

    fn caller(&mut self) -> Caller {
        self.op += 1;
        // As from a mount with some changes in progress.
        Caller { client: self.client, op: self.op, acked: self.op.saturating_sub(64) }
    }

    fn create(&mut self, parent: InodeId, name: Vec<u8>) -> Change {
        let caller = self.caller();
        let owner = Owner { uid: 0, gid: 0, mode: 0o644 };
        let (volume, kind) = (self.volume, FileKind::File);
        let request = Create {
            caller: caller.clone(),
            volume,
            parent,
            name,
            kind,
            owner,
            rdev: 0,
            open: false,
            near: Vec::new(),
            now: 2,
        };
        Change::once(&caller, volume, move |txn| ops::create(txn, &request))
    }

    fn unlink(&mut self, parent: InodeId, name: Vec<u8>) -> Change {
        let (caller, volume) = (self.caller(), self.volume);
        let request = Unlink { caller: caller.clone(), volume, parent, name, now: 3 };
        Change::once(&caller, volume, move |txn| ops::unlink(txn, &request))
    }
}
