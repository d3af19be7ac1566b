//! Volumes: their names and groups.

use layout::{PlacementError, build_groups, groups_for};
use types::limits::{BLOCK, FILE_SIZE_MAX, GROUPS_MAX, MAP_MAX, VOLUME_NAME_MAX};
use types::messages::cluster::{
    BrickState, DISK, GroupConfig, SlotConfig, SlotState, VolumeCreate, VolumeInfo,
};
use types::messages::names::{FileKind, Owner};
use types::wire::to_bytes;
use types::{BrickId, Epoch, InodeId, NodeId, ObjectId, Refusal, VolumeId};

use super::map::Cluster;
use super::map_updates::Changed;
use crate::keys;
use crate::kv::Writes;
use crate::records::{Entry, Inode, Listed, VolumeRecord, to_value};
use crate::volatile::VolumeInode;

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
        let groups = self.place(request)?;
        let VolumeCreate { ref name, geometry, same_node, block, .. } = *request;
        let volume = VolumeInfo { id, name: name.clone(), geometry, groups, same_node, block };
        // Everybody gets the whole map in one record.
        if to_bytes(&self.map).len() + to_bytes(&volume).len() > MAP_MAX {
            return Err(Refusal::TooMany);
        }

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
        self.map.volumes.push(volume.clone());
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    fn place(&self, request: &VolumeCreate) -> Result<Vec<GroupConfig>, Refusal> {
        let up = self.map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
        let bricks: Vec<(BrickId, NodeId)> = up.map(|brick| (brick.id, brick.node)).collect();
        let code = request.geometry.code();
        let groups = match request.groups {
            0 => groups_for(code, bricks.len()),
            groups if groups <= GROUPS_MAX => groups,
            _ => return Err(Refusal::Invalid),
        };
        let table = build_groups(code, &bricks, groups, request.same_node).map_err(|error| {
            tracing::info!(volume = request.name, %error, "a volume cannot be placed");
            match error {
                PlacementError::TooFewDomains { .. } => Refusal::TooFewDomains,
                _ => Refusal::Invalid,
            }
        })?;
        let live = |brick| SlotConfig { brick, state: SlotState::Live };
        let group = |bricks: Vec<BrickId>| GroupConfig {
            epoch: Epoch(1),
            slots: bricks.into_iter().map(live).collect(),
        };
        Ok(table.into_iter().map(group).collect())
    }

    /// A block volume has `size` bytes from now on.
    pub(crate) fn grow_volume(&mut self, id: VolumeId, size: u64) -> Result<(VolumeInfo, Writes), Refusal> {
        let volume = self.map.volumes.iter_mut().find(|volume| volume.id == id).ok_or(Refusal::Unknown)?;
        volume.block = Some(size);
        let volume = volume.clone();
        let mut writes = Writes::new();
        Cluster::write_volume(&volume, &mut writes);
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((volume, writes))
    }

    /// Takes a volume off the map. What it held is left to be purged.
    pub(crate) fn delete_volume(&mut self, name: &str) -> Result<(VolumeId, Writes), Refusal> {
        let at = self.map.volumes.iter().position(|volume| volume.name == name).ok_or(Refusal::Unknown)?;
        let volume = self.map.volumes.remove(at);
        let VolumeInfo { id, name, geometry, groups, same_node, block } = volume;
        let record = VolumeRecord { name, geometry, groups, same_node, block, deleted: true };
        let mut writes = Writes::new();
        writes.insert(keys::volume(id), Some(to_value(&record)));
        self.deleted.insert(id, record);
        self.publish([Changed::Volume(id)], &mut writes);
        Ok((id, writes))
    }

    /// Whether a volume was deleted and its space is not yet back.
    pub(crate) fn is_deleted(&self, id: VolumeId) -> bool {
        self.deleted.contains_key(&id)
    }

    /// Nothing is left of a deleted volume.
    pub(crate) fn forget_volume(&mut self, id: VolumeId) -> Writes {
        self.deleted.remove(&id);
        [(keys::volume(id), None), (keys::usage(id), None)].into_iter().collect()
    }
}

/// Refuses what cannot be the size of a disk, in bytes.
pub(crate) fn check_disk_size(size: u64) -> Result<(), Refusal> {
    match size {
        0 => Err(Refusal::Invalid),
        _ if size > FILE_SIZE_MAX => Err(Refusal::FileTooLarge),
        _ if !size.is_multiple_of(BLOCK as u64) => Err(Refusal::Invalid),
        _ => Ok(()),
    }
}

/// The only file of a block volume, in its root: thin, so it has its size from the start and takes no space.
fn add_disk(writes: &mut Writes, root: &mut Inode, (volume, id): VolumeInode, size: u64, wall: i64) {
    let owner = Owner { uid: 0, gid: 0, mode: 0o600 };
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
