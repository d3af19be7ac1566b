//! The cluster map: bricks, volumes and groups, and how they change.

use std::collections::BTreeSet;

use super::shards::ShardInfo;
use crate::{
    BrickId, ClusterId, Code, Epoch, Geometry, GroupId, MapVersion, NodeId, VolumeId, coded_enum, records,
};

coded_enum! {
    /// What a brick is to the cluster.
    pub enum BrickState: u8 {
        /// Holds a lease.
        Up = 1,
        /// Its lease has run out.
        Out = 2,
    }
}

coded_enum! {
    /// What a slot's brick is to the group.
    pub enum SlotState: u8 {
        /// Takes part in every operation that concerns it.
        Live = 1,
        /// It has missed operations and takes no part until the group's primary has brought it level.
        Out = 2,
    }
}

coded_enum! {
    /// The class of a brick's device. A tier may be placed on the bricks of one class.
    pub enum BrickClass: u8 {
        /// A solid-state drive, or anything as fast.
        Ssd = 1,
        /// A rotating disk.
        Hdd = 2,
    }
}

coded_enum! {
    /// How much fails together: no two units of a stripe share a failure domain. Which nodes share one follows from the
    /// cluster's topology.
    pub enum FailureDomain: u8 {
        /// One brick.
        Brick = 1,
        /// A machine with all its bricks.
        Node = 2,
        /// A rack of a fat tree.
        Rack = 3,
        /// A line of a torus along its first dimension: nodes that differ in the first coordinate only, as where a line
        /// shares its power.
        Row = 4,
    }
}

records! {
    names REQUESTS;
    /// A brick of the cluster.
    part BrickInfo {
        /// The brick.
        id: BrickId,
        /// Its machine.
        node: NodeId,
        /// Where its server listens, `host:port`.
        address: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free when last heard.
        free: u64,
        /// What it is to the cluster.
        state: BrickState,
        /// The class of its device.
        class: BrickClass,
    }
    /// A slot of a group.
    fixed part SlotConfig {
        /// The brick.
        brick: BrickId,
        /// What it is to the group.
        state: SlotState,
    }
    /// The configuration of a group.
    part GroupConfig {
        /// Its version.
        epoch: Epoch,
        /// Slots `0..K` data, then parity.
        slots: Vec<SlotConfig>,
    }
    /// What a tier is made of.
    part TierSpec {
        /// How the bytes of its files become stripes.
        geometry: Geometry,
        /// Only bricks of this class hold its units; all for [`None`].
        class: Option<BrickClass>,
    }
    /// A further tier of a volume.
    part TierInfo {
        /// What it is made of.
        spec: TierSpec,
        /// Its first group in the volume's table. It has those up to the next tier's first.
        first: u32,
    }
    /// How the topology decides where the groups of a volume lie.
    part PlacementSpec {
        /// What the members of a group do not share.
        domain: FailureDomain,
        /// Primaries are only on bricks of front nodes.
        front_primaries: bool,
        /// A brick shares groups with any other that is near, and not only with few: rebuilds have more helpers, and more sets
        /// of nodes lose something together.
        wide: bool,
    }
    /// A volume.
    part VolumeInfo {
        /// The volume.
        id: VolumeId,
        /// Its name.
        name: String,
        /// How the bytes of files in the first tier become stripes.
        geometry: Geometry,
        /// The table of groups, tier by tier; extents hash to the entries of a tier.
        groups: Vec<GroupConfig>,
        /// Slots of one group may lie on one node.
        same_node: bool,
        /// Size in bytes of a block volume, whose only file is [`DISK`](super::volumes::DISK). [`None`] for a volume of files.
        block: Option<u64>,
        /// Settings of the clients' translators, as [`Tuning`](crate::Tuning) shows them; empty if nothing is set.
        tuning: String,
        /// The class of the bricks of the first tier.
        class: Option<BrickClass>,
        /// Further tiers: the second, the third, ... As a rule there are none.
        tiers: Vec<TierInfo>,
        /// How the topology decides where groups lie; [`None`] for volumes that are placed without it.
        placement: Option<PlacementSpec>,
        /// Clients ask that new files begin in a group near them.
        near_writer: bool,
    }
    /// What clients and bricks know about the cluster: of its volumes, about those of one shard.
    part ClusterMap {
        /// Grows with every change.
        version: MapVersion,
        /// The cluster.
        cluster: ClusterId,
        /// All bricks, by id.
        bricks: Vec<BrickInfo>,
        /// All volumes, by id.
        volumes: Vec<VolumeInfo>,
        /// The network between the nodes, as `layout::topology` writes it; empty if nothing is known about it.
        topology: String,
        /// The other shards, by number: only the first shard knows them.
        shards: Vec<ShardInfo>,
    }

    /// A group has a new configuration.
    part GroupChange {
        /// The group.
        group: GroupId,
        /// Its configuration.
        config: GroupConfig,
    }
    /// The changes between the caller's map and the current one, or a part of them. [`MapFetch`](super::cluster::MapFetch) puts the parts
    /// together.
    part MapUpdate {
        /// The version that the caller's map has when the caller has applied all parts (`rest`).
        version: MapVersion,
        /// The cluster.
        cluster: ClusterId,
        /// This part begins a whole map: the caller discards its old one.
        whole: bool,
        /// Bricks that are new or have changed, by id.
        bricks: Vec<BrickInfo>,
        /// Volumes that are new or have changed in more than their groups, by id.
        volumes: Vec<VolumeInfo>,
        /// Groups that have changed.
        groups: Vec<GroupChange>,
        /// Volumes that have been deleted.
        gone: Vec<VolumeId>,
        /// The topology, if it has changed or a whole map begins.
        topology: Option<String>,
        /// The other shards, if they have changed or a whole map begins.
        shards: Option<Vec<ShardInfo>>,
        /// The last volume that fitted into this answer, if more follow. Ask again for those after it.
        rest: Option<VolumeId>,
    }
    /// Asks for the changes of the cluster map since version `have`.
    200 MapGet {
        /// The version that the caller has, 0 for none.
        have: MapVersion,
        /// The only volume that the caller is interested in; all for [`None`]. Bricks are always included.
        volume: Option<VolumeId>,
        /// `rest` of the last answer.
        rest: Option<VolumeId>,
    } => MapReply;
    /// The changes, if there are any.
    201 MapReply {
        /// The changes.
        update: Option<MapUpdate>,
    };
}

impl GroupConfig {
    /// The slot that orders the group's writes: the lowest live parity slot; the lowest live data slot if no parity
    /// slot is live. `None` if none is.
    pub fn primary(&self, code: Code) -> Option<usize> {
        let live = |slot: &usize| self.slots.get(*slot).is_some_and(|s| s.state == SlotState::Live);
        (code.k()..code.slots()).find(live).or_else(|| (0..code.k()).find(live))
    }

    /// Mask of the live slots.
    pub fn live(&self) -> u64 {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.state == SlotState::Live)
            .fold(0, |mask, (i, _)| mask | 1 << i)
    }

    /// The slot of a brick.
    pub fn slot_of(&self, brick: BrickId) -> Option<usize> {
        self.slots.iter().position(|s| s.brick == brick)
    }
}

impl ClusterMap {
    /// A map of an empty cluster.
    pub fn empty(cluster: ClusterId) -> ClusterMap {
        let (bricks, volumes, topology, shards) = (Vec::new(), Vec::new(), String::new(), Vec::new());
        ClusterMap { version: MapVersion(0), cluster, bricks, volumes, topology, shards }
    }

    /// Whether a brick holds a lease.
    pub fn is_up(&self, brick: BrickId) -> bool {
        self.brick(brick).is_some_and(|brick| brick.state == BrickState::Up)
    }

    /// A brick by its id.
    pub fn brick(&self, id: BrickId) -> Option<&BrickInfo> {
        Some(&self.bricks[self.bricks.binary_search_by_key(&id, |brick| brick.id).ok()?])
    }

    /// A volume by its id.
    pub fn volume(&self, id: VolumeId) -> Option<&VolumeInfo> {
        Some(&self.volumes[self.volumes.binary_search_by_key(&id, |volume| volume.id).ok()?])
    }

    /// A volume by its name.
    pub fn volume_named(&self, name: &str) -> Option<&VolumeInfo> {
        self.volumes.iter().find(|v| v.name == name)
    }

    /// A group's volume and configuration.
    pub fn group(&self, id: GroupId) -> Option<(&VolumeInfo, &GroupConfig)> {
        let volume = self.volume(id.volume)?;
        Some((volume, volume.groups.get(id.index as usize)?))
    }

    /// Applies changes up to a later version.
    pub(super) fn take(&mut self, news: MapUpdate) {
        let MapUpdate { version, cluster, whole, bricks, volumes, groups, gone, topology, shards, rest: _ } =
            news;
        if whole {
            *self = ClusterMap::empty(cluster);
        }
        self.version = version;
        self.topology = topology.unwrap_or_else(|| std::mem::take(&mut self.topology));
        self.shards = shards.unwrap_or_else(|| std::mem::take(&mut self.shards));
        bricks.into_iter().for_each(|brick| put(&mut self.bricks, brick, |brick| brick.id));
        volumes.into_iter().for_each(|volume| put(&mut self.volumes, volume, |volume| volume.id));
        for GroupChange { group: GroupId { volume, index }, config } in groups {
            let at = self.volumes.binary_search_by_key(&volume, |volume| volume.id);
            let volume = at.ok().and_then(|at| self.volumes.get_mut(at));
            if let Some(group) = volume.and_then(|volume| volume.groups.get_mut(index as usize)) {
                *group = config;
            }
        }
        let gone: BTreeSet<VolumeId> = gone.into_iter().collect();
        if !gone.is_empty() {
            self.volumes.retain(|volume| !gone.contains(&volume.id));
        }
    }
}

/// Puts an item into a list ordered by `key`; it replaces an item with the same key.
fn put<T, K: Ord>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.binary_search_by_key(&key(&item), &key) {
        Ok(at) => list[at] = item,
        Err(at) => list.insert(at, item),
    }
}

impl MapUpdate {
    /// A whole map, in one part.
    pub fn whole(map: ClusterMap) -> MapUpdate {
        let ClusterMap { version, cluster, bricks, volumes, topology, shards } = map;
        let (groups, gone) = (Vec::new(), Vec::new());
        let (topology, shards) = (Some(topology), Some(shards));
        MapUpdate {
            version,
            cluster,
            whole: true,
            bricks,
            volumes,
            groups,
            gone,
            topology,
            shards,
            rest: None,
        }
    }
}
