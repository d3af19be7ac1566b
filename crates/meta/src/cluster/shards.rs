//! The shards of the cluster: some of its volumes each, with metadata servers of their own.
//!
//! The first shard has a list of the others, in its map, so that bricks join them all. Another shard knows its own number, and where
//! the servers of the first one are.
//!
//! # Invariants
//! - The number of a shard is given out once: ids begin with it ([`ShardId::numbers`]). In a restored store none is given out before
//!   all bricks have said which shards they know.

use std::net::SocketAddr;

use types::limits::SHARDS_MAX;
use types::messages::cluster::ShardInfo;
use types::{BrickId, Refusal, ShardId};

use super::bricks::NO_LIFE;
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
            if record.removed {
                self.removed_shards.insert(id);
                return;
            }
            if record.token != 0 {
                self.shard_tokens.insert(id, record.token);
            }
            self.map.shards.push(ShardInfo { id, servers: record.servers });
        })
    }

    /// Those that have not joined since the restoration. Older builds did not keep which of them are given up.
    pub(super) fn load_unheard(&mut self, store: &Store) -> Result<(), MetaError> {
        let lost = store.get(&keys::lost_bricks(), from_value::<Vec<BrickId>>)?.0;
        let Some(lost) = lost.transpose().map_err(|_| MetaError::Damaged)? else { return Ok(()) };
        let silent = self.instances.iter().filter(|(_, instance)| instance.incarnation == NO_LIFE);
        self.unheard = silent.map(|(brick, _)| *brick).filter(|brick| !lost.contains(brick)).collect();
        Ok(())
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

    /// One more shard; for a token that has one already, that one.
    pub(crate) fn add_shard(&mut self, token: u64) -> Result<(ShardId, Writes), Refusal> {
        if self.own.shard != ShardId::FIRST {
            return Err(Refusal::Unsupported);
        }
        if let Some((id, _)) = self.shard_tokens.iter().find(|(_, known)| **known == token) {
            return Ok((*id, Writes::new()));
        }
        // The backup may be older than a shard, whose number would be given out twice.
        if !self.unheard.is_empty() {
            let bricks = self.unheard.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::warn!(bricks, "bricks that may know more shards have not joined since the restoration");
            return Err(Refusal::Busy);
        }
        let id = ShardId(self.last_shard.0 + 1);
        if usize::from(id.0) >= SHARDS_MAX {
            return Err(Refusal::TooMany);
        }
        self.shard_tokens.insert(id, token);
        Ok((id, self.admit_shard(id, token)))
    }

    fn admit_shard(&mut self, id: ShardId, token: u64) -> Writes {
        self.last_shard = self.last_shard.max(id);
        let servers = String::new();
        let at = self.map.shards.partition_point(|info| info.id < id);
        self.map.shards.insert(at, ShardInfo { id, servers: servers.clone() });
        self.publish_shard(id, ShardRecord { servers, removed: false, token })
    }

    /// Bricks know these shards. A first shard that was restored may have forgotten some that were added since the backup: they are
    /// shards again, and their numbers are not given out once more.
    pub(crate) fn shards_known_to_bricks(&mut self, known: &[ShardId]) -> Writes {
        let mut writes = Writes::new();
        if self.own.shard != ShardId::FIRST {
            return writes;
        }
        for id in known.iter().filter(|id| (1..SHARDS_MAX).contains(&usize::from(id.0))) {
            let is_known =
                self.removed_shards.contains(id) || self.map.shards.iter().any(|info| info.id == *id);
            if !is_known {
                tracing::warn!(shard = %id, "a brick knows a shard that the restored metadata does not");
                writes.extend(self.admit_shard(*id, 0));
            }
        }
        writes
    }

    /// Where the servers of another shard are. No writes if they are known to be there.
    pub(crate) fn shard_announced(&mut self, id: ShardId, servers: &str) -> Result<Writes, Refusal> {
        if self.own.shard != ShardId::FIRST || !is_callable(servers) {
            return Err(Refusal::Invalid);
        }
        let mut writes = self.shards_known_to_bricks(&[id]);
        let token = self.shard_tokens.get(&id).copied().unwrap_or(0);
        let known = self.map.shards.iter_mut().find(|info| info.id == id).ok_or(Refusal::Unknown)?;
        if known.servers != servers {
            tracing::info!(shard = %id, servers, "the metadata servers of a shard");
            servers.clone_into(&mut known.servers);
            let record = ShardRecord { servers: servers.to_owned(), removed: false, token };
            writes.extend(self.publish_shard(id, record));
        }
        Ok(writes)
    }

    /// Forgets a shard.
    pub(crate) fn remove_shard(&mut self, id: ShardId) -> Result<Writes, Refusal> {
        let at = self.map.shards.iter().position(|info| info.id == id).ok_or(Refusal::Unknown)?;
        let servers = self.map.shards.remove(at).servers;
        self.removed_shards.insert(id);
        self.shard_tokens.remove(&id);
        Ok(self.publish_shard(id, ShardRecord { servers, removed: true, token: 0 }))
    }

    fn publish_shard(&mut self, id: ShardId, record: ShardRecord) -> Writes {
        let mut writes = Writes::from([(keys::shard(id), Some(to_value(&record)))]);
        self.publish([Changed::Shards], &mut writes);
        writes
    }
}

/// Most bytes of a list of servers.
const SERVERS_MAX: usize = 1024;

/// Whether each of some servers, with commas between them, has an address that others can call. Too many of them do not.
pub(crate) fn is_callable(servers: &str) -> bool {
    servers.len() <= SERVERS_MAX && servers.split(',').all(|server| server.contains(':') && !is_any(server))
}

/// Whether an address stands for all addresses of a machine: whoever called it would call himself.
pub(crate) fn is_any(address: &str) -> bool {
    let ip = address.parse::<SocketAddr>().map(|address| address.ip().to_canonical());
    ip.is_ok_and(|ip| ip.is_unspecified())
}

/// Whether one of some servers has an address of the caller's own machine.
pub(crate) fn is_loopback(servers: &str) -> bool {
    servers
        .split(',')
        .any(|server| ["127.", "localhost:", "[::1]:"].iter().any(|own| server.starts_with(own)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{brick_join, on_all};
    use crate::kv::Engine;
    use crate::restore::Restoring;

    #[test]
    fn a_number_is_given_out_once() {
        on_all(|mut fixture| {
            let cluster = &mut fixture.state.cluster;
            let mut add = |token| cluster.add_shard(token).map(|(id, _)| id);
            assert_eq!((add(5), add(5), add(6)), (Ok(ShardId(1)), Ok(ShardId(1)), Ok(ShardId(2))));
            assert!(cluster.remove_shard(ShardId(2)).is_ok());
            assert_eq!(cluster.remove_shard(ShardId(2)).err(), Some(Refusal::Unknown));
            assert_eq!(
                cluster.shard_announced(ShardId(2), "a:1").err(),
                Some(Refusal::Unknown),
                "it was removed"
            );
            // Bricks know of one that was added after the backup.
            assert!(!cluster.shards_known_to_bricks(&[ShardId(2), ShardId(4), ShardId(9)]).is_empty());
            assert_eq!(cluster.map().shards.iter().map(|info| info.id.0).collect::<Vec<_>>(), [1, 4]);
            assert_eq!(cluster.add_shard(7).map(|(id, _)| id), Ok(ShardId(5)));
            assert!(cluster.shard_announced(ShardId(6), "b:1,c:1").is_ok(), "so does its own leader");
            assert_eq!(cluster.add_shard(8).map(|(id, _)| id), Ok(ShardId(7)));
            assert_eq!(cluster.add_shard(9).err(), Some(Refusal::TooMany));
            for useless in ["", "0.0.0.0:7400", "a", "a:1,"] {
                assert_eq!(
                    cluster.shard_announced(ShardId(1), useless).err(),
                    Some(Refusal::Invalid),
                    "{useless}"
                );
            }
        });
    }

    /// A brick may know a shard that the backup does not.
    #[test]
    fn a_restored_store_gives_no_number_out_before_all_bricks_were_heard() {
        on_all(|fixture| {
            let restored = Engine::memory();
            let mut restoring = Restoring::begin(&restored, 1_800_000_000).expect("new");
            restoring.add(fixture.state.store.engine().pairs().expect("readable")).expect("of this build");
            let bricks = restoring.finish(&[BrickId(1)]).expect("a cluster").bricks;
            let mut cluster = Cluster::load(&Store::open(restored).expect("there"), 0).expect("whole");
            assert!(bricks.len() > 1);
            for brick in bricks {
                if brick != BrickId(1) {
                    assert_eq!(cluster.add_shard(5).err(), Some(Refusal::Busy));
                    cluster.join(&brick_join(brick.0, 9), 0).expect("it is known");
                    cluster.shards_known_to_bricks(&[ShardId(1)]);
                }
            }
            assert_eq!(cluster.add_shard(5).map(|(id, _)| id), Ok(ShardId(2)));
        });
    }

    #[test]
    fn shards_are_kept() {
        on_all(|mut fixture| {
            let (id, writes) = fixture.state.cluster.add_shard(3).expect("there is room");
            assert!(fixture.state.commit(writes));
            let writes = fixture.state.cluster.shard_announced(id, "a:1").expect("it is known");
            assert!(fixture.state.commit(writes));
            let mut fixture = fixture.restart_without_clients();
            let cluster = &mut fixture.state.cluster;
            assert_eq!(cluster.map().shards, [ShardInfo { id, servers: "a:1".to_owned() }]);
            assert_eq!(cluster.add_shard(3).map(|(again, _)| again), Ok(id));
            assert!(cluster.shard_announced(id, "a:1").is_ok_and(|writes| writes.is_empty()));
            let writes = cluster.remove_shard(id).expect("it is known");
            assert!(fixture.state.commit(writes));
            let mut fixture = fixture.restart_without_clients();
            assert!(fixture.state.cluster.map().shards.is_empty());
            assert_eq!(fixture.state.cluster.add_shard(4).map(|(next, _)| next), Ok(ShardId(id.0 + 1)));
        });
    }
}
