//! The service: requests, answers, and background tasks.
//!
//! | file | what |
//! |---|---|
//! | `requests.rs` | which request goes where |
//! | `files.rs` | requests that may wait for other clients: open, close, truncate |
//! | `mounts.rs` | clients join, poll for news, leave |
//! | `bricks.rs` | bricks, the map, volumes, status |
//! | `committer.rs` | the tasks that write the journal and the engine, and the waits for durability |
//! | `full_disk.rs` | the disk of the store is full: which changes are taken |
//! | `expiry.rs` | leases that run out |
//! | `fencer.rs` | bricks learn which clients to refuse, before other clients may open the files |
//! | `notes.rs` | bricks tell what lost clients have noted about sizes |
//! | `purger.rs` | removes the bytes of objects that nobody can reach |
//! | `recoverer.rs` | a restored cluster asks its bricks what became of the groups |
//! | `shards.rs` | other shards of the cluster: which volume is where |
//! | `leaders.rs`, `load.rs` | which server of a shard should lead, by load |
//! | `scans.rs` | the whole store, for a check of the names, and the repair of what it finds |
//!
//! There is one thread, and no borrow of the state lasts over an await. While a record is being written to the journal,
//! the service goes on serving requests and gathers their changes for the next record. Only the engine's commits, which
//! are rare and large, run on another thread.

mod bricks;
mod committer;
mod expiry;
mod fencer;
mod files;
mod full_disk;
mod leaders;
mod load;
mod mounts;
mod notes;
mod purger;
mod recoverer;
mod requests;
mod scans;
mod shards;
#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::{join, join5, select};
use types::messages::replica::MetaMember;
use types::messages::session::Role;
use types::{ClusterId, Refusal};
use world::{Handler, Identity, Listener, LocalBoxFuture, Notify, Peers, World, serve};

use crate::cluster::{Cluster, Recovery};
use crate::cluster_id::{cluster_of, raised};
use crate::kv::{Engine, Journal};
use crate::records::to_value;
use crate::replicas::{Elected, Leading, Opened, ServerOptions, open_store};
use crate::state::State;
use crate::{MetaError, keys};

/// Options of the service.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Where to listen, `host:port`.
    pub listen: String,
    /// Its identity. A cluster id of zeros means the one in the store.
    pub identity: Identity,
    /// Its memory budget in bytes. The engine's cache is sized when the engine is opened.
    pub memory_budget: u64,
    /// Of another shard than the first: the metadata servers of the first one, with commas between them, if they are elsewhere
    /// than the store has them.
    pub first_shard: Option<String>,
    /// Of the first shard: leaders of shards stay where they are.
    pub keeps_leaders: bool,
}

/// Why a service has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The store could not be made durable.
    Failed,
    /// This server leads no more, or is not alone any more: it follows now.
    Deposed,
    /// It has led, and was removed.
    Removed,
    /// The cluster was restored since without it.
    Overruled,
}

/// State that the tasks share.
pub(crate) struct Shared {
    pub(crate) world: World,
    peers: Peers,
    /// Connections to other shards. As a client: those that follow refuse it, and the one that leads is found.
    to_shards: Peers,
    /// The other servers; `None` if this one is alone.
    leading: Option<Rc<Leading>>,
    /// Where others would reach this server, while it is alone; `None` where it cannot have any.
    pub(crate) alone: Option<String>,
    /// Where this server is reached.
    advertise: String,
    /// Where the first shard is, by the operator.
    first_shard: Option<String>,
    /// Leaders of shards stay where they are.
    keeps_leaders: bool,
    /// Who leads which shard, as the leader of the first one sees it.
    leaders: RefCell<leaders::Leaders>,
    /// Requests that it serves.
    load: load::Load,
    /// Volumes are made and deleted one at a time.
    volumes_change: futures_util::lock::Mutex<()>,
    /// The token of the first shard's last question before it makes a volume.
    asked_token: Cell<u64>,
    /// This server, which is alone, becomes the first member once.
    pub(crate) ends_alone: futures_util::lock::Mutex<()>,
    /// Set when the service ends in order.
    ended: Cell<Option<Ended>>,
    memory_budget: u64,
    /// When it began to serve.
    began: u64,
    /// Whether the status has pid and memory: in a simulation they would make runs differ.
    accountable: bool,
    /// Up to which record changes are durable.
    watermark: committer::DurableWatermark,
    full_disk: full_disk::FullDisk,
    pub(crate) state: RefCell<State>,
    /// Notified when a change waits to be written.
    work: Notify,
    /// Notified when there are writes for the engine.
    flush_wanted: Notify,
    /// Notified when the engine has them.
    flush_done: Notify,
    /// Notified when the map has changed, a mode is recalled, or a file must be quiesced.
    news: Notify,
    /// Notified when a recall is acknowledged, a file is closed, a client is back, lost or has quiesced a file, or an
    /// open or a truncation has ended.
    settled: Notify,
    /// Notified when there is an object to purge, or a brick that must purge one is back.
    purges: Notify,
    /// Notified when a client is lost or has left.
    departed: Notify,
    /// Notified when a client is gone that may have noted sizes with the bricks.
    unsettled: Notify,
    /// Notified when a commit has failed.
    failed: Notify,
    /// The moments of the store that somebody reads.
    scans: RefCell<scans::Scans>,
    /// What a restored cluster has to learn from bricks.
    recovery: RefCell<Option<Recovery>>,
}

/// A metadata service that listens.
pub struct Service {
    shared: Rc<Shared>,
    listener: Listener,
    identity: Identity,
    journal: Option<Journal>,
}

impl Service {
    /// Reads the store of a server that is alone, and begins to listen. All leases count from now.
    ///
    /// The future is boxed, so that this crate compiles it once, and not every program that awaits it.
    pub fn start(
        world: World,
        engine: Engine,
        options: MetaOptions,
    ) -> LocalBoxFuture<'static, Result<Service, MetaError>> {
        Box::pin(Service::start_unboxed(world, engine, options))
    }

    async fn start_unboxed(world: World, engine: Engine, options: MetaOptions) -> Result<Service, MetaError> {
        let found = cluster_of(&engine)?.ok_or(MetaError::NoCluster)?;
        let expected = options.identity.cluster;
        if expected != ClusterId::default() && expected != found {
            return Err(MetaError::WrongCluster { found, expected });
        }
        let work = Notify::new();
        engine.set_patient(true);
        let opened = open_store(&world, engine, found, options.memory_budget, &work).await?;
        let advertise = options.listen.clone();
        let listener = world.listen(&options.listen).await;
        let listener =
            listener.map_err(|error| MetaError::Listen { address: options.listen.clone(), error })?;
        let options = ServerOptions { service: options, advertise, join: None };
        Service::alone(&world, opened, found, options, work, listener).await
    }

    /// The service of a server that is alone.
    pub(crate) async fn alone(
        world: &World,
        opened: Opened,
        cluster: ClusterId,
        options: ServerOptions,
        work: Notify,
        listener: Listener,
    ) -> Result<Service, MetaError> {
        let Opened { store, journal, .. } = opened;
        let alone = journal.is_some().then(|| options.advertise.clone());
        let mut state = State::of_in_turns(store, world, || true).await?.ok_or(MetaError::Stopped)?;
        let raised = raised(&state.store, cluster)?;
        if !raised.is_empty() {
            state.commit(raised);
        }
        Ok(Service::new(world, state, journal, cluster, options, work, listener, alone, None))
    }

    /// The service of a server that was elected. From now on it shows signs of life, also while it loads its store.
    /// `None` if its term has ended meanwhile.
    pub(crate) async fn leading(
        world: &World,
        elected: Elected,
        cluster: ClusterId,
        options: ServerOptions,
        engine: Engine,
        listener: Listener,
    ) -> Result<Option<Service>, MetaError> {
        let identity = Identity { cluster, ..options.service.identity.clone() };
        let Elected { core, mut store, history, files, work } = elected;
        let (me, term) = (MetaMember { id: core.id, address: options.advertise.clone() }, core.term);
        let leading = Leading::new(world, &identity, engine, me, core, history);
        // The last record may be chosen already, or never; this term begins with it, and with one of its own.
        store.stamp(keys::term(), to_value(&term))?;
        leading.feed();
        let watched = Rc::clone(&leading);
        world.spawn("leader's lease", async move { watched.watch().await });
        let loaded = State::of_in_turns(store, world, || !leading.is_over()).await;
        let loaded = loaded.inspect_err(|_| leading.depose("it cannot read its store"))?;
        let Some(mut state) = loaded else { return Ok(None) };
        let mut writes = raised(&state.store, cluster)?;
        writes.insert(keys::term(), Some(to_value(&term)));
        state.commit(writes);
        let journal = Some(files.journal);
        let service =
            Service::new(world, state, journal, cluster, options, work, listener, None, Some(leading));
        Ok(Some(service))
    }

    #[expect(clippy::too_many_arguments, reason = "two callers, each with another half of them")]
    fn new(
        world: &World,
        mut state: State,
        journal: Option<Journal>,
        cluster: ClusterId,
        options: ServerOptions,
        work: Notify,
        listener: Listener,
        alone: Option<String>,
        leading: Option<Rc<Leading>>,
    ) -> Service {
        let advertise = options.advertise.clone();
        let first_shard = options.service.first_shard.clone();
        let options = options.service;
        let accountable = !state.store.engine().is_memory();
        let lost = Cluster::lost_bricks(&state.store).unwrap_or_default();
        let recovery = Recovery::of(state.cluster.map(), &lost);
        let identity = Identity { cluster, name: advertise.clone(), ..options.identity };
        state.volatile.opens.count_from(world.random());
        state.volatile.truncations.count_from(world.random());
        let shared = Shared {
            peers: Peers::new(world.clone(), identity.clone()),
            to_shards: Peers::new(world.clone(), Identity { role: Role::Client, ..identity.clone() }),
            world: world.clone(),
            leading,
            alone,
            advertise,
            first_shard,
            keeps_leaders: options.keeps_leaders,
            leaders: RefCell::new(leaders::Leaders::since(world.now())),
            load: load::Load::default(),
            volumes_change: futures_util::lock::Mutex::new(()),
            asked_token: Cell::new(0),
            ends_alone: futures_util::lock::Mutex::new(()),
            ended: Cell::new(None),
            memory_budget: options.memory_budget,
            began: world.now(),
            accountable,
            watermark: committer::DurableWatermark::at(state.store.chosen()),
            full_disk: full_disk::FullDisk::default(),
            state: RefCell::new(state),
            work,
            flush_wanted: Notify::new(),
            flush_done: Notify::new(),
            news: Notify::new(),
            settled: Notify::new(),
            purges: Notify::new(),
            departed: Notify::new(),
            unsettled: Notify::new(),
            failed: Notify::new(),
            scans: RefCell::default(),
            recovery: RefCell::new(recovery),
        };
        Service { shared: Rc::new(shared), listener, identity, journal }
    }

    /// What the tasks share.
    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Serves until dropped, or until it cannot go on. If the store failed, the process should be restarted.
    ///
    /// The future is boxed, so that this crate compiles it once, and not every program that awaits it.
    pub fn run(self) -> LocalBoxFuture<'static, Ended> {
        Box::pin(self.run_unboxed())
    }

    async fn run_unboxed(self) -> Ended {
        let Service { shared, listener, identity, journal } = self;
        let failed = shared.failed.wait();
        let for_calls = Rc::clone(&shared);
        let handler: Handler = Rc::new(move |call| Box::pin(requests::answer(Rc::clone(&for_calls), call)));
        let world = &shared.world;
        let tasks = join5(
            world.named("connections", serve(world.clone(), listener, identity, handler)),
            world.named("committer", committer::run(Rc::clone(&shared), journal)),
            world.named("engine", committer::run_engine(Rc::clone(&shared))),
            world.named("expiry", expiry::run(Rc::clone(&shared))),
            join5(
                world.named("recoverer", recoverer::run(Rc::clone(&shared))),
                world.named("purger", purger::run(Rc::clone(&shared))),
                world.named("fencer", fencer::run(Rc::clone(&shared))),
                world.named("notes", notes::run(Rc::clone(&shared))),
                join(
                    world.named("scans", shared.forget_scans()),
                    world.named("shards", shards::run(Rc::clone(&shared))),
                ),
            ),
        );
        if shared.leading.is_some() {
            let over = Rc::clone(&shared);
            world.spawn("leader's term", async move { over.end_with_term().await });
        }
        select(Box::pin(tasks), Box::pin(failed)).await;
        let ended = shared.ended.get().unwrap_or(Ended::Failed);
        if let Some(leading) = &shared.leading {
            leading.depose("its service has ended");
        }
        if ended == Ended::Failed {
            tracing::error!("the metadata service has ended");
        }
        ended
    }
}

impl Shared {
    /// Lets another server lead, if this one leads and another one can.
    pub(crate) async fn step_down(&self) {
        let Some(leading) = &self.leading else { return };
        if let Err(error) = leading.hand_over().await {
            tracing::info!(error, "nobody can lead instead of this server");
        }
    }

    async fn end_with_term(&self) {
        let Some(leading) = &self.leading else { return };
        leading.over().await;
        if leading.is_removed() {
            leading.leave().await;
            return self.end(Ended::Removed);
        }
        self.end(Ended::Deposed);
    }

    /// Ends the service in order.
    pub(crate) fn end(&self, how: Ended) {
        if matches!(
            (self.ended.get(), how),
            (None, _) | (Some(Ended::Deposed), Ended::Removed | Ended::Overruled)
        ) {
            self.ended.set(Some(how));
        }
        self.failed.notify();
    }

    /// Whether this server may act for the cluster now.
    fn may_act(&self) -> bool {
        self.leading.as_ref().is_none_or(|leading| leading.may_answer())
    }

    /// Waits until this server may answer.
    async fn may_answer(&self) -> Result<(), Refusal> {
        match &self.leading {
            Some(leading) => leading.until_it_may_answer().await,
            None => Ok(()),
        }
    }
}
