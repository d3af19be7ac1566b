//! What the arbiter knows, and the map that all others are shown.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::cluster::{BrickInfo, BrickState, ClusterMap, SlotConfig, SlotState, VolumeInfo};
use types::{BrickId, Geometry, Incarnation, MapVersion, VolumeId};

use super::map_updates::{Changed, History};
use crate::kv::{Store, Writes};
use crate::records::{BrickRecord, VolumeRecord, from_value, to_value};
use crate::{MetaError, keys};

/// What is known of a brick beside the map.
#[derive(Clone, Debug)]
pub(super) struct BrickInstance {
    pub(super) incarnation: Incarnation,
    pub(super) device: [u8; 16],
    /// When it was last heard, or when the service started.
    pub(super) heard: u64,
}

/// The arbiter's state, equal to what is committed but for leases and free space.
pub(crate) struct Cluster {
    pub(super) map: ClusterMap,
    pub(super) instances: BTreeMap<BrickId, BrickInstance>,
    /// Deleted volumes whose space is not yet back.
    pub(super) deleted: BTreeMap<VolumeId, VolumeRecord>,
    /// What has changed in the map lately.
    pub(super) history: History,
}

impl Cluster {
    /// Reads the cluster; every lease counts from `now`.
    pub(crate) fn load(store: &Store, now: u64) -> Result<Cluster, MetaError> {
        let cluster = crate::cluster_of(store.engine())?.ok_or(MetaError::NoCluster)?;
        let version = store.get(&keys::map_version(), from_value)?.0;
        let version = version.transpose().map_err(|_| MetaError::Damaged)?.unwrap_or(MapVersion(1));
        let map = ClusterMap { version, ..ClusterMap::empty(cluster) };
        let history = History::from(map.version);
        let mut arbiter = Cluster { map, instances: BTreeMap::new(), deleted: BTreeMap::new(), history };
        let mut damaged = false;
        let prefix = keys::all::bricks();
        store.range(&prefix, &keys::after_all(&prefix), &Writes::new(), &mut |key, value| {
            match (keys::last_u32(key), from_value(value)) {
                (Some(id), Ok(record)) => arbiter.load_brick(BrickId(id), record, now),
                _ => damaged = true,
            }
            true
        })?;
        let prefix = keys::all::volumes();
        store.range(&prefix, &keys::after_all(&prefix), &Writes::new(), &mut |key, value| {
            match (keys::last_u32(key), from_value(value)) {
                (Some(id), Ok(record)) => arbiter.load_volume(VolumeId(id), record),
                _ => damaged = true,
            }
            true
        })?;
        if damaged { Err(MetaError::Damaged) } else { Ok(arbiter) }
    }

    fn load_brick(&mut self, id: BrickId, record: BrickRecord, now: u64) {
        self.instances
            .insert(id, BrickInstance { incarnation: record.incarnation, device: record.device, heard: now });
        let BrickRecord { node, address, capacity, free, state, .. } = record;
        self.map.bricks.push(BrickInfo { id, node, address, capacity, free, state });
    }

    fn load_volume(&mut self, id: VolumeId, record: VolumeRecord) {
        if record.deleted {
            self.deleted.insert(id, record);
        } else {
            let VolumeRecord { name, geometry, groups, same_node, block, .. } = record;
            self.map.volumes.push(VolumeInfo { id, name, geometry, groups, same_node, block });
        }
    }

    /// The map, with every brick's free space as last heard.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    pub(crate) fn version(&self) -> MapVersion {
        self.map.version
    }

    /// The volumes in use.
    pub(crate) fn geometries(&self) -> BTreeMap<VolumeId, Geometry> {
        self.map.volumes.iter().map(|volume| (volume.id, volume.geometry)).collect()
    }

    /// The volumes that are disks.
    pub(crate) fn disks(&self) -> BTreeSet<VolumeId> {
        self.map.volumes.iter().filter(|volume| volume.block.is_some()).map(|volume| volume.id).collect()
    }

    /// Deleted volumes whose space is not yet back.
    pub(crate) fn deleted(&self) -> impl Iterator<Item = VolumeId> {
        self.deleted.keys().copied()
    }

    /// The bricks that have to forget an object of a volume, deleted or not, before it is gone for good.
    ///
    /// A brick that is Out, and none of whose slots in the volume is live, is not waited for: when it is back, the
    /// groups' primaries compare what it has with what they have, and have it forget the rest. A deleted volume has no
    /// primaries: every brick is waited for until it is back, or replaced.
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

    /// Gives the map its next version, in which this has changed; `writes` get it.
    pub(super) fn publish(&mut self, changed: impl IntoIterator<Item = Changed>, writes: &mut Writes) {
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
    }

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
}
