//! The service: requests, answers, and background tasks.
//!
//! | file | what |
//! |---|---|
//! | `requests.rs` | which request goes where |
//! | `files.rs` | requests that may wait for other clients: open, close, truncate |
//! | `mounts.rs` | clients join, poll for news, leave |
//! | `bricks.rs` | bricks, the map, volumes, status |
//! | `committer.rs` | the tasks that write the journal and the engine, and the waits for durability |
//! | `expiry.rs` | leases that run out |
//! | `fencer.rs` | bricks learn which clients to refuse, before other clients may open the files |
//! | `purger.rs` | removes the bytes of objects that nobody can reach |
//!
//! There is one thread, and no borrow of the state lasts over an await. While a record is being written to the journal,
//! the service goes on serving requests and gathers their changes for the next record. Only the engine's commits, which
//! are rare and large, run on another thread.

mod bricks;
mod committer;
mod expiry;
mod fencer;
mod files;
mod mounts;
mod purger;
mod requests;
#[cfg(test)]
mod storm;
#[cfg(test)]
mod tests;

pub(crate) use committer::recover;

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::{Either, join, join5, select};
use types::ClusterId;
use world::{Handler, Identity, Listener, Notify, Peers, World, serve};

use crate::MetaError;
use crate::cluster_id::cluster_of;
use crate::kv::{Engine, Journal};
use crate::state::State;

/// Options of the service.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Where to listen, `host:port`.
    pub listen: String,
    /// Its identity. A cluster id of zeros means the one in the store.
    pub identity: Identity,
    /// Its memory budget in bytes. The engine's cache is sized when the engine is opened.
    pub memory_budget: u64,
}

/// State that the tasks share.
struct Shared {
    world: World,
    peers: Peers,
    memory_budget: u64,
    /// Whether the status has pid and memory: in a simulation they would make runs differ.
    accountable: bool,
    /// Up to which record changes are durable.
    watermark: committer::DurableWatermark,
    state: RefCell<State>,
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
    /// Notified when a commit has failed.
    failed: Notify,
}

/// A metadata service that listens.
pub struct Service {
    shared: Rc<Shared>,
    listener: Listener,
    identity: Identity,
    journal: Option<Journal>,
}

impl Service {
    /// Reads the store and begins to listen. All leases count from now.
    pub async fn start(world: World, engine: Engine, options: MetaOptions) -> Result<Service, MetaError> {
        let found = cluster_of(&engine)?.ok_or(MetaError::NoCluster)?;
        let expected = options.identity.cluster;
        if expected != ClusterId::default() && expected != found {
            return Err(MetaError::WrongCluster { found, expected });
        }
        let accountable = !engine.is_memory();
        let work = Notify::new();
        let (mut state, journal) = recover(&world, engine, found, options.memory_budget, &work).await?;
        let listener = world.listen(&options.listen).await;
        let listener = listener.map_err(|error| MetaError::Listen { address: options.listen, error })?;
        let identity = Identity { cluster: found, ..options.identity };
        state.volatile.opens.count_from(world.random());
        state.volatile.truncations.count_from(world.random());
        let shared = Shared {
            peers: Peers::new(world.clone(), identity.clone()),
            world,
            memory_budget: options.memory_budget,
            accountable,
            watermark: committer::DurableWatermark::at(state.store.last()),
            state: RefCell::new(state),
            work,
            flush_wanted: Notify::new(),
            flush_done: Notify::new(),
            news: Notify::new(),
            settled: Notify::new(),
            purges: Notify::new(),
            departed: Notify::new(),
            failed: Notify::new(),
        };
        Ok(Service { shared: Rc::new(shared), listener, identity, journal })
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.listener.address()
    }

    /// Serves until dropped. Returns only if the store failed; then the process should be restarted.
    pub async fn run(self) {
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
            join(
                world.named("purger", purger::run(Rc::clone(&shared))),
                world.named("fencer", fencer::run(Rc::clone(&shared))),
            ),
        );
        let ended = select(Box::pin(tasks), Box::pin(failed)).await;
        if let Either::Right(_) = ended {
            tracing::error!("the metadata service has ended");
        }
    }
}
