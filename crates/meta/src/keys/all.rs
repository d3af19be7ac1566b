//! The prefix of all keys of a kind, or of one volume's or client's.

use super::{InodeId, Key, Kind, VolumeId};

pub(crate) fn bricks() -> Vec<u8> {
    Key::new(Kind::Brick, 0).0
}

pub(crate) fn volumes() -> Vec<u8> {
    Key::new(Kind::Volume, 0).0
}

pub(crate) fn groups() -> Vec<u8> {
    Key::new(Kind::Group, 0).0
}

pub(crate) fn shards() -> Vec<u8> {
    Key::new(Kind::Shard, 0).0
}

pub(crate) fn tunings() -> Vec<u8> {
    Key::new(Kind::Tuning, 0).0
}

pub(crate) fn tiers() -> Vec<u8> {
    Key::new(Kind::Tiers, 0).0
}

pub(crate) fn brick_classes() -> Vec<u8> {
    Key::new(Kind::BrickClass, 0).0
}

pub(crate) fn placements() -> Vec<u8> {
    Key::new(Kind::Placement, 0).0
}

pub(crate) fn near_writers() -> Vec<u8> {
    Key::new(Kind::NearWriter, 0).0
}

pub(crate) fn all_changed() -> Vec<u8> {
    Key::new(Kind::AllChanged, 0).0
}

pub(crate) fn clients() -> Vec<u8> {
    Key::new(Kind::Client, 0).0
}

pub(crate) fn answers() -> Vec<u8> {
    Key::new(Kind::Done, 0).0
}

pub(crate) fn inodes(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Inode, 4).u32(volume.0).0
}

pub(crate) fn entries(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Entry, 4).u32(volume.0).0
}

pub(crate) fn listed(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Listed, 4).u32(volume.0).0
}

pub(crate) fn listed_in(volume: VolumeId, parent: InodeId) -> Vec<u8> {
    Key::new(Kind::Listed, 12).u32(volume.0).u64(parent.0).0
}

/// All kinds of keys of which a volume may have many.
pub(crate) fn of_volumes() -> impl Iterator<Item = Vec<u8>> {
    use Kind::{Entry, Group, Inode, Listed, Noting, Orphan, Purge, Usage};
    let kinds = [Inode, Entry, Listed, Orphan, Purge, Usage, Noting, Group];
    kinds.into_iter().map(|kind| Key::new(kind, 0).0)
}

pub(crate) fn orphans() -> Vec<u8> {
    Key::new(Kind::Orphan, 0).0
}

pub(crate) fn orphans_of(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Orphan, 4).u32(volume.0).0
}

pub(crate) fn noting() -> Vec<u8> {
    Key::new(Kind::Noting, 0).0
}

pub(crate) fn noting_of(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Noting, 4).u32(volume.0).0
}

pub(crate) fn purges() -> Vec<u8> {
    Key::new(Kind::Purge, 0).0
}

pub(crate) fn purges_of(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Purge, 4).u32(volume.0).0
}
