//! Updates of the map: whoever has a recent version gets only the changes, all others get the whole map in parts.
//!
//! The map contains the groups of all volumes, but most changes are of one brick or one group, and every brick and
//! mount asks after each change. Changes are kept in memory. So after a restart of the service, everybody who is not
//! up to date gets the whole map once.
//!
//! # Invariants
//! - The newest remembered change has the map's current version.
//! - Each part of a whole map begins after the last volume of the part before.
//! - Bricks stay in the map, and a volume keeps all its groups for as long as it is in the map.

use std::collections::BTreeSet;

use types::messages::cluster::{GroupChange, MapGet, MapUpdate, VolumeInfo};
use types::{MapVersion, VolumeId};

use super::history::Changed;
use super::map::Cluster;

/// Approximate size of an answer in bytes. An answer has at least one volume; the largest volume takes 1.3 MiB.
const PART_BYTES: usize = 1 << 20;

impl Cluster {
    /// The update for this request; `None` if its sender is up to date.
    pub(crate) fn map_update(&self, request: &MapGet) -> Option<MapUpdate> {
        if let Some(after) = request.rest {
            return Some(self.volumes_after(Some(after), request));
        }
        if request.have >= self.map.version {
            return None;
        }
        assert_eq!(
            self.history.newest(),
            self.map.version,
            "receivers would take their map for complete without its last change"
        );
        let changes = self.history.after(request.have).filter(|_| request.have > MapVersion(0));
        changes.and_then(|changes| self.changes(&changes, request.volume)).or_else(|| {
            let volumes = self.volumes_after(None, request);
            Some(MapUpdate {
                version: self.map.version,
                whole: true,
                bricks: self.map.bricks.clone(),
                topology: Some(self.map.topology.clone()),
                shards: Some(self.map.shards.clone()),
                ..volumes
            })
        })
    }

    fn nothing(&self, version: MapVersion) -> MapUpdate {
        MapUpdate {
            version,
            cluster: self.map.cluster,
            whole: false,
            bricks: Vec::new(),
            volumes: Vec::new(),
            groups: Vec::new(),
            gone: Vec::new(),
            topology: None,
            shards: None,
            rest: None,
        }
    }

    /// As many volumes after `after` as fit into one answer.
    fn volumes_after(&self, after: Option<VolumeId>, request: &MapGet) -> MapUpdate {
        let mut news = self.nothing(request.have);
        let first = self.map.volumes.partition_point(|volume| after.is_some_and(|after| volume.id <= after));
        let mut bytes = 0;
        for volume in &self.map.volumes[first..] {
            if request.volume.is_some_and(|only| only != volume.id) {
                continue;
            }
            bytes += weight(volume);
            if bytes > PART_BYTES && !news.volumes.is_empty() {
                news.rest = news.volumes.last().map(|volume| volume.id);
                break;
            }
            news.volumes.push(volume.clone());
        }
        assert!(
            news.rest.is_none_or(|rest| Some(rest) > after),
            "every request for the rest would get the same part again"
        );
        news
    }

    /// The changes of one volume or of all; `None` if they are too long for one answer.
    fn changes(&self, changes: &BTreeSet<Changed>, only: Option<VolumeId>) -> Option<MapUpdate> {
        let mut news = self.nothing(self.map.version);
        let wanted = |volume| only.is_none_or(|only| only == volume);
        let mut bytes = 0;
        for changed in changes {
            match *changed {
                Changed::Brick(id) => {
                    let brick = self.map.brick(id);
                    assert!(brick.is_some(), "others would go on calling the brick at its old address");
                    news.bricks.extend(brick.cloned());
                }
                Changed::Volume(id) if wanted(id) => match self.map.volume(id) {
                    Some(volume) => {
                        bytes += weight(volume);
                        news.volumes.push(volume.clone());
                    }
                    None => news.gone.push(id),
                },
                // The groups of a removed volume are gone with it.
                Changed::Group(group) if wanted(group.volume) => {
                    let config = self.map.group(group).map(|(_, config)| config);
                    assert!(
                        config.is_some() || self.map.volume(group.volume).is_none(),
                        "clients would keep an old configuration of the group"
                    );
                    if let Some(config) = config {
                        bytes += GROUP_BYTES + config.slots.len() * SLOT_BYTES;
                        news.groups.push(GroupChange { group, config: config.clone() });
                    }
                }
                Changed::Topology => {
                    bytes += self.map.topology.len();
                    news.topology = Some(self.map.topology.clone());
                }
                Changed::Shards => news.shards = Some(self.map.shards.clone()),
                Changed::Volume(_) | Changed::Group(_) => {}
            }
            if bytes > PART_BYTES {
                return None;
            }
        }
        Some(news)
    }
}

/// Approximate bytes of a group in a message, without its slots, and of a slot.
const GROUP_BYTES: usize = 20;
const SLOT_BYTES: usize = 5;

/// Approximate bytes of a volume in a message.
fn weight(volume: &VolumeInfo) -> usize {
    let slots: usize = volume.groups.iter().map(|group| group.slots.len()).sum();
    let table = volume.groups.len() * GROUP_BYTES + slots * SLOT_BYTES;
    200 + volume.name.len() + volume.tuning.len() + table
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::*;
    use crate::fixture::{brick_join, on_all, volume_create};
    use types::messages::cluster::{BrickReplace, ClusterMap, GroupAdmit, GroupRenew, MapFetch, MapReply};
    use types::{BrickId, ClusterId, Epoch, GroupId, NodeId};

    const GONE: u64 = types::limits::LEASE_US + types::limits::LEASE_MARGIN_US + 1;

    /// Asks until everything is there; how many answers that took.
    fn follow(cluster: &Cluster, map: &mut ClusterMap, volume: Option<VolumeId>) -> usize {
        let mut fetch = MapFetch::new(map.version, volume);
        let mut answers = 1;
        while !fetch.answered(MapReply { update: cluster.map_update(fetch.request()) }) {
            answers += 1;
        }
        fetch.apply(map);
        answers
    }

    /// Ignores free space, which is not part of a version: it is that of the time of the request.
    fn same(mut map: ClusterMap, cluster: &Cluster) {
        for (mine, theirs) in map.bricks.iter_mut().zip(&cluster.map().bricks) {
            mine.free = theirs.free;
        }
        assert_eq!(&map, cluster.map());
    }

    #[test]
    fn whoever_follows_the_changes_has_the_map() {
        on_all(|mut fixture| {
            let mut map = ClusterMap::empty(ClusterId::default());
            let mut one = map.clone();
            follow(&fixture.state.cluster, &mut map, None);
            same(map.clone(), &fixture.state.cluster);
            let volume = fixture.volume;
            follow(&fixture.state.cluster, &mut one, Some(volume));
            let mut check = |fixture: &crate::fixture::Fixture, what: &str| {
                let whole =
                    fixture.state.cluster.map_update(&MapGet { have: map.version, volume: None, rest: None });
                assert!(whole.is_none_or(|news| !news.whole), "{what}: only what has changed is told");
                follow(&fixture.state.cluster, &mut map, None);
                same(map.clone(), &fixture.state.cluster);
                follow(&fixture.state.cluster, &mut one, Some(volume));
                assert_eq!(one.version, map.version, "{what}");
                assert_eq!(one.volumes.as_slice(), map.volume(volume).map_or(&[][..], std::slice::from_ref));
            };
            fixture.state.volume_create(&volume_create("more", "1+1"), 1).expect("it fits");
            check(&fixture, "a new volume");
            let cluster = &mut fixture.state.cluster;
            assert!(cluster.join(&brick_join(1, 2), 10).is_ok());
            check(&fixture, "a new life");
            let new = types::messages::cluster::BrickJoin { node: NodeId(1), ..brick_join(6, 1) };
            assert!(fixture.state.cluster.join(&new, GONE).is_ok());
            check(&fixture, "a new brick");
            let beat = |brick| types::messages::cluster::BrickHeartbeat {
                brick: BrickId(brick),
                incarnation: types::Incarnation(1),
                free: 1 << 30,
                shard: types::ShardId::FIRST,
                reach: Default::default(),
            };
            for brick in 2..=4 {
                assert_eq!(fixture.state.cluster.beat(&beat(brick), GONE), Ok(()));
            }
            assert!(!fixture.state.cluster.expire(GONE + 20).is_empty());
            check(&fixture, "a lost brick");
            let (old, new) = (BrickId(1), BrickId(6));
            assert!(fixture.state.cluster.replace(&BrickReplace { old, new }).0 > 0);
            check(&fixture, "another brick in its place");
            let (index, group) = {
                let groups = fixture.state.cluster.map().volume(volume).expect("there").groups.iter();
                (0..).zip(groups).find(|(_, group)| group.slot_of(new).is_some()).expect("it has slots")
            };
            let id = GroupId { volume, index };
            let code = fixture.state.cluster.map().volume(volume).expect("there").geometry.code();
            let brick = group.slots[group.primary(code).expect("enough are live")].brick;
            let slot = group.slot_of(new).expect("just found") as u8;
            let epoch = group.epoch;
            let admit = GroupAdmit { group: id, epoch, brick, slot };
            assert!(fixture.state.cluster.admit(&admit, GONE + 1).is_ok_and(|writes| !writes.is_empty()));
            check(&fixture, "a slot that is live again");
            let group = fixture.state.cluster.map().group(id).expect("there").1.clone();
            let brick = group.slots[group.primary(code).expect("enough are live")].brick;
            let renew = GroupRenew { group: id, epoch: Epoch(epoch.0 + 1), brick };
            assert!(fixture.state.cluster.renew(&renew).is_ok_and(|writes| !writes.is_empty()));
            check(&fixture, "a new epoch");
            assert!(fixture.state.cluster.tune_volume(volume, "read-ahead=off").is_ok());
            check(&fixture, "new settings of a volume");
            let (shard, _) = fixture.state.cluster.add_shard(1).expect("there is room");
            check(&fixture, "a new shard");
            assert!(fixture.state.cluster.shard_announced(shard, "c:1,d:1").is_ok());
            check(&fixture, "its servers");
            assert!(fixture.state.cluster.remove_shard(shard).is_ok());
            check(&fixture, "a shard that is gone");
            assert!(fixture.state.cluster.delete_volume("more").is_ok());
            check(&fixture, "a volume that is gone");
        });
    }

    #[test]
    fn a_long_map_comes_in_parts_and_a_change_of_it_does_not() {
        on_all(|mut fixture| {
            for number in 0..40 {
                let mut create = volume_create(&format!("v{number}"), "2+1");
                create.groups = 2000;
                fixture.state.volume_create(&create, 1).expect("it fits");
            }
            let mut map = ClusterMap::empty(ClusterId::default());
            let answers = follow(&fixture.state.cluster, &mut map, None);
            assert!(answers > 2, "{answers}");
            same(map.clone(), &fixture.state.cluster);
            let before = map.version;
            assert!(fixture.state.cluster.grow_volume(fixture.volume, 1 << 30).is_ok());
            let request = MapGet { have: before, volume: None, rest: None };
            let news = fixture.state.cluster.map_update(&request).expect("it is newer");
            assert_eq!((news.whole, news.volumes.len(), news.bricks.len()), (false, 1, 0));
            // Without the changes in memory, the answer begins the whole map.
            fixture.state.cluster.history = History::from(fixture.state.cluster.map.version);
            let news = fixture.state.cluster.map_update(&request).expect("it is newer");
            assert!(news.whole && news.rest.is_some());
        });
    }
}
