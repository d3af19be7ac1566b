//! The arbiter: bricks and their leases, and what the cluster says of itself. Its map, its clients and its volumes have files of their own.

use super::LongTurn;
use super::brick::AskedCounts;
use super::reach::{ReachReport, UnreachedBrick};
use super::recovery::RecoveryReport;
use crate::{
    BrickId, ClientId, Epoch, GroupId, Incarnation, MapVersion, NodeId, ShardId, VolumeId, coded_enum,
    records,
};

pub use super::clients::{
    ClientJoin, ClientJoined, ClientLeave, ClientPoll, ClientPollReply, Mode, OpenInode, Quiesce, Quiesced,
    Recall, RecallAck,
};
pub use super::map::{
    BrickClass, BrickInfo, BrickState, ClusterMap, FailureDomain, GroupChange, GroupConfig, MapGet, MapReply,
    MapUpdate, PlacementSpec, SlotConfig, SlotState, TierInfo, TierSpec, VolumeInfo,
};
pub use super::map_fetch::MapFetch;
pub use super::shards::{
    ShardAdd, ShardAdded, ShardAnnounce, ShardAnnounced, ShardFind, ShardFound, ShardInfo, ShardRemove,
    ShardReport, ShardServers, ShardStatus,
};
pub use super::tiers::{Tier, tiers_of};
pub use super::volumes::{
    DISK, TopologySet, VolumeAddTier, VolumeCreate, VolumeDelete, VolumeGrow, VolumeReply, VolumeTune,
};

coded_enum! {
    /// Why a brick cannot take the place of another one.
    pub enum ReplaceErrorKind: u8 {
        /// The cluster has no brick with the old one's id.
        OldUnknown = 1,
        /// The old brick holds a lease.
        OldUp = 2,
        /// The cluster has no brick with the new one's id.
        NewUnknown = 3,
        /// The new brick's lease has run out.
        NewOut = 4,
        /// Old and new are the same brick.
        SameBrick = 5,
        /// The new brick holds another slot of the group.
        InGroup = 6,
        /// Another slot of the group lies on the new brick's node, and the volume wants each slot on its own node.
        SharedNode = 7,
        /// The new brick has less space free than the old one had in use.
        TooSmall = 8,
        /// The old brick's slot is live, and the group needs all its live slots to compute a unit.
        Needed = 9,
        /// Another slot of the group lies in the failure domain of the new brick's node (rack or row), or the node has no
        /// place in the topology.
        SharedDomain = 10,
        /// The metadata servers of a shard do not answer. The old brick keeps its slots in the groups of that shard.
        ShardSilent = 11,
    }
}

records! {
    names REQUESTS;
    /// Which clients may no longer write: those whose id is at most `upto` and not in `mounted`. Ids are never
    /// reused, so a fenced client stays fenced. Ids above `upto` may have been issued since.
    part Fences {
        /// The last client id that the metadata service had issued.
        upto: ClientId,
        /// Clients that may write, ascending.
        mounted: Vec<ClientId>,
    }
    /// A brick's server has started. Every group of which it is the primary gets a new epoch.
    202 BrickJoin {
        /// The brick.
        brick: BrickId,
        /// Random, written when the device was formatted: another device under the same id is refused.
        device: [u8; 16],
        /// Its machine.
        node: NodeId,
        /// Where its server listens, `host:port`.
        address: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free.
        free: u64,
        /// This run of the server.
        incarnation: Incarnation,
        /// The class of its device.
        class: BrickClass,
        /// The shard that is meant. Another one refuses with `Unsupported`.
        shard: ShardId,
        /// Told to the first shard: others of which it holds groups, or which it knows.
        shards: Vec<ShardId>,
        /// When the service was restored last, as far as the brick knows, in seconds since 1970. One of before does not serve any more.
        restored: u64,
        /// Which bricks it does not reach.
        reach: ReachReport,
    } => BrickJoined;
    /// The brick is a member. It serves requests only after it has the map and the fences.
    209 BrickJoined {
        /// The newest map.
        map: MapVersion,
        /// Clients whose writes it refuses.
        fences: Fences,
        /// When the service was restored from a backup last, in seconds since 1970; 0 if never. Objects that were removed before
        /// may have files again.
        restored: u64,
    };
    /// A brick renews its lease. The lease counts from the moment when the brick sent this.
    203 BrickHeartbeat {
        /// The brick.
        brick: BrickId,
        /// This run of the server.
        incarnation: Incarnation,
        /// Bytes free.
        free: u64,
        /// The shard that is meant. Another one refuses with `Unsupported`.
        shard: ShardId,
        /// Which bricks it does not reach.
        reach: ReachReport,
    } => HeartbeatReply;
    /// A group's primary asks for a new epoch with the same live slots, so that a take-over aborts an operation that
    /// cannot be completed. Nothing happens if the group's epoch is no longer `epoch`.
    205 GroupRenew {
        /// The group.
        group: GroupId,
        /// The epoch that it has.
        epoch: Epoch,
        /// The primary.
        brick: BrickId,
    } => HeartbeatReply;
    /// A group's primary asks the arbiter to make a slot live again. Every operation is decided, durably on every
    /// live slot and on this one, and the primary orders nothing until it has the answer. Nothing happens if the slot
    /// is already live in a later epoch.
    ///
    /// Refused with `StaleEpoch` in a later epoch where the slot is not live, `NotPrimary`, `NotServing` if the primary
    /// holds no lease, `NotUp` if the slot's brick holds none, `Invalid` if the slot is not Out.
    206 GroupAdmit {
        /// The group.
        group: GroupId,
        /// The epoch that it has.
        epoch: Epoch,
        /// The primary.
        brick: BrickId,
        /// The slot that has been brought level.
        slot: u8,
    } => HeartbeatReply;
    /// Another brick takes the slots of a brick that is Out, in every group. The groups' primaries bring these slots
    /// level.
    207 BrickReplace {
        /// The brick that is gone for good.
        old: BrickId,
        /// The brick that takes its place. It must be Up, share no group with `old`, and have room for the bytes that
        /// `old` had in use.
        new: BrickId,
    } => BrickReplaced;
    /// Why a brick cannot take another one's place, and in which group.
    part ReplaceError {
        /// The reason.
        what: ReplaceErrorKind,
        /// The first group with this problem, if it is a problem of a group.
        group: Option<GroupId>,
        /// The brick of that group that causes it, if one does.
        brick: Option<BrickId>,
    }
    /// The slots name the new brick, and are Out until their primaries have brought them level; or nothing has
    /// changed.
    208 BrickReplaced {
        /// Number of groups changed; 0 if the old brick is in no group (any more).
        groups: u32,
        /// Why nothing was done.
        error: Option<ReplaceError>,
    };
    /// The lease is renewed.
    204 HeartbeatReply {
        /// The newest map.
        map: MapVersion,
        /// To a heartbeat: bricks about which there are failure reports. Does the caller reach them?
        doubtful: Vec<BrickId>,
    };

    /// Asks the metadata service for a report about itself and the cluster.
    223 ClusterStatus {} => ClusterReport;
    /// A client with a lease.
    part MountInfo {
        /// Its id.
        client: ClientId,
        /// The volume that it has mounted.
        volume: VolumeId,
        /// It is an exclusive mount.
        exclusive: bool,
        /// Where the volume is mounted, as the client reported it; empty if it did not.
        place: String,
        /// Time since it was mounted, in microseconds.
        age: u64,
        /// Time since it was last heard, in microseconds.
        silent: u64,
        /// What programs had asked it for by then, since it began.
        asked: AskedCounts,
    }
    /// The report.
    224 ClusterReport {
        /// The shard that was asked.
        shard: ShardId,
        /// Clients with a lease, by id.
        mounts: Vec<MountInfo>,
        /// Objects whose space has not yet been freed.
        purges: u64,
        /// The process.
        pid: u32,
        /// Resident memory of the process, in bytes.
        memory: u64,
        /// The process's memory budget, in bytes.
        memory_budget: u64,
        /// The longest turns of its tasks, the longest first; one of each kind.
        turns: Vec<LongTurn>,
        /// Given while the service was restored and does not know all groups yet, and after that if some are doubtful.
        recovery: Option<RecoveryReport>,
        /// Bricks that somebody cannot reach, by id.
        unreached: Vec<UnreachedBrick>,
    };
}
