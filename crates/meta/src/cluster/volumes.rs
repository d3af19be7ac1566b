//! Volumes: their names and groups.

use layout::{PlacementError, build_groups, groups_for};
use types::limits::{GROUPS_MAX, VOLUME_NAME_MAX};
use types::messages::cluster::{BrickState, GroupConfig, SlotConfig, SlotState, VolumeCreate, VolumeInfo};
use types::messages::names::{FileKind, Owner};
use types::{BrickId, Epoch, InodeId, NodeId, Refusal, VolumeId};

use super::map::Cluster;
use crate::keys;
use crate::kv::Writes;
use crate::records::{Inode, VolumeRecord, to_value};

impl Cluster {
    /// Makes a volume with an empty root directory, over the bricks that are Up.
    pub(crate) fn create_volume(
        &mut self,
        request: &VolumeCreate,
        id: VolumeId,
        wall: u64,
    ) -> Result<(VolumeInfo, Writes), Refusal> {
        check_volume_name(&request.name)?;
        if self.map.volume_named(&request.name).is_some() {
            return Err(Refusal::Exists);
        }
        let groups = self.place(request)?;
        let VolumeCreate { ref name, geometry, same_node, .. } = *request;
        let volume = VolumeInfo { id, name: name.clone(), geometry, groups, same_node };

        let owner = Owner { uid: 0, gid: 0, mode: 0o755 };
        let mut root = Inode::new(FileKind::Directory, &owner, wall);
        root.parent = InodeId::ROOT;
        let mut writes = Writes::new();
        writes.insert(keys::volume_counter(), Some(to_value(&id.0)));
        writes.insert(keys::inode(id, InodeId::ROOT), Some(to_value(&root)));
        writes.insert(keys::usage(id), Some(to_value(&1u64)));
        Cluster::write_volume(&volume, &mut writes);
        self.map.volumes.push(volume.clone());
        self.publish(&mut writes);
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

    /// Takes a volume off the map. What it held is left to be purged.
    pub(crate) fn delete_volume(&mut self, name: &str) -> Result<(VolumeId, Writes), Refusal> {
        let at = self.map.volumes.iter().position(|volume| volume.name == name).ok_or(Refusal::Unknown)?;
        let volume = self.map.volumes.remove(at);
        let VolumeInfo { id, name, geometry, groups, same_node } = volume;
        let record = VolumeRecord { name, geometry, groups, same_node, deleted: true };
        let mut writes = Writes::new();
        writes.insert(keys::volume(id), Some(to_value(&record)));
        self.deleted.insert(id, record);
        self.publish(&mut writes);
        Ok((id, writes))
    }

    /// The geometry of a deleted volume whose space is not yet back.
    pub(crate) fn deleted_geometry(&self, id: VolumeId) -> Option<types::Geometry> {
        self.deleted.get(&id).map(|record| record.geometry)
    }

    /// Nothing is left of a deleted volume.
    pub(crate) fn forget_volume(&mut self, id: VolumeId) -> Writes {
        self.deleted.remove(&id);
        [(keys::volume(id), None), (keys::usage(id), None)].into_iter().collect()
    }
}

fn check_volume_name(name: &str) -> Result<(), Refusal> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name.len() {
        1..=VOLUME_NAME_MAX if name.bytes().all(good) => Ok(()),
        0..=VOLUME_NAME_MAX => Err(Refusal::Invalid),
        _ => Err(Refusal::NameTooLong),
    }
}
