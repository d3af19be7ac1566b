//! Loads the state from a store when the service begins, part by part.
//!
//! Mounts, open files without names and objects to purge may be many. A new leader must show signs of life meanwhile, so what
//! walks all of them does so in turns.

use types::{ClientId, InodeId, VolumeId};
use world::World;

use crate::cluster::Cluster;
use crate::kv::{KeyValue, Store, Writes};
use crate::records::from_value;
use crate::sessions::{Session, Sessions};
use crate::state::State;
use crate::volatile::VolatileState;
use crate::{MetaError, keys};

/// Keys read in a turn.
const PART: usize = 2048;

/// What is read, in this order.
#[derive(Clone, Copy)]
enum Stage {
    Clients,
    Answers,
    Orphans,
    Purges,
    Noting,
}

const STAGES: [Stage; 5] = [Stage::Clients, Stage::Answers, Stage::Orphans, Stage::Purges, Stage::Noting];

impl Stage {
    fn prefix(self) -> Vec<u8> {
        match self {
            Stage::Clients => keys::all::clients(),
            Stage::Answers => keys::all::answers(),
            Stage::Orphans => keys::all::orphans(),
            Stage::Purges => keys::all::purges(),
            Stage::Noting => keys::all::noting(),
        }
    }
}

/// A state that is not whole yet.
pub(crate) struct Loading {
    store: Store,
    volatile: VolatileState,
    sessions: Sessions,
    /// Which stage is read next, and from which key on.
    stage: usize,
    from: Vec<u8>,
}

impl Loading {
    /// Begins to load what a store has, what is not chosen yet included.
    pub(crate) fn begin(store: Store) -> Result<Loading, MetaError> {
        let mut sessions = Sessions::default();
        let last = store.get(&keys::id_counter(), from_value::<u64>)?.0;
        let last = last.transpose().map_err(|_| MetaError::Damaged)?;
        sessions.count_up_to(ClientId(last.unwrap_or(0)));
        let volatile = VolatileState::default();
        Ok(Loading { store, volatile, sessions, stage: 0, from: STAGES[0].prefix() })
    }

    /// Reads the next part. False when there is none.
    pub(crate) fn step(&mut self) -> Result<bool, MetaError> {
        let Some(&stage) = STAGES.get(self.stage) else { return Ok(false) };
        let pairs = self.pairs(&keys::after_all(&stage.prefix()), PART)?;
        if pairs.len() < PART {
            self.stage += 1;
            self.from = STAGES.get(self.stage).map(|stage| stage.prefix()).unwrap_or_default();
        } else if let Some((last, _)) = pairs.last() {
            self.from = [last.as_slice(), &[0]].concat();
        }
        pairs.into_iter().try_for_each(|pair| self.take(stage, pair))?;
        Ok(self.stage < STAGES.len())
    }

    fn take(&mut self, stage: Stage, (key, value): KeyValue) -> Result<(), MetaError> {
        match stage {
            Stage::Clients => {
                let client = ClientId(keys::last_u64(&key).ok_or(MetaError::Damaged)?);
                let record = from_value(&value).map_err(|_| MetaError::Damaged)?;
                self.sessions.insert(client, Session::new(record, 0, false));
            }
            Stage::Answers => {
                let (client, op) = keys::client_and_op(&key).ok_or(MetaError::Damaged)?;
                if let Some(session) = self.sessions.get_any_mut(client) {
                    session.cache_reply(op, value, true);
                }
            }
            Stage::Orphans => {
                let place = keys::volume_and_number(&key).ok_or(MetaError::Damaged)?;
                self.volatile.orphans.insert((place.0, InodeId(place.1)));
            }
            Stage::Purges => self.volatile.purges += 1,
            Stage::Noting => {
                let (volume, inode) = keys::volume_and_number(&key).ok_or(MetaError::Damaged)?;
                let place = (volume, InodeId(inode));
                let client = from_value(&value).map_err(|_| MetaError::Damaged)?;
                self.volatile.noting.load(place, client);
                if self.sessions.get_any_mut(client).is_none() {
                    // It was lost and torn down, and some brick has not told yet what it has noted.
                    self.volatile.opens.reclaim(place, client, 0, 1);
                }
            }
        }
        Ok(())
    }

    /// The whole state. Every lease counts from `now`.
    pub(crate) fn finish(mut self, now: u64) -> Result<State, MetaError> {
        self.from = keys::all::all_changed();
        for (key, value) in self.pairs(&keys::after_all(&keys::all::all_changed()), usize::MAX)? {
            let volume = VolumeId(keys::last_u32(&key).ok_or(MetaError::Damaged)?);
            let count = from_value(&value).map_err(|_| MetaError::Damaged)?;
            self.volatile.all_changed.insert(volume, count);
        }
        self.sessions.all_heard(now);
        let cluster = Cluster::load(&self.store, now)?;
        Ok(State::new(self.store, self.volatile, self.sessions, cluster))
    }

    /// The pairs from `from` on, `most` of them at most.
    fn pairs(&self, to: &[u8], most: usize) -> Result<Vec<KeyValue>, MetaError> {
        let mut pairs = Vec::new();
        self.store.range(&self.from, to, &Writes::new(), &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            pairs.len() < most
        })?;
        Ok(pairs)
    }
}

impl State {
    /// Loads the state from a store, in one turn.
    pub(crate) fn of(store: Store, now: u64) -> Result<State, MetaError> {
        let mut loading = Loading::begin(store)?;
        while loading.step()? {}
        loading.finish(now)
    }

    /// Loads the state from a store. Others run meanwhile; leases count from the end. `None` if it is not wanted any more.
    pub(crate) async fn of_in_turns(
        store: Store,
        world: &World,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<State>, MetaError> {
        let mut loading = Loading::begin(store)?;
        while loading.step()? {
            world.yield_now().await;
            if !is_wanted() {
                return Ok(None);
            }
        }
        loading.finish(world.now()).map(Some)
    }
}
