//! Volumes: their names and groups.
//!
//! # Invariants
//! - The id of a new volume is greater than all earlier ids, and ids are never used again.
//! - A group has a brick for every slot, and no brick twice.
//! - A block volume has one disk, which never becomes smaller.
//! - The record of a deleted volume stays until all its bytes are purged.

use types::limits::{BLOCK, FILE_SIZE_MAX, GROUPS_MAX, MAP_MAX, TIERS_MAX, VOLUME_NAME_MAX};
use types::messages::cluster::{DISK, TierInfo, TierSpec, VolumeCreate, VolumeInfo};
use types::messages::names::{FileKind, Owner};
use types::tuning::TuningError;
use types::wire::to_bytes;
use types::{GroupId, InodeId, ObjectId, Refusal, Tuning, VolumeId};

use super::history::Changed;
use super::map::Cluster;
use super::placement::PlacementRules;
use crate::keys;
use crate::kv::Writes;
use crate::records::{Entry, Inode, Listed, VolumeRecord, to_value};
use crate::volume_inode::VolumeInode;

impl Cluster {
    /// Makes a volume over the bricks that are Up, with an empty root directory, or with the inode `disk` in it.
    pub(crate) fn create_volume(
        &mut self,
        request: &VolumeCreate,
        id: VolumeId,
        disk: Option<InodeId>,
        wall: i64,
    ) -> Result<(VolumeInfo, Writes), Refusal> {
        check_volume_name(&request.name)?;
        if self.map.volume_named(&request.name).is_some() {
            return Err(Refusal::Exists);
        }
        request.block.map_or(Ok(()), check_disk_size)?;
        if 1 + request.tiers.len() > TIERS_MAX {
            return Err(Refusal::TooMany);
        }
        if block_with_tiers(request) {
            return Err(Refusal::Invalid);
        }
        let VolumeCreate { ref name, geometry, same_node, block, class, placement, near_writer, .. } =
            *request;
        let rules = PlacementRules { same_node, spec: placement };
        let groups = self.place(&TierSpec { geometry, class }, request.groups, rules)?;
        self.check_new(id);
        let mut volume = VolumeInfo {
            id,
            name: name.clone(),
            geometry,
            groups,
            same_node,
            block,
            tuning: String::new(),
            class,
            tiers: Vec::new(),
            placement,
            near_writer,
        };
        for tier in &request.tiers {
            // `Exists` would mean the volume.
            self.append_tier(&mut volume, tier).map_err(|refusal| match refusal {
                Refusal::Exists => Refusal::Invalid,
                other => other,
            })?;
        }
        // The whole map must fit into one record.
        if to_bytes(&self.map).len() + to_bytes(&volume).len() > MAP_MAX {
            return Err(Refusal::TooMany);
        }

        assert_eq!(disk.is_some(), block.is_some(), "a block volume would have no disk for ever");
        let owner = Owner { uid: 0, gid: 0, mode: 0o755 };
        let mut root = Inode::new(FileKind::Directory, &owner, wall);
        root.parent = InodeId::ROOT;
        let mut writes = Writes::new();
        if let (Some(disk), Some(size)) = (disk, block) {
            add_disk(&mut writes, &mut root, (id, disk), size, wall);
        }
        writes.insert(keys::volume_counter(), Some(to_value(&id.0)));
        writes.insert(keys::inode(id, InodeId::ROOT), Some(to_value(&root)));
        writes.insert(keys::usage(id), Some(to_value(&(1 + root.size))));
        Cluster::write_volume(&volume, &mut writes);
        Cluster::write_tiers(&volume, &mut writes);
        if let Some(placement) = placement {
            writes.insert(keys::placement(id), Some(to_value(&placement)));
        }
        if near_writer {
            writes.insert(keys::near_writer(id), Some(to_value(&near_writer)));
        }
        self.map.volumes.push(volume.clone());
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    /// Asserts that a volume's id is new.
    fn check_new(&self, id: VolumeId) {
        let in_use = self.map.volumes.last().map(|last| last.id);
        let deleted = self.deleted.last_key_value().map(|(last, _)| *last);
        assert!(in_use.max(deleted) < Some(id), "a new volume would have the files of an older one");
    }

    /// Adds a tier to a volume. Nothing that exists moves.
    pub(crate) fn add_tier(
        &mut self,
        id: VolumeId,
        tier: &TierSpec,
    ) -> Result<(VolumeInfo, Writes), Refusal> {
        let mut volume = self.map.volume(id).ok_or(Refusal::Unknown)?.clone();
        if volume.block.is_some() {
            return Err(Refusal::Invalid);
        }
        if 1 + volume.tiers.len() >= TIERS_MAX {
            return Err(Refusal::TooMany);
        }
        let before = to_bytes(&volume).len();
        self.append_tier(&mut volume, tier)?;
        // The whole map must fit into one record.
        if to_bytes(&self.map).len() - before + to_bytes(&volume).len() > MAP_MAX {
            return Err(Refusal::TooMany);
        }
        let mut writes = Writes::new();
        Cluster::write_volume(&volume, &mut writes);
        Cluster::write_tiers(&volume, &mut writes);
        if let Some(known) = self.map.volumes.iter_mut().find(|known| known.id == id) {
            known.clone_from(&volume);
        }
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    /// Appends the groups of a tier to a volume's table. No two tiers have the same code and class.
    fn append_tier(&self, volume: &mut VolumeInfo, tier: &TierSpec) -> Result<(), Refusal> {
        let code = tier.geometry.code();
        if volume.all_tiers().any(|old| old.geometry.code() == code && old.class == tier.class) {
            return Err(Refusal::Exists);
        }
        let rules = PlacementRules { same_node: volume.same_node, spec: volume.placement };
        let groups = self.place(tier, 0, rules)?;
        let first = volume.groups.len();
        if first + groups.len() > GROUPS_MAX as usize {
            return Err(Refusal::TooMany);
        }
        volume.groups.extend(groups);
        volume.tiers.push(TierInfo { spec: tier.clone(), first: first as u32 });
        Ok(())
    }

    /// A block volume has `size` bytes from now on.
    pub(crate) fn grow_volume(&mut self, id: VolumeId, size: u64) -> Result<(VolumeInfo, Writes), Refusal> {
        let volume = self.map.volumes.iter_mut().find(|volume| volume.id == id).ok_or(Refusal::Unknown)?;
        assert!(volume.block.is_none_or(|old| old <= size), "the end of the disk would be cut off");
        volume.block = Some(size);
        let volume = volume.clone();
        let mut writes = Writes::new();
        Cluster::write_volume(&volume, &mut writes);
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    /// Changes a volume's settings of the clients' translators.
    pub(crate) fn tune_volume(
        &mut self,
        id: VolumeId,
        changes: &str,
    ) -> Result<(VolumeInfo, Writes), Refusal> {
        let map_bytes = to_bytes(&self.map).len();
        let volume = self.map.volumes.iter_mut().find(|volume| volume.id == id).ok_or(Refusal::Unknown)?;
        let tuned = tuned(&volume.tuning, changes).map_err(|error| {
            tracing::info!(volume = volume.name, %error, "the settings cannot be changed");
            Refusal::Invalid
        })?;
        // The whole map must fit into one record.
        if tuned.len() > volume.tuning.len() && map_bytes + tuned.len() > MAP_MAX {
            return Err(Refusal::TooMany);
        }
        volume.tuning.clone_from(&tuned);
        let volume = volume.clone();
        let mut writes = Writes::new();
        writes.insert(keys::tuning(id), if tuned.is_empty() { None } else { Some(to_value(&tuned)) });
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    /// Removes a volume from the map. Its bytes are purged later.
    pub(crate) fn delete_volume(&mut self, name: &str) -> Result<(VolumeId, Writes), Refusal> {
        let at = self.map.volumes.iter().position(|volume| volume.name == name).ok_or(Refusal::Unknown)?;
        let volume = self.map.volumes.remove(at);
        let VolumeInfo { id, name, geometry, groups, same_node, block, .. } = volume;
        let record = VolumeRecord { name, geometry, groups, same_node, block, deleted: true };
        let mut writes = Writes::new();
        writes.insert(keys::volume(id), Some(to_value(&record)));
        let groups = (0..).take(record.groups.len()).map(|index| GroupId { volume: id, index });
        writes.extend(groups.map(|group| (keys::group(group), None)));
        writes.insert(keys::tuning(id), None);
        writes.insert(keys::placement(id), None);
        writes.insert(keys::near_writer(id), None);
        writes.insert(keys::tiers(id), None);
        writes.insert(keys::all_changed(id), None);
        let before = self.deleted.insert(id, record);
        assert!(before.is_none(), "bricks would never be asked to purge the bytes of the older volume");
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((id, writes))
    }

    /// Whether a volume is deleted and its bytes are not yet purged.
    pub(crate) fn is_deleted(&self, id: VolumeId) -> bool {
        self.deleted.contains_key(&id)
    }

    /// Removes the record of a deleted volume whose bytes are all purged.
    pub(crate) fn forget_volume(&mut self, id: VolumeId) -> Writes {
        assert!(self.map.volume(id).is_none(), "a volume in use would be gone after the next restart");
        self.deleted.remove(&id);
        [(keys::volume(id), None), (keys::usage(id), None)].into_iter().collect()
    }
}

/// Whether a request asks for a block volume with tiers. Its one file is always open for writing and would never move.
fn block_with_tiers(request: &VolumeCreate) -> bool {
    request.block.is_some() && !request.tiers.is_empty()
}

/// Settings with changes. Both are text; settings of a newer build may be such that this one cannot read them.
fn tuned(settings: &str, changes: &str) -> Result<String, TuningError> {
    let mut tuning: Tuning = settings.parse()?;
    tuning.change(changes)?;
    Ok(tuning.to_string())
}

/// Refuses an invalid size of a disk, in bytes.
pub(crate) fn check_disk_size(size: u64) -> Result<(), Refusal> {
    match size {
        0 => Err(Refusal::Invalid),
        _ if size > FILE_SIZE_MAX => Err(Refusal::FileTooLarge),
        _ if !size.is_multiple_of(BLOCK as u64) => Err(Refusal::Invalid),
        _ => Ok(()),
    }
}

/// Adds the only file of a block volume to its root. It is thin: it has its full size at once and takes no space.
fn add_disk(writes: &mut Writes, root: &mut Inode, (volume, id): VolumeInode, size: u64, wall: i64) {
    let owner = Owner { uid: 0, gid: 0, mode: 0o600 };
    assert!(id > InodeId::ROOT, "the disk would take the place of the directory that it is in");
    let mut disk = Inode::new(FileKind::File, &owner, wall);
    (disk.size, disk.object) = (size, ObjectId(id.0));
    let cookie = root.cookie_next;
    root.cookie_next += 1;
    root.size = 1;
    let listed = Listed { inode: id, name: DISK.to_vec() };
    writes.insert(keys::id_counter(), Some(to_value(&id.0)));
    writes.insert(keys::inode(volume, id), Some(to_value(&disk)));
    writes.insert(keys::entry(volume, InodeId::ROOT, DISK), Some(to_value(&Entry { inode: id, cookie })));
    writes.insert(keys::listed(volume, InodeId::ROOT, cookie), Some(to_value(&listed)));
}

fn check_volume_name(name: &str) -> Result<(), Refusal> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name.len() {
        1..=VOLUME_NAME_MAX if name.bytes().all(good) => Ok(()),
        0..=VOLUME_NAME_MAX => Err(Refusal::Invalid),
        _ => Err(Refusal::NameTooLong),
    }
}
