//! Measures the store and the operations without a network; behind `examples/creates.rs`.

use std::time::Duration;

use types::messages::cluster::{BrickClass, BrickJoin, ClientJoin, VolumeCreate};
use types::messages::names::{Caller, Create, FileKind, GetAttr, Owner, Unlink};
use types::wire::from_bytes;
use types::{BrickId, ClientId, ClusterId, Code, Geometry, Incarnation, InodeId, NodeId, Refusal, VolumeId};

use crate::kv::{Engine, Journal, writes_of};
use crate::ops;
use crate::replicas::Opened;
use crate::state::{Change, State};
use crate::{MetaError, create_cluster};
use world::{Notify, World};

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
) -> Result<Vec<(&'static str, Measured)>, MetaError> {
    let cluster = ClusterId([1; 16]);
    create_cluster(&engine, cluster)?;
    let (budget, work) = (crate::MEMORY_BUDGET_DEFAULT, Notify::new());
    let opened = crate::replicas::open_store(world, engine, cluster, budget, &work);
    let Opened { store, journal, .. } = world.block_on(opened)?;
    let mut state = State::of(store, world.now())?;
    let refused = |_: Refusal| MetaError::Damaged;
    let join = BrickJoin {
        brick: BrickId(1),
        device: [1; 16],
        node: NodeId(1),
        address: "n1:1".into(),
        capacity: 1,
        free: 1,
        incarnation: Incarnation(1),
        class: BrickClass::Ssd,
    };
    let writes = state.cluster.join(&join, 0).map_err(refused)?;
    state.commit_or_fail(writes).map_err(refused)?;
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
    };
    let volume = state.volume_create(&make, 1).map_err(refused)?.id;
    let join = ClientJoin {
        volume: "v".into(),
        client: None,
        opens: Vec::new(),
        exclusive: false,
        place: String::new(),
    };
    let client = state.client_join(&join, 0, 0).map_err(refused)?.client;
    let mut load = Load { world, journal, state, volume, client, op: 0, clock };
    load.run(batch, count).map_err(refused)
}

/// Writes the gathered changes to the journal.
async fn write(state: &mut State, journal: Option<&mut Journal>) -> Result<(), Refusal> {
    let Some(journal) = journal else { return Ok(()) };
    let failed = |_| Refusal::MetaFailed;
    while let Some(record) = state.store.next_record().map_err(failed)? {
        if !journal.fits(&record) {
            state.store.freeze();
            if let Some((table, _)) = state.store.frozen() {
                state.store.engine().commit(writes_of(&table)).map_err(failed)?;
                state.store.take_flushed(&table).map_err(failed)?;
            }
            journal.switch_half();
        }
        journal.append(&record).await.map_err(|_| Refusal::MetaFailed)?;
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
        let owner = Owner { uid: 0, gid: 0, mode: 0o755 };
        let make = |at: usize| {
            let (caller, owner) = (self.caller(), owner.clone());
            let (volume, parent, name) = (self.volume, InodeId::ROOT, format!("d{at}").into());
            let request =
                types::messages::names::Mkdir { caller: caller.clone(), volume, parent, name, owner, now: 1 };
            Change::once(&caller, volume, move |txn| ops::mkdir(txn, &request))
        };
        let changes = (0..count).map(make).collect();
        let answers = self.state.run_batch(changes).into_iter();
        let inode = |bytes: Vec<u8>| {
            let reply: types::messages::names::AttrReply =
                from_bytes(&bytes).map_err(|_| Refusal::MetaFailed)?;
            Ok(reply.attr.inode)
        };
        answers.map(|answer| answer.and_then(inode)).collect()
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
