//! The service: requests in, answers out, and the tasks behind them.
//!
//! | file | what |
//! |---|---|
//! | `requests.rs` | which request goes where |
//! | `files.rs` | requests that may wait for others: open, close, cut |
//! | `mounts.rs` | clients come, ask for news, go |
//! | `bricks.rs` | bricks, the map, volumes, the account of it all |
//! | `committer.rs` | the task that writes the journal: whatever was gathered, at once; and who waits for it |
//! | `expiry.rs` | leases that run out |
//! | `fencer.rs` | bricks are told whose writes they refuse, before others are let in |
//! | `purger.rs` | objects whose bytes nobody can reach |
//!
//! One thread; the state is borrowed between awaits only. While a record of the journal is on its way to the disk,
//! requests are served and what they change gathers for the next one. Only the engine's own commits, rare and large, run
//! on another thread.

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

use crate::kv::{Engine, Journal};
use crate::state::State;
use crate::{MetaError, cluster_of};

/// What the service needs to be told.
#[derive(Clone, Debug)]
pub struct MetaOptions {
    /// Where to listen, `host:port`.
    pub listen: String,
    /// Who it is. A cluster of zeros means the one in the store.
    pub identity: Identity,
    /// Bytes of memory that it may take; the engine's cache is sized where it is opened.
    pub memory_budget: u64,
}

/// What the tasks share.
struct Shared {
    world: World,
    peers: Peers,
    memory_budget: u64,
    /// Whether pid and memory are told: in a simulation they would make runs differ.
    accountable: bool,
    /// How far changes are durable.
    watermark: committer::DurableWatermark,
    state: RefCell<State>,
    /// A change waits to be written.
    work: Notify,
    /// The engine is to get something.
    flush_wanted: Notify,
    /// The engine has got it.
    flush_done: Notify,
    /// The map is newer, or a mode is recalled.
    news: Notify,
    /// A mode was taken, a file was closed, a client came back or is lost, has stopped, an open or a cut has ended.
    settled: Notify,
    /// An object waits to be purged, or a brick to purge it from is back.
    purges: Notify,
    /// A client is lost, or has left.
    departed: Notify,
    /// A commit failed.
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

    /// Serves until dropped. Returns only if the store failed: then the process should end and start again.
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
