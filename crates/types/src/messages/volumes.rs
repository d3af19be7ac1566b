//! Volumes: how they are made and changed.

use super::Done;
use super::map::{BrickClass, PlacementSpec, TierSpec, VolumeInfo};
use crate::{Geometry, ShardId, records};

/// Name of the only file of a block volume.
pub const DISK: &[u8] = b"disk";

records! {
    names REQUESTS;
    /// Makes a volume.
    220 VolumeCreate {
        /// Its name.
        name: String,
        /// How bytes become stripes.
        geometry: Geometry,
        /// Number of groups; 0 lets the service choose.
        groups: u32,
        /// Each brick is its own failure domain, even on the same node.
        same_node: bool,
        /// Makes a block volume of this many bytes, a multiple of [`BLOCK`](crate::limits::BLOCK).
        block: Option<u64>,
        /// Only bricks of this class hold units of the first tier; all for [`None`].
        class: Option<BrickClass>,
        /// Further tiers, at most [`TIERS_MAX`](crate::limits::TIERS_MAX) with the first. Refused with `Invalid` for a
        /// block volume.
        tiers: Vec<TierSpec>,
        /// How the topology decides where groups lie; [`None`] to place without it.
        placement: Option<PlacementSpec>,
        /// Clients ask that new files begin in a group near them.
        near_writer: bool,
        /// The shard that is to have it; [`None`] for the one with the fewest volumes. Only the first shard takes requests for
        /// others, and those without a shard.
        shard: Option<ShardId>,
        /// From the first shard: the number of its last [`ShardStatus`](super::shards::ShardStatus). Another shard refuses every other number with `NotServing`:
        /// a late request of a server that led before would make a second volume of one name. 0 from others.
        token: u64,
    } => VolumeReply;
    /// A volume.
    221 VolumeReply {
        /// The volume.
        volume: VolumeInfo,
    };
    /// Deletes a volume and everything in it.
    222 VolumeDelete {
        /// Its name.
        name: String,
        /// The shard that has it, if others have one of the same name; [`None`] for any.
        shard: Option<ShardId>,
    } => Done;
    /// Makes a block volume larger. Refused with `Invalid` for a volume of files, a smaller size, or one that is no
    /// multiple of [`BLOCK`](crate::limits::BLOCK).
    225 VolumeGrow {
        /// Its name.
        name: String,
        /// Its new size in bytes. Nothing happens if it has this size already.
        size: u64,
    } => VolumeReply;
    /// Changes a volume's settings of the clients' translators. Refused with `Invalid` if the service cannot read the
    /// changes.
    226 VolumeTune {
        /// Its name.
        name: String,
        /// Words `key=value`, as [`Tuning::change`](crate::Tuning::change) reads them.
        changes: String,
    } => VolumeReply;
    /// Adds a tier to a volume of files. Refused with `TooMany` if it has
    /// [`TIERS_MAX`](crate::limits::TIERS_MAX), `Exists` if one of them has this code and class, `TooFewDomains`.
    227 VolumeAddTier {
        /// Its name.
        name: String,
        /// The new tier.
        tier: TierSpec,
    } => VolumeReply;
    /// Says what the network between the nodes is. Volumes that exist stay where they are. Refused with `Invalid` if it cannot be
    /// read, `Busy` if a node of the present topology would have another place or none although `may_move` is not set.
    228 TopologySet {
        /// As `layout::topology` writes it; empty to forget it.
        topology: String,
        /// Nodes may have other places than before.
        may_move: bool,
    } => Done;
}
