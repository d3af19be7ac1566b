//! What a brick knows of each shard of the cluster: a map with the shard's volumes, a lease, fences.
//!
//! A brick is a member of every shard, with the same id. It joins the first shard when it starts, learns from that one's map which
//! others there are, and joins them too. Nothing that one shard decides concerns the groups or clients of another one: without
//! a lease of a shard, the brick serves its other volumes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use types::messages::cluster::{ClusterMap, Fences, ShardInfo};
use types::{ClientId, ClusterId, ShardId, VolumeId};
use world::Notify;

/// A shard, as the brick knows it.
pub(crate) struct Shard {
    pub(crate) id: ShardId,
    /// Its metadata servers, with commas between them.
    pub(crate) meta: RefCell<String>,
    pub(crate) map: RefCell<Rc<ClusterMap>>,
    /// The end of the brick's lease, in microseconds of the world's clock.
    pub(crate) lease_until: Cell<u64>,
    /// When this run of the brick joined first, in microseconds; 0 if it has not.
    pub(crate) joined_at: Cell<u64>,
    /// When its metadata was restored last, as far as this brick knows; 0 if never.
    pub(crate) restored: Cell<u64>,
    /// Its clients whose writes are refused.
    pub(crate) fences: RefCell<Fences>,
    /// Bytes of writes to its volumes that are accepted and not yet committed. While a shard is away they stay, and may not take the
    /// room of the others.
    pub(crate) accepted: Cell<usize>,
    /// Notified when the map should be fetched at once.
    pub(crate) map_wanted: Notify,
    /// It gives this brick no lease, because others do not reach it.
    pub(crate) is_held: Cell<bool>,
    /// The first shard does not name it any more.
    pub(crate) is_gone: Cell<bool>,
}

impl Shard {
    fn new(id: ShardId, cluster: ClusterId, meta: &str) -> Rc<Shard> {
        Rc::new(Shard {
            id,
            meta: RefCell::new(meta.to_owned()),
            map: RefCell::new(Rc::new(ClusterMap::empty(cluster))),
            lease_until: Cell::new(0),
            joined_at: Cell::new(0),
            restored: Cell::new(0),
            fences: RefCell::new(Fences { upto: ClientId(id.numbers().start), mounted: Vec::new() }),
            accepted: Cell::new(0),
            map_wanted: Notify::new(),
            is_held: Cell::new(false),
            is_gone: Cell::new(false),
        })
    }
}

/// All shards that the brick knows.
pub(crate) struct Shards {
    cluster: ClusterId,
    first: Rc<Shard>,
    others: RefCell<BTreeMap<ShardId, Rc<Shard>>>,
}

impl Shards {
    /// Only the first shard is known; `meta`: its metadata servers.
    pub(crate) fn new(cluster: ClusterId, meta: &str) -> Shards {
        Shards { cluster, first: Shard::new(ShardId::FIRST, cluster, meta), others: RefCell::default() }
    }

    pub(crate) fn first(&self) -> &Rc<Shard> {
        &self.first
    }

    /// A shard; `None` if the brick has not heard of it.
    pub(crate) fn get(&self, id: ShardId) -> Option<Rc<Shard>> {
        match id {
            ShardId::FIRST => Some(self.first.clone()),
            other => self.others.borrow().get(&other).cloned(),
        }
    }

    pub(crate) fn of_volume(&self, volume: VolumeId) -> Option<Rc<Shard>> {
        self.get(volume.shard())
    }

    /// All of them, the first one first.
    pub(crate) fn all(&self) -> Vec<Rc<Shard>> {
        let others = self.others.borrow();
        std::iter::once(&self.first).chain(others.values()).cloned().collect()
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        1 + self.others.borrow().len()
    }

    /// Follows the list in the first shard's map. Returns the shards that are new.
    pub(crate) fn follow(&self, listed: &[ShardInfo]) -> Vec<Rc<Shard>> {
        let mut others = self.others.borrow_mut();
        others.retain(|id, shard| {
            let stays = listed.iter().any(|info| info.id == *id);
            shard.is_gone.set(!stays);
            stays
        });
        let mut new = Vec::new();
        for ShardInfo { id, servers } in listed.iter().filter(|info| !info.servers.is_empty()) {
            match others.get(id) {
                Some(known) => known.meta.borrow_mut().clone_from(servers),
                None => {
                    let shard = Shard::new(*id, self.cluster, servers);
                    others.insert(*id, shard.clone());
                    new.push(shard);
                }
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_are_those_that_the_first_one_lists() {
        let shards = Shards::new(ClusterId([1; 16]), "a:1");
        let info = |id, servers: &str| ShardInfo { id: ShardId(id), servers: servers.to_owned() };
        let ids = |shards: &[Rc<Shard>]| shards.iter().map(|shard| shard.id.0).collect::<Vec<_>>();
        assert_eq!(ids(&shards.follow(&[info(1, ""), info(2, "b:1")])), [2], "no server of 1 has led");
        assert_eq!(ids(&shards.follow(&[info(1, "c:1"), info(2, "b:1,b:2")])), [1]);
        let second = shards.get(ShardId(2)).expect("listed");
        assert_eq!(*second.meta.borrow(), "b:1,b:2");
        assert_eq!(ids(&shards.all()), [0, 1, 2]);
        assert_eq!(second.fences.borrow().shard(), ShardId(2));
        shards.follow(&[info(1, "c:1")]);
        assert!(second.is_gone.get() && shards.get(ShardId(2)).is_none());
        assert!(shards.of_volume(VolumeId(ShardId(1).volumes().start + 1)).is_some());
        assert_eq!(shards.of_volume(VolumeId(7)).map(|shard| shard.id), Some(ShardId::FIRST));
    }
}
