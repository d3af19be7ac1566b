//! The arbiter's state, and the cluster map that all others see.
//!
//! # Invariants
//! - The state here equals the store with all writes that were handed out.
//! - A version of the map and its changes become durable together.

use std::collections::{BTreeMap, BTreeSet};

use layout::topology::Topology;
use types::messages::cluster::{
    BrickClass, BrickInfo, BrickState, ClusterMap, GroupConfig, SlotConfig, SlotState, VolumeInfo,
};
use types::wire::Codec;
use types::{BrickId, GroupId, Incarnation, MapVersion, ShardId, VolumeId};

use super::history::{Changed, History};
use super::reports::Reports;
use super::topology;
use crate::cluster_id::cluster_of;
use crate::kv::{Store, Writes};
use crate::records::{BrickRecord, OwnShard, TiersRecord, VolumeRecord, from_value, to_value};
use crate::volatile::VolumeTable;
use crate::{MetaError, keys};

/// A brick has room for new files near their writers if at least this part of it is free: else they go anywhere, and the bricks
/// near one busy writer do not fill up first.
const ROOM_PART: u64 = 16;

/// What the arbiter knows of a brick and the map does not say.
#[derive(Clone, Debug)]
pub(super) struct BrickInstance {
    pub(super) incarnation: Incarnation,
    pub(super) device: [u8; 16],
    /// The time of its last message, or of the service's start.
    pub(super) heard: u64,
}

/// The arbiter's state. All of it is in the store, except leases and free space.
pub(crate) struct Cluster {
    pub(super) map: ClusterMap,
    pub(super) instances: BTreeMap<BrickId, BrickInstance>,
    /// Deleted volumes whose bytes are not yet purged.
    pub(super) deleted: BTreeMap<VolumeId, VolumeRecord>,
    /// The last changes of the map.
    pub(super) history: History,
    /// When the cluster was restored last, in seconds since 1970; 0 if never.
    pub(crate) restored: u64,
    /// Bricks that may know shards which a restored store has forgotten.
    pub(super) unheard: BTreeSet<BrickId>,
    /// The map's topology, read; [`None`] if this program cannot read it.
    pub(super) topology: Option<Topology>,
    /// The shard that this service serves.
    pub(super) own: OwnShard,
    /// The last number that was given to a shard.
    pub(super) last_shard: ShardId,
    /// For whom numbers were given out.
    pub(super) shard_tokens: BTreeMap<ShardId, u64>,
    pub(super) removed_shards: BTreeSet<ShardId>,
    /// Who reaches whom, in memory only: after a restart it is heard anew.
    pub(super) reports: Reports,
}

/// Calls `load` with the id and the record of every key with a prefix.
pub(super) fn each<I, R: Codec>(
    store: &Store,
    prefix: &[u8],
    id_of: impl Fn(&[u8]) -> Option<I>,
    mut load: impl FnMut(I, R),
) -> Result<(), MetaError> {
    let mut damaged = false;
    store.range(prefix, &keys::after_all(prefix), &Writes::new(), &mut |key, value| {
        match (id_of(key), from_value(value)) {
            (Some(id), Ok(record)) => load(id, record),
            _ => damaged = true,
        }
        true
    })?;
    if damaged { Err(MetaError::Damaged) } else { Ok(()) }
}

impl Cluster {
    /// Reads the cluster; every lease counts from `now`.
    pub(crate) fn load(store: &Store, now: u64) -> Result<Cluster, MetaError> {
        let cluster = cluster_of(store.engine())?.ok_or(MetaError::NoCluster)?;
        let version = store.get(&keys::map_version(), from_value)?.0;
        let version = version.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or(MapVersion(1));
        let topology = store.get(&keys::topology(), from_value)?.0;
        let topology = topology.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or_default();
        let map = ClusterMap { version, topology, ..ClusterMap::empty(cluster) };
        let history = History::from(map.version);
        let topology = topology::read(&map.topology).ok();
        let (instances, deleted) = (BTreeMap::new(), BTreeMap::new());
        let restored = store.get(&keys::restored(), from_value::<u64>)?.0;
        let restored = restored.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or(0);
        let (own, last_shard) = (OwnShard::default(), ShardId::FIRST);
        let (shard_tokens, removed_shards) = (BTreeMap::new(), BTreeSet::new());
        let mut arbiter = Cluster {
            map,
            instances,
            deleted,
            history,
            restored,
            unheard: BTreeSet::new(),
            topology,
            own,
            last_shard,
            shard_tokens,
            removed_shards,
            reports: Reports::default(),
        };
        arbiter.load_shards(store)?;
        let of_volume = |key: &[u8]| keys::last_u32(key).map(VolumeId);
        let of_brick = |key: &[u8]| keys::last_u32(key).map(BrickId);
        each(store, &keys::all::bricks(), of_brick, |id, record| arbiter.load_brick(id, record, now))?;
        arbiter.load_unheard(store)?;
        each(store, &keys::all::volumes(), of_volume, |id, record| arbiter.load_volume(id, record))?;
        each(store, &keys::all::groups(), keys::group_of, |id, config| arbiter.load_group(id, config))?;
        each(store, &keys::all::tunings(), of_volume, |id, tuning| {
            arbiter.with_volume(id, |volume| volume.tuning = tuning);
        })?;
        each(store, &keys::all::tiers(), of_volume, |id, record: TiersRecord| {
            arbiter.with_volume(id, |volume| (volume.class, volume.tiers) = (record.class, record.tiers));
        })?;
        each(store, &keys::all::placements(), of_volume, |id, placement| {
            arbiter.with_volume(id, |volume| volume.placement = Some(placement));
        })?;
        each(store, &keys::all::near_writers(), of_volume, |id, near_writer| {
            arbiter.with_volume(id, |volume| volume.near_writer = near_writer);
        })?;
        each(store, &keys::all::brick_classes(), of_brick, |id, class| arbiter.load_class(id, class))?;
        Ok(arbiter)
    }

    /// The bricks that a restored cluster does not wait for.
    pub(crate) fn lost_bricks(store: &Store) -> Result<Vec<BrickId>, MetaError> {
        let found = store.get(&keys::lost_bricks(), from_value)?.0;
        Ok(found.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or_default())
    }

    fn load_brick(&mut self, id: BrickId, record: BrickRecord, now: u64) {
        self.instances
            .insert(id, BrickInstance { incarnation: record.incarnation, device: record.device, heard: now });
        let BrickRecord { node, address, capacity, free, state, .. } = record;
        let class = BrickClass::Ssd;
        self.map.bricks.push(BrickInfo { id, node, address, capacity, free, state, class });
    }

    fn load_volume(&mut self, id: VolumeId, record: VolumeRecord) {
        if record.deleted {
            self.deleted.insert(id, record);
        } else {
            let VolumeRecord { name, geometry, groups, same_node, block, .. } = record;
            self.map.volumes.push(VolumeInfo {
                id,
                name,
                geometry,
                groups,
                same_node,
                block,
                tuning: String::new(),
                class: None,
                tiers: Vec::new(),
                placement: None,
                near_writer: false,
            });
        }
    }

    fn load_group(&mut self, id: GroupId, config: GroupConfig) {
        self.with_volume(id.volume, |volume| {
            if let Some(group) = volume.groups.get_mut(id.index as usize) {
                *group = config;
            }
        });
    }

    fn with_volume(&mut self, id: VolumeId, change: impl FnOnce(&mut VolumeInfo)) {
        if let Some(volume) = self.map.volumes.iter_mut().find(|volume| volume.id == id) {
            change(volume);
        }
    }

    fn load_class(&mut self, id: BrickId, class: BrickClass) {
        if let Some(brick) = self.map.bricks.iter_mut().find(|brick| brick.id == id) {
            brick.class = class;
        }
    }

    /// The map, with every brick's free space as last heard.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    pub(crate) fn version(&self) -> MapVersion {
        self.map.version
    }

    /// The volumes in use: what operations on names need to know of them.
    pub(crate) fn tables(&self) -> BTreeMap<VolumeId, VolumeTable> {
        let table = |volume: &VolumeInfo| VolumeTable {
            tiers: 1 + volume.tiers.len() as u8,
            first_groups: volume.tiers.first().map_or(volume.groups.len() as u32, |tier| tier.first),
            near_writer: volume.near_writer,
        };
        self.map.volumes.iter().map(|volume| (volume.id, table(volume))).collect()
    }

    /// Those of some groups of a volume whose bricks all have room: at least a sixteenth of each is free.
    pub(crate) fn with_room(&self, volume: VolumeId, groups: &[u32]) -> Vec<u32> {
        let Some(volume) = self.map.volume(volume) else { return Vec::new() };
        let has_room = |slot: &SlotConfig| {
            self.map.brick(slot.brick).is_some_and(|brick| brick.free >= brick.capacity / ROOM_PART)
        };
        let group = |index: u32| volume.groups.get(index as usize);
        let all_have_room = |index: &u32| group(*index).is_some_and(|group| group.slots.iter().all(has_room));
        groups.iter().copied().filter(all_have_room).collect()
    }

    /// The block volumes.
    pub(crate) fn disks(&self) -> BTreeSet<VolumeId> {
        self.map.volumes.iter().filter(|volume| volume.block.is_some()).map(|volume| volume.id).collect()
    }

    /// Deleted volumes whose bytes are not yet purged.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = VolumeId> {
        self.deleted.keys().copied()
    }

    /// The bricks that must purge an object of a volume, deleted or not, before the object is gone for good.
    ///
    /// The purger does not wait for a brick that is Out and has no live slot in the volume: when the brick is back, the
    /// groups' primaries compare its units with theirs, and it deletes what they do not know. A deleted volume has no
    /// primaries, so the purger waits for every brick until the brick is back or replaced.
    pub(crate) fn holders_of(&self, volume: VolumeId) -> BTreeSet<BrickId> {
        let (groups, deleted) = match self.map.volume(volume) {
            Some(volume) => (&volume.groups, false),
            None => match self.deleted.get(&volume) {
                Some(record) => (&record.groups, true),
                None => return BTreeSet::new(),
            },
        };
        let slots = groups.iter().flat_map(|group| &group.slots);
        let waited = |slot: &&SlotConfig| {
            deleted || slot.state == SlotState::Live || self.address_of(slot.brick).is_some()
        };
        slots.filter(waited).map(|slot| slot.brick).collect()
    }

    /// Where a brick listens, if it is Up.
    pub(crate) fn address_of(&self, brick: BrickId) -> Option<&str> {
        self.map
            .brick(brick)
            .filter(|brick| brick.state == BrickState::Up)
            .map(|brick| brick.address.as_str())
    }

    /// Increments the map's version, records these changes under it, and adds to `writes` the version and the groups among them.
    pub(super) fn publish(&mut self, changed: impl IntoIterator<Item = Changed>, writes: &mut Writes) {
        let changed: Vec<Changed> = changed.into_iter().collect();
        for change in &changed {
            if let Changed::Group(id) = *change
                && let Some((_, config)) = self.map.group(id)
            {
                writes.insert(keys::group(id), Some(to_value(config)));
            }
        }
        assert!(!writes.is_empty(), "after a crash the map would have this version without its changes");
        self.map.version = MapVersion(self.map.version.0 + 1);
        self.history.add(self.map.version, changed);
        writes.insert(keys::map_version(), Some(to_value(&self.map.version)));
    }

    pub(super) fn write_brick(&self, id: BrickId, writes: &mut Writes) {
        let (Some(brick), Some(instance)) = (self.map.brick(id), self.instances.get(&id)) else { return };
        let record = BrickRecord {
            node: brick.node,
            address: brick.address.clone(),
            capacity: brick.capacity,
            free: brick.free,
            state: brick.state,
            incarnation: instance.incarnation,
            device: instance.device,
        };
        writes.insert(keys::brick(id), Some(to_value(&record)));
        writes.insert(keys::brick_class(id), Some(to_value(&brick.class)));
    }

    /// A volume's record. Its groups change by records of their own ([`Cluster::publish`]).
    pub(super) fn write_volume(volume: &VolumeInfo, writes: &mut Writes) {
        let record = VolumeRecord {
            name: volume.name.clone(),
            geometry: volume.geometry,
            groups: volume.groups.clone(),
            same_node: volume.same_node,
            block: volume.block,
            deleted: false,
        };
        writes.insert(keys::volume(volume.id), Some(to_value(&record)));
    }

    /// A volume's tiers. They change only with a new volume and a new tier.
    pub(super) fn write_tiers(volume: &VolumeInfo, writes: &mut Writes) {
        let record = TiersRecord { class: volume.class, tiers: volume.tiers.clone() };
        let plain = record.class.is_none() && record.tiers.is_empty();
        writes.insert(keys::tiers(volume.id), if plain { None } else { Some(to_value(&record)) });
    }
}
