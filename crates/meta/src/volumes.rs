//! Makes, grows, tunes and deletes volumes, and removes deleted ones a part at a time.

use types::messages::cluster::{
    DISK, TopologySet, VolumeAddTier, VolumeCreate, VolumeGrow, VolumeInfo, VolumeTune,
};
use types::{InodeId, Refusal, VolumeId};

use crate::cluster::check_disk_size;
use crate::keys;
use crate::kv::Writes;
use crate::ops;
use crate::records::{from_value, to_value};
use crate::state::{Change, State};

impl State {
    pub(crate) fn volume_create(&mut self, request: &VolumeCreate, wall: i64) -> Result<VolumeInfo, Refusal> {
        if self.has_failed() {
            return Err(Refusal::MetaFailed);
        }
        self.check_room()?;
        let last = self.store.get(&keys::volume_counter(), from_value::<u32>);
        let last = last.map_err(|_| Refusal::MetaFailed)?.0.transpose()?.unwrap_or(0);
        if !self.cluster.shard().volumes().contains(&(last + 1)) {
            return Err(Refusal::TooMany);
        }
        let disk = request.block.map(|_| self.next_id()).transpose()?;
        let (volume, writes) = self.cluster.create_volume(request, VolumeId(last + 1), disk, wall)?;
        self.commit_or_fail(writes)?;
        self.volumes_changed();
        Ok(volume)
    }

    /// A new id, for writes that do not go through a batch.
    fn next_id(&self) -> Result<InodeId, Refusal> {
        let last = self.store.get(&keys::id_counter(), from_value::<u64>);
        let last = last.map_err(|_| Refusal::MetaFailed)?.0.transpose()?;
        Ok(InodeId(last.unwrap_or(InodeId::ROOT.0) + 1))
    }

    /// Makes a block volume and its disk larger, in one commit.
    pub(crate) fn volume_grow(&mut self, request: &VolumeGrow) -> Result<VolumeInfo, Refusal> {
        self.check_room()?;
        let volume = self.cluster.map().volume_named(&request.name).ok_or(Refusal::Unknown)?;
        let (id, old) = (volume.id, volume.block.ok_or(Refusal::Invalid)?);
        check_disk_size(request.size)?;
        if request.size < old {
            return Err(Refusal::Invalid);
        }
        let (place, mut disk) = self.read(|txn| {
            let (_, entry, disk) = txn.find((id, InodeId::ROOT), DISK)?;
            Ok(((id, entry.inode), disk))
        })?;
        disk.size = disk.size.max(request.size);
        let (volume, mut writes) = self.cluster.grow_volume(id, request.size)?;
        writes.insert(keys::inode(place.0, place.1), Some(to_value(&disk)));
        self.commit_or_fail(writes)?;
        Ok(volume)
    }

    /// Changes a volume's settings of the clients' translators.
    pub(crate) fn volume_tune(&mut self, request: &VolumeTune) -> Result<VolumeInfo, Refusal> {
        let id = self.cluster.map().volume_named(&request.name).ok_or(Refusal::Unknown)?.id;
        let (volume, writes) = self.cluster.tune_volume(id, &request.changes)?;
        self.commit_or_fail(writes)?;
        Ok(volume)
    }

    /// Says what the network between the nodes is.
    pub(crate) fn topology_set(&mut self, request: &TopologySet) -> Result<(), Refusal> {
        let writes = self.cluster.set_topology(request)?;
        if writes.is_empty() { Ok(()) } else { self.commit_or_fail(writes) }
    }

    /// Adds a tier to a volume.
    pub(crate) fn volume_add_tier(&mut self, request: &VolumeAddTier) -> Result<VolumeInfo, Refusal> {
        self.check_room()?;
        let id = self.cluster.map().volume_named(&request.name).ok_or(Refusal::Unknown)?.id;
        let (volume, writes) = self.cluster.add_tier(id, &request.tier)?;
        self.commit_or_fail(writes)?;
        self.volumes_changed();
        Ok(volume)
    }

    /// Copies the list of volumes from the arbiter.
    pub(crate) fn volumes_changed(&mut self) {
        self.volatile.volumes = self.cluster.tables();
        self.volatile.disks = self.cluster.disks();
        let volumes = &self.volatile.volumes;
        self.volatile.all_changed.retain(|volume, _| volumes.contains_key(volume));
    }

    /// Deletes a volume; [`State::sweep_volume`] then removes its contents.
    pub(crate) fn volume_delete(&mut self, name: &str) -> Result<(), Refusal> {
        let volume = self.cluster.map().volume_named(name).ok_or(Refusal::Unknown)?.id;
        if self.sessions.mounted(volume) {
            return Err(Refusal::Busy);
        }
        let (_, writes) = self.cluster.delete_volume(name)?;
        self.commit_or_fail(writes)?;
        self.volumes_changed();
        Ok(())
    }

    /// Removes the next part of a deleted volume. False when only purges are left.
    pub(crate) fn sweep_volume(&mut self, volume: VolumeId) -> Result<bool, Refusal> {
        if !self.cluster.is_deleted(volume) {
            return Ok(false);
        }
        types::cost::entries(self.volatile.orphans.len() + self.volatile.growth.len());
        self.volatile.orphans.retain(|place| place.0 != volume);
        self.volatile.growth.retain(|place, _| place.0 != volume);
        let change = Change::idempotent(move |txn| ops::sweep(txn, volume));
        let answer = self.run_batch(vec![change]).pop().expect("a batch of one has one answer")?;
        types::wire::from_bytes(&answer).map_err(|_| Refusal::MetaFailed)
    }

    /// Forgets a deleted volume if nothing of it is left; else returns false.
    pub(crate) fn forget_if_empty(&mut self, volume: VolumeId) -> Result<bool, Refusal> {
        let prefix = keys::all::purges_of(volume);
        let left = self.read(|txn| txn.range(&prefix, &keys::after_all(&prefix), 1))?;
        if !left.is_empty() {
            return Ok(false);
        }
        let writes = self.cluster.forget_volume(volume);
        self.commit_or_fail(writes)?;
        Ok(true)
    }

    pub(crate) fn commit_or_fail(&mut self, writes: Writes) -> Result<(), Refusal> {
        if self.commit(writes) { Ok(()) } else { Err(Refusal::MetaFailed) }
    }
}

#[cfg(test)]
mod tests;
