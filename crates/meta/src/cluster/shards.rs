//! The shards of the cluster: some of its volumes each, with metadata servers of their own.
//!
//! The first shard has a list of the others, in its map, so that bricks join them all. Another shard knows its own number, and where
//! the servers of the first one are.
//!
//! # Invariants
//! - The number of a shard is given out once: ids begin with it ([`ShardId::numbers`]).

use types::limits::SHARDS_MAX;
use types::messages::cluster::ShardInfo;
use types::{Refusal, ShardId};

use super::history::Changed;
use super::map::{Cluster, each};
use crate::kv::{Store, Writes};
use crate::records::{ShardRecord, from_value, to_value};
use crate::{MetaError, keys};

impl Cluster {
    pub(super) fn load_shards(&mut self, store: &Store) -> Result<(), MetaError> {
        let own = store.get(&keys::own_shard(), from_value)?.0;
        self.own = own.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or_default();
        let of_shard = |key: &[u8]| key.last().map(|id| ShardId(*id));
        each(store, &keys::all::shards(), of_shard, |id, record: ShardRecord| {
            self.last_shard = self.last_shard.max(id);
            if !record.removed {
                self.map.shards.push(ShardInfo { id, servers: record.servers });
            }
        })
    }

    /// The shard that this service serves.
    pub(crate) fn shard(&self) -> ShardId {
        self.own.shard
    }

    /// The metadata servers of the first shard, as this one, another one, knows them.
    pub(crate) fn first_servers(&self) -> &str {
        &self.own.first
    }

    /// The metadata servers of the first shard have changed. No writes if they are these.
    pub(crate) fn set_first_servers(&mut self, servers: &str) -> Writes {
        let mut writes = Writes::new();
        if self.own.first != servers {
            servers.clone_into(&mut self.own.first);
            writes.insert(keys::own_shard(), Some(to_value(&self.own)));
        }
        writes
    }

    /// One more shard.
    pub(crate) fn add_shard(&mut self) -> Result<(ShardId, Writes), Refusal> {
        if self.own.shard != ShardId::FIRST {
            return Err(Refusal::Unsupported);
        }
        let id = ShardId(self.last_shard.0 + 1);
        if usize::from(id.0) >= SHARDS_MAX {
            return Err(Refusal::TooMany);
        }
        self.last_shard = id;
        let servers = String::new();
        self.map.shards.push(ShardInfo { id, servers: servers.clone() });
        Ok((id, self.publish_shard(id, ShardRecord { servers, removed: false })))
    }

    /// Where the servers of another shard are. No writes if they are known to be there.
    pub(crate) fn shard_announced(&mut self, id: ShardId, servers: &str) -> Result<Writes, Refusal> {
        let known = self.map.shards.iter_mut().find(|info| info.id == id).ok_or(Refusal::Unknown)?;
        if known.servers == servers {
            return Ok(Writes::new());
        }
        tracing::info!(shard = %id, servers, "the metadata servers of a shard");
        servers.clone_into(&mut known.servers);
        let record = ShardRecord { servers: servers.to_owned(), removed: false };
        Ok(self.publish_shard(id, record))
    }

    /// Forgets a shard.
    pub(crate) fn remove_shard(&mut self, id: ShardId) -> Result<Writes, Refusal> {
        let at = self.map.shards.iter().position(|info| info.id == id).ok_or(Refusal::Unknown)?;
        let servers = self.map.shards.remove(at).servers;
        Ok(self.publish_shard(id, ShardRecord { servers, removed: true }))
    }

    fn publish_shard(&mut self, id: ShardId, record: ShardRecord) -> Writes {
        let mut writes = Writes::from([(keys::shard(id), Some(to_value(&record)))]);
        self.publish([Changed::Shards], &mut writes);
        writes
    }
}
