//! The arbiter: the cluster map, leases, volumes.

use std::collections::BTreeSet;

use super::brick::AskedCounts;
use super::notes::SizeNote;
use super::reach::{ReachReport, UnreachedBrick};
use super::recovery::RecoveryReport;
use super::{Done, LongTurn};
use crate::{
    BrickId, ClientId, ClusterId, Code, Epoch, Geometry, GroupId, Incarnation, InodeId, MapVersion, NodeId,
    ShardId, VolumeId,
};
use crate::{coded_enum, records};

pub use super::map_fetch::MapFetch;
pub use super::shards::{
    ShardAdd, ShardAdded, ShardAnnounce, ShardAnnounced, ShardFind, ShardFound, ShardInfo, ShardRemove,
    ShardReport, ShardServers, ShardStatus,
};
pub use super::tiers::{Tier, tiers_of};

coded_enum! {
    /// What a brick is to the cluster.
    pub enum BrickState: u8 {
        /// Holds a lease.
        Up = 1,
        /// Its lease has run out.
        Out = 2,
    }
}

coded_enum! {
    /// What a slot's brick is to the group.
    pub enum SlotState: u8 {
        /// Takes part in every operation that concerns it.
        Live = 1,
        /// It has missed operations and takes no part until the group's primary has brought it level.
        Out = 2,
    }
}

coded_enum! {
    /// The class of a brick's device. A tier may be placed on the bricks of one class.
    pub enum BrickClass: u8 {
        /// A solid-state drive, or anything as fast.
        Ssd = 1,
        /// A rotating disk.
        Hdd = 2,
    }
}

coded_enum! {
    /// How much fails together: no two units of a stripe share a failure domain. Which nodes share one follows from the
    /// cluster's topology.
    pub enum FailureDomain: u8 {
        /// One brick.
        Brick = 1,
        /// A machine with all its bricks.
        Node = 2,
        /// A rack of a fat tree.
        Rack = 3,
        /// A line of a torus along its first dimension: nodes that differ in the first coordinate only, as where a line
        /// shares its power.
        Row = 4,
    }
}

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

coded_enum! {
    /// What an open inode allows its holders.
    pub enum Mode: u8 {
        /// One client alone, which writes: it may buffer.
        Alone = 1,
        /// Readers only: they may cache.
        Readers = 2,
        /// Writers and others: nobody buffers or caches.
        Shared = 3,
    }
}

/// Name of the only file of a block volume.
pub const DISK: &[u8] = b"disk";

records! {
    names REQUESTS;
    /// A brick of the cluster.
    part BrickInfo {
        /// The brick.
        id: BrickId,
        /// Its machine.
        node: NodeId,
        /// Where its server listens, `host:port`.
        address: String,
        /// Bytes that units can take.
        capacity: u64,
        /// Bytes free when last heard.
        free: u64,
        /// What it is to the cluster.
        state: BrickState,
        /// The class of its device.
        class: BrickClass,
    }
    /// A slot of a group.
    fixed part SlotConfig {
        /// The brick.
        brick: BrickId,
        /// What it is to the group.
        state: SlotState,
    }
    /// The configuration of a group.
    part GroupConfig {
        /// Its version.
        epoch: Epoch,
        /// Slots `0..K` data, then parity.
        slots: Vec<SlotConfig>,
    }
    /// What a tier is made of.
    part TierSpec {
        /// How the bytes of its files become stripes.
        geometry: Geometry,
        /// Only bricks of this class hold its units; all for [`None`].
        class: Option<BrickClass>,
    }
    /// A further tier of a volume.
    part TierInfo {
        /// What it is made of.
        spec: TierSpec,
        /// Its first group in the volume's table. It has those up to the next tier's first.
        first: u32,
    }
    /// How the topology decides where the groups of a volume lie.
    part PlacementSpec {
        /// What the members of a group do not share.
        domain: FailureDomain,
        /// Primaries are only on bricks of front nodes.
        front_primaries: bool,
        /// A brick shares groups with any other that is near, and not only with few: rebuilds have more helpers, and more sets
        /// of nodes lose something together.
        wide: bool,
    }
    /// A volume.
    part VolumeInfo {
        /// The volume.
        id: VolumeId,
        /// Its name.
        name: String,
        /// How the bytes of files in the first tier become stripes.
        geometry: Geometry,
        /// The table of groups, tier by tier; extents hash to the entries of a tier.
        groups: Vec<GroupConfig>,
        /// Slots of one group may lie on one node.
        same_node: bool,
        /// Size in bytes of a block volume, whose only file is [`DISK`]. [`None`] for a volume of files.
        block: Option<u64>,
        /// Settings of the clients' translators, as [`Tuning`](crate::Tuning) shows them; empty if nothing is set.
        tuning: String,
        /// The class of the bricks of the first tier.
        class: Option<BrickClass>,
        /// Further tiers: the second, the third, ... As a rule there are none.
        tiers: Vec<TierInfo>,
        /// How the topology decides where groups lie; [`None`] for volumes that are placed without it.
        placement: Option<PlacementSpec>,
        /// Clients ask that new files begin in a group near them.
        near_writer: bool,
    }
    /// What clients and bricks know about the cluster: of its volumes, about those of one shard.
    part ClusterMap {
        /// Grows with every change.
        version: MapVersion,
        /// The cluster.
        cluster: ClusterId,
        /// All bricks, by id.
        bricks: Vec<BrickInfo>,
        /// All volumes, by id.
        volumes: Vec<VolumeInfo>,
        /// The network between the nodes, as `layout::topology` writes it; empty if nothing is known about it.
        topology: String,
        /// The other shards, by number: only the first shard knows them.
        shards: Vec<ShardInfo>,
    }

    /// A group has a new configuration.
    part GroupChange {
        /// The group.
        group: GroupId,
        /// Its configuration.
        config: GroupConfig,
    }
    /// The changes between the caller's map and the current one, or a part of them. [`MapFetch`] puts the parts
    /// together.
    part MapUpdate {
        /// The version of the caller's map after it has applied this part and those that follow it (`rest`).
        version: MapVersion,
        /// The cluster.
        cluster: ClusterId,
        /// This part begins a whole map: the caller discards its old one.
        whole: bool,
        /// Bricks that are new or have changed, by id.
        bricks: Vec<BrickInfo>,
        /// Volumes that are new or have changed in more than their groups, by id.
        volumes: Vec<VolumeInfo>,
        /// Groups that have changed.
        groups: Vec<GroupChange>,
        /// Volumes that have been deleted.
        gone: Vec<VolumeId>,
        /// The topology, if it has changed or a whole map begins.
        topology: Option<String>,
        /// The other shards, if they have changed or a whole map begins.
        shards: Option<Vec<ShardInfo>>,
        /// The last volume that fitted into this answer, if more follow. Ask again for those after it.
        rest: Option<VolumeId>,
    }
    /// Asks for the changes of the cluster map since version `have`.
    200 MapGet {
        /// The version that the caller has, 0 for none.
        have: MapVersion,
        /// The only volume that the caller is interested in; all for [`None`]. Bricks are always included.
        volume: Option<VolumeId>,
        /// `rest` of the last answer.
        rest: Option<VolumeId>,
    } => MapReply;
    /// The changes, if there are any.
    201 MapReply {
        /// The changes.
        update: Option<MapUpdate>,
    };
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

    /// An open inode that a client reports when it joins again.
    part OpenInode {
        /// The inode.
        inode: InodeId,
        /// How often it is open for reading only.
        readers: u32,
        /// How often it is open for writing.
        writers: u32,
        /// The client is zeroing bytes that a truncation left, under this number
        /// ([`ZeroBegin`](super::names::ZeroBegin)).
        zeroing: Option<u64>,
        /// What it has noted with the bricks and not told since. `told` means nothing here.
        note: Option<SizeNote>,
    }
    /// A mount begins, or joins again after the metadata service has restarted.
    210 ClientJoin {
        /// Name of the volume.
        volume: String,
        /// Its id, if it had one.
        client: Option<ClientId>,
        /// The inodes that it has open.
        opens: Vec<OpenInode>,
        /// It must be the volume's only mount. A mount that joins again repeats its first value.
        exclusive: bool,
        /// Where the volume is mounted, for people to read: as a rule `host:directory`, at most
        /// [`PLACE_MAX`](crate::limits::PLACE_MAX) bytes.
        place: String,
    } => ClientJoined;
    /// The mount is known.
    211 ClientJoined {
        /// Its id.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The volume's root.
        root: InodeId,
    };
    /// A client renews its lease and waits up to [`HEARTBEAT_US`](crate::limits::HEARTBEAT_US) for something new.
    212 ClientPoll {
        /// The client.
        client: ClientId,
        /// The version of the map that it has.
        map: MapVersion,
        /// What programs have asked the client for since it began.
        asked: AskedCounts,
        /// Bricks that do not answer it, at most [`REPORTED_MAX`](crate::limits::REPORTED_MAX).
        unreached: Vec<BrickId>,
    } => ClientPollReply;
    /// The mode of an open inode must change. The client makes buffered bytes stable and then sends `RecallAck`.
    part Recall {
        /// The inode.
        inode: InodeId,
        /// The new mode.
        mode: Mode,
        /// Number of the recall, never reused.
        number: u64,
    }
    /// Another client is about to truncate an open inode. The client ends its reads and writes, begins none, and then
    /// sends `Quiesced`.
    part Quiesce {
        /// The inode.
        inode: InodeId,
        /// Number of the truncation, never reused.
        number: u64,
    }
    /// What the client must know and do.
    213 ClientPollReply {
        /// The newest map.
        map: MapVersion,
        /// Modes that must change.
        recalls: Vec<Recall>,
        /// Inodes to quiesce.
        quiesces: Vec<Quiesce>,
    };
    /// The client has changed to the recalled mode: it buffers nothing that this mode does not allow.
    214 RecallAck {
        /// The client.
        client: ClientId,
        /// The inode.
        inode: InodeId,
        /// Number of the recall.
        number: u64,
    } => Done;
    /// The client has no read or write of an inode under way. Answered when the truncation is done or has failed.
    /// Then the client gets the inode's new attributes and goes on.
    216 Quiesced {
        /// The client.
        client: ClientId,
        /// The inode.
        inode: InodeId,
        /// Number of the truncation.
        number: u64,
    } => Done;
    /// A mount ends; everything that it wrote is stable.
    215 ClientLeave {
        /// The client.
        client: ClientId,
    } => Done;

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
        /// From the first shard: the number of its last [`ShardStatus`]. Another shard refuses every other number with `NotServing`:
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

impl GroupConfig {
    /// The slot that orders the group's writes: the lowest live parity slot; the lowest live data slot if no parity
    /// slot is live. `None` if none is.
    pub fn primary(&self, code: Code) -> Option<usize> {
        let live = |slot: &usize| self.slots.get(*slot).is_some_and(|s| s.state == SlotState::Live);
        (code.k()..code.slots()).find(live).or_else(|| (0..code.k()).find(live))
    }

    /// Mask of the live slots.
    pub fn live(&self) -> u64 {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, s)| s.state == SlotState::Live)
            .fold(0, |mask, (i, _)| mask | 1 << i)
    }

    /// The slot of a brick.
    pub fn slot_of(&self, brick: BrickId) -> Option<usize> {
        self.slots.iter().position(|s| s.brick == brick)
    }
}

impl ClusterMap {
    /// A map of an empty cluster.
    pub fn empty(cluster: ClusterId) -> ClusterMap {
        let (bricks, volumes, topology, shards) = (Vec::new(), Vec::new(), String::new(), Vec::new());
        ClusterMap { version: MapVersion(0), cluster, bricks, volumes, topology, shards }
    }

    /// Whether a brick holds a lease.
    pub fn is_up(&self, brick: BrickId) -> bool {
        self.brick(brick).is_some_and(|brick| brick.state == BrickState::Up)
    }

    /// A brick by its id.
    pub fn brick(&self, id: BrickId) -> Option<&BrickInfo> {
        Some(&self.bricks[self.bricks.binary_search_by_key(&id, |brick| brick.id).ok()?])
    }

    /// A volume by its id.
    pub fn volume(&self, id: VolumeId) -> Option<&VolumeInfo> {
        Some(&self.volumes[self.volumes.binary_search_by_key(&id, |volume| volume.id).ok()?])
    }

    /// A volume by its name.
    pub fn volume_named(&self, name: &str) -> Option<&VolumeInfo> {
        self.volumes.iter().find(|v| v.name == name)
    }

    /// A group's volume and configuration.
    pub fn group(&self, id: GroupId) -> Option<(&VolumeInfo, &GroupConfig)> {
        let volume = self.volume(id.volume)?;
        Some((volume, volume.groups.get(id.index as usize)?))
    }

    /// Applies changes up to a later version.
    pub(super) fn take(&mut self, news: MapUpdate) {
        let MapUpdate { version, cluster, whole, bricks, volumes, groups, gone, topology, shards, rest: _ } =
            news;
        if whole {
            *self = ClusterMap::empty(cluster);
        }
        self.version = version;
        self.topology = topology.unwrap_or_else(|| std::mem::take(&mut self.topology));
        self.shards = shards.unwrap_or_else(|| std::mem::take(&mut self.shards));
        bricks.into_iter().for_each(|brick| put(&mut self.bricks, brick, |brick| brick.id));
        volumes.into_iter().for_each(|volume| put(&mut self.volumes, volume, |volume| volume.id));
        for GroupChange { group: GroupId { volume, index }, config } in groups {
            let at = self.volumes.binary_search_by_key(&volume, |volume| volume.id);
            let volume = at.ok().and_then(|at| self.volumes.get_mut(at));
            if let Some(group) = volume.and_then(|volume| volume.groups.get_mut(index as usize)) {
                *group = config;
            }
        }
        let gone: BTreeSet<VolumeId> = gone.into_iter().collect();
        if !gone.is_empty() {
            self.volumes.retain(|volume| !gone.contains(&volume.id));
        }
    }
}

/// Puts an item into a list ordered by `key`; it replaces an item with the same key.
fn put<T, K: Ord>(list: &mut Vec<T>, item: T, key: impl Fn(&T) -> K) {
    match list.binary_search_by_key(&key(&item), &key) {
        Ok(at) => list[at] = item,
        Err(at) => list.insert(at, item),
    }
}

impl MapUpdate {
    /// A whole map, in one part.
    pub fn whole(map: ClusterMap) -> MapUpdate {
        let ClusterMap { version, cluster, bricks, volumes, topology, shards } = map;
        let (groups, gone) = (Vec::new(), Vec::new());
        let (topology, shards) = (Some(topology), Some(shards));
        MapUpdate {
            version,
            cluster,
            whole: true,
            bricks,
            volumes,
            groups,
            gone,
            topology,
            shards,
            rest: None,
        }
    }
}
