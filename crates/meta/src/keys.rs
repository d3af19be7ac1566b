//! The key table. Numbers in keys are big-endian, so keys sort in the order of the numbers.
//!
//! | key | value | what |
//! |---|---|---|
//! | `01` | 16 bytes | the cluster's id |
//! | `02` | u64 | version of the cluster map |
//! | `03` brick:4 | [`BrickRecord`](crate::records::BrickRecord) | a brick |
//! | `04` volume:4 | [`VolumeRecord`](crate::records::VolumeRecord) | a volume; a deleted one until its space is back |
//! | `05` | u64 | the last id given to an inode, object or client |
//! | `06` | u32 | the last id given to a volume |
//! | `07` client:8 | `ClientRecord` | a client with a lease, and its volume |
//! | `08` client:8 op:8 | answer | a change that is done and that the client may ask for again |
//! | `09` | u64 | the last journal record that the engine has; absent in a store that never had a journal |
//! | `0a` brick:4 | u8 | the class of a brick's device |
//! | `0b` | text | the topology; absent if nothing is known |
//! | `0c` | members | the metadata servers that vote; absent while there was never more than one |
//! | `0d` | u64 | the term of the last record's leader |
//! | `0e` | nothing | a new server that has nothing yet |
//! | `0f` | bricks | those that a restored cluster does not wait for |
//! | `10` volume:4 inode:8 | [`Inode`](crate::records::Inode) | an inode |
//! | `11` volume:4 parent:8 name | [`Entry`](crate::records::Entry) | a name in a directory |
//! | `12` volume:4 parent:8 cookie:8 | [`Listed`](crate::records::Listed) | the same name, in the order of listing |
//! | `13` volume:4 inode:8 | nothing | an inode without names that may be open |
//! | `14` volume:4 object:8 | u64 | an object to purge, and its stripes |
//! | `15` volume:4 | u64 | inodes of a volume |
//! | `16` volume:4 | text | settings of a volume's translators; absent if nothing is set |
//! | `17` volume:4 | [`TiersRecord`](crate::records::TiersRecord) | a volume's tiers; absent if there is one, on any bricks |
//! | `18` volume:4 | u64 | how often all files of a volume have counted as changed; absent if never |
//! | `19` volume:4 | [`PlacementSpec`](types::messages::cluster::PlacementSpec) | how the topology places a volume; absent if it does not |
//! | `1a` volume:4 | bool | new files begin near their writers; absent if they do not |
//! | `1b` | u64 | the time of the last restoration, in seconds since 1970; absent if there was none |
//! | `1c` volume:4 inode:8 | client | it may leave the file's sizes with the bricks ([`crate::noting`]) |
//! | `1d` shard:1 | [`ShardRecord`](crate::records::ShardRecord) | another shard; only the first shard has these |
//! | `1e` | [`OwnShard`](crate::records::OwnShard) | the shard that this store is of; absent in the first |
//! | `1f` volume:4 group:4 | [`GroupConfig`](types::messages::cluster::GroupConfig) | a group that has changed since the volume's record was written |
//!
//! Every value but the answers begins with its version (see [`crate::records`]).

pub(crate) mod all;

use types::{BrickId, ClientId, GroupId, InodeId, ObjectId, ShardId, VolumeId};

use crate::volume_inode::VolumeInode;

/// A kind of key: its first byte.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Cluster = 0x01,
    MapVersion = 0x02,
    Brick = 0x03,
    Volume = 0x04,
    IdCounter = 0x05,
    VolumeCounter = 0x06,
    Client = 0x07,
    Done = 0x08,
    Applied = 0x09,
    BrickClass = 0x0a,
    Topology = 0x0b,
    Members = 0x0c,
    Term = 0x0d,
    Incomplete = 0x0e,
    LostBricks = 0x0f,
    Inode = 0x10,
    Entry = 0x11,
    Listed = 0x12,
    Orphan = 0x13,
    Purge = 0x14,
    Usage = 0x15,
    Tuning = 0x16,
    Tiers = 0x17,
    AllChanged = 0x18,
    Placement = 0x19,
    NearWriter = 0x1a,
    Restored = 0x1b,
    Noting = 0x1c,
    Shard = 0x1d,
    OwnShard = 0x1e,
    Group = 0x1f,
}

/// What becomes of a key when a store is restored.
pub(crate) enum Restore {
    Cluster,
    MapVersion,
    Ids,
    Volumes,
    Brick,
    Volume,
    Group,
    Members,
    Inode,
    AllChanged,
    /// It stays as it is.
    Keep,
    /// It belongs to the store that is gone.
    Forget,
}

impl Restore {
    /// `None` for a key that this build does not know.
    pub(crate) fn of(key: &[u8]) -> Option<Restore> {
        const KEPT: [Kind; 13] = [
            Kind::BrickClass,
            Kind::Topology,
            Kind::Entry,
            Kind::Listed,
            Kind::Orphan,
            Kind::Purge,
            Kind::Usage,
            Kind::Tuning,
            Kind::Tiers,
            Kind::Placement,
            Kind::NearWriter,
            Kind::Shard,
            Kind::OwnShard,
        ];
        const FORGOTTEN: [Kind; 8] = [
            Kind::Client,
            Kind::Done,
            Kind::Applied,
            Kind::Term,
            Kind::Incomplete,
            Kind::LostBricks,
            Kind::Restored,
            Kind::Noting,
        ];
        let first = *key.first()?;
        let is = |kind: Kind| first == kind as u8;
        Some(match first {
            _ if is(Kind::Inode) => Restore::Inode,
            _ if is(Kind::AllChanged) => Restore::AllChanged,
            _ if KEPT.into_iter().any(is) => Restore::Keep,
            _ if FORGOTTEN.into_iter().any(is) => Restore::Forget,
            _ if is(Kind::Cluster) => Restore::Cluster,
            _ if is(Kind::MapVersion) => Restore::MapVersion,
            _ if is(Kind::IdCounter) => Restore::Ids,
            _ if is(Kind::VolumeCounter) => Restore::Volumes,
            _ if is(Kind::Brick) => Restore::Brick,
            _ if is(Kind::Volume) => Restore::Volume,
            _ if is(Kind::Group) => Restore::Group,
            _ if is(Kind::Members) => Restore::Members,
            _ => return None,
        })
    }
}

struct Key(Vec<u8>);

impl Key {
    fn new(kind: Kind, len: usize) -> Key {
        let mut bytes = Vec::with_capacity(1 + len);
        bytes.push(kind as u8);
        Key(bytes)
    }

    fn u32(mut self, number: u32) -> Key {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Key {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        self.0
    }
}

pub(crate) fn cluster() -> Vec<u8> {
    Key::new(Kind::Cluster, 0).0
}

pub(crate) fn map_version() -> Vec<u8> {
    Key::new(Kind::MapVersion, 0).0
}

pub(crate) fn brick(brick: BrickId) -> Vec<u8> {
    Key::new(Kind::Brick, 4).u32(brick.0).0
}

pub(crate) fn volume(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Volume, 4).u32(volume.0).0
}

/// The configuration of a group, if it has changed since the volume's record was written.
pub(crate) fn group(group: GroupId) -> Vec<u8> {
    Key::new(Kind::Group, 8).u32(group.volume.0).u32(group.index).0
}

pub(crate) fn id_counter() -> Vec<u8> {
    Key::new(Kind::IdCounter, 0).0
}

pub(crate) fn volume_counter() -> Vec<u8> {
    Key::new(Kind::VolumeCounter, 0).0
}

pub(crate) fn client(client: ClientId) -> Vec<u8> {
    Key::new(Kind::Client, 8).u64(client.0).0
}

pub(crate) fn done(client: ClientId, op: u64) -> Vec<u8> {
    Key::new(Kind::Done, 16).u64(client.0).u64(op).0
}

pub(crate) fn applied() -> Vec<u8> {
    Key::new(Kind::Applied, 0).0
}

/// The metadata servers that vote; nothing while there is one server that has never had another.
pub(crate) fn members() -> Vec<u8> {
    Key::new(Kind::Members, 0).0
}

/// The term of the leader that wrote the last record.
pub(crate) fn term() -> Vec<u8> {
    Key::new(Kind::Term, 0).0
}

/// While this is there, the server is new and has nothing.
pub(crate) fn incomplete() -> Vec<u8> {
    Key::new(Kind::Incomplete, 0).0
}

/// When the cluster was restored last.
pub(crate) fn restored() -> Vec<u8> {
    Key::new(Kind::Restored, 0).0
}

/// The bricks that a restored cluster does not wait for.
pub(crate) fn lost_bricks() -> Vec<u8> {
    Key::new(Kind::LostBricks, 0).0
}

pub(crate) fn inode(volume: VolumeId, inode: InodeId) -> Vec<u8> {
    Key::new(Kind::Inode, 12).u32(volume.0).u64(inode.0).0
}

pub(crate) fn entry(volume: VolumeId, parent: InodeId, name: &[u8]) -> Vec<u8> {
    Key::new(Kind::Entry, 12 + name.len()).u32(volume.0).u64(parent.0).bytes(name)
}

pub(crate) fn listed(volume: VolumeId, parent: InodeId, cookie: u64) -> Vec<u8> {
    Key::new(Kind::Listed, 20).u32(volume.0).u64(parent.0).u64(cookie).0
}

pub(crate) fn orphan(volume: VolumeId, inode: InodeId) -> Vec<u8> {
    Key::new(Kind::Orphan, 12).u32(volume.0).u64(inode.0).0
}

/// The client that may leave the sizes of a file with the bricks.
pub(crate) fn noting(volume: VolumeId, inode: InodeId) -> Vec<u8> {
    Key::new(Kind::Noting, 12).u32(volume.0).u64(inode.0).0
}

pub(crate) fn purge(volume: VolumeId, object: ObjectId) -> Vec<u8> {
    Key::new(Kind::Purge, 12).u32(volume.0).u64(object.0).0
}

pub(crate) fn usage(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Usage, 4).u32(volume.0).0
}

pub(crate) fn tuning(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Tuning, 4).u32(volume.0).0
}

pub(crate) fn tiers(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Tiers, 4).u32(volume.0).0
}

pub(crate) fn brick_class(brick: BrickId) -> Vec<u8> {
    Key::new(Kind::BrickClass, 4).u32(brick.0).0
}

pub(crate) fn topology() -> Vec<u8> {
    Key::new(Kind::Topology, 0).0
}

/// Another shard, in the store of the first one.
pub(crate) fn shard(shard: ShardId) -> Vec<u8> {
    Key::new(Kind::Shard, 1).bytes(&[shard.0])
}

/// Which shard the store is of, unless it is the first.
pub(crate) fn own_shard() -> Vec<u8> {
    Key::new(Kind::OwnShard, 0).0
}

pub(crate) fn placement(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::Placement, 4).u32(volume.0).0
}

pub(crate) fn near_writer(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::NearWriter, 4).u32(volume.0).0
}

pub(crate) fn all_changed(volume: VolumeId) -> Vec<u8> {
    Key::new(Kind::AllChanged, 4).u32(volume.0).0
}

/// The least key greater than all keys that begin with `prefix`.
pub(crate) fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    let last = end.last_mut().expect("no kind of key is 0xff");
    *last += 1;
    end
}

/// The volume and the number of a key, which follow its kind.
pub(crate) fn volume_and_number(key: &[u8]) -> Option<(VolumeId, u64)> {
    let (_, rest) = key.split_first()?;
    let (volume, rest) = rest.split_first_chunk::<4>()?;
    let number = rest.first_chunk::<8>()?;
    Some((VolumeId(u32::from_be_bytes(*volume)), u64::from_be_bytes(*number)))
}

/// What a key of the name space is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameKey {
    Inode(VolumeInode),
    /// A name in a directory.
    Entry(VolumeInode, Vec<u8>),
    /// A cookie in a directory.
    Listed(VolumeInode, u64),
    Orphan(VolumeInode),
    Purge(VolumeId, ObjectId),
}

/// Takes a key of the name space apart; `None` for other keys.
pub(crate) fn name_key(key: &[u8]) -> Option<NameKey> {
    let (volume, number) = volume_and_number(key)?;
    let (place, rest) = ((volume, InodeId(number)), key.get(13..)?);
    let kind = key[0];
    let taken = match rest.len() {
        0 if kind == Kind::Inode as u8 => NameKey::Inode(place),
        0 if kind == Kind::Orphan as u8 => NameKey::Orphan(place),
        0 if kind == Kind::Purge as u8 => NameKey::Purge(volume, ObjectId(number)),
        8 if kind == Kind::Listed as u8 => NameKey::Listed(place, last_u64(rest)?),
        1.. if kind == Kind::Entry as u8 => NameKey::Entry(place, rest.to_vec()),
        _ => return None,
    };
    Some(taken)
}

/// The client of a stored answer, and the number of its change.
pub(crate) fn client_and_op(key: &[u8]) -> Option<(ClientId, u64)> {
    let client = key.get(1..)?.first_chunk::<8>()?;
    Some((ClientId(u64::from_be_bytes(*client)), last_u64(key.get(9..)?)?))
}

/// The group of its key.
pub(crate) fn group_of(key: &[u8]) -> Option<GroupId> {
    let (volume, index) = key.get(1..)?.split_first_chunk::<4>()?;
    let index = u32::from_be_bytes(index.try_into().ok()?);
    Some(GroupId { volume: VolumeId(u32::from_be_bytes(*volume)), index })
}

/// The last number of a key.
pub(crate) fn last_u64(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The last number of a key.
pub(crate) fn last_u32(key: &[u8]) -> Option<u32> {
    key.last_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_keys_is_order_of_numbers() {
        let volume = VolumeId(3);
        assert!(inode(volume, InodeId(255)) < inode(volume, InodeId(256)));
        assert!(inode(VolumeId(2), InodeId(u64::MAX)) < inode(volume, InodeId(0)));
        assert!(listed(volume, InodeId(1), u64::MAX) < listed(volume, InodeId(2), 0));
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        let end = after_all(&all::inodes(VolumeId(u32::MAX)));
        assert!(inode(VolumeId(u32::MAX), InodeId(u64::MAX)) < end);
        assert!(end <= entry(VolumeId(0), InodeId(0), b""));
        assert_eq!(volume_and_number(&orphan(VolumeId(7), InodeId(9))), Some((VolumeId(7), 9)));
        assert_eq!(client_and_op(&done(ClientId(1), 77)), Some((ClientId(1), 77)));
    }

    #[test]
    fn keys_of_names_are_taken_apart() {
        let (volume, place) = (VolumeId(7), (VolumeId(7), InodeId(9)));
        assert_eq!(name_key(&inode(volume, InodeId(9))), Some(NameKey::Inode(place)));
        assert_eq!(
            name_key(&entry(volume, InodeId(9), b"abc")),
            Some(NameKey::Entry(place, b"abc".to_vec()))
        );
        assert_eq!(name_key(&listed(volume, InodeId(9), 4)), Some(NameKey::Listed(place, 4)));
        assert_eq!(name_key(&orphan(volume, InodeId(9))), Some(NameKey::Orphan(place)));
        assert_eq!(name_key(&purge(volume, ObjectId(9))), Some(NameKey::Purge(volume, ObjectId(9))));
        for other in [
            cluster(),
            client(ClientId(3)),
            done(ClientId(3), 4),
            usage(volume),
            entry(volume, InodeId(9), b""),
        ] {
            assert_eq!(name_key(&other), None);
        }
    }
}
