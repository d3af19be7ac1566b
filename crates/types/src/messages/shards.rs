//! Shards: how they are made and found.

use super::Done;
use crate::{ShardId, records};

records! {
    names REQUESTS;
    /// A shard other than the first.
    part ShardInfo {
        /// Its number.
        id: ShardId,
        /// Its metadata servers, `host:port`, with commas between them; empty until one has led.
        servers: String,
    }
    /// Asks the first shard for the number of one more. The same token gets the same number. Refused with `TooMany` if there are
    /// [`SHARDS_MAX`](crate::limits::SHARDS_MAX), `Unsupported` by other shards.
    230 ShardAdd {
        /// Random.
        token: u64,
    } => ShardAdded;
    /// The new shard.
    231 ShardAdded {
        /// Its number, which no other one has had.
        shard: ShardId,
    };
    /// The leader of another shard tells the first one where its servers are. Refused with `Unknown` if that shard was removed,
    /// `Invalid` if nobody can call the servers.
    232 ShardAnnounce {
        /// The shard.
        shard: ShardId,
        /// Its metadata servers, with commas between them.
        servers: String,
        /// The one that leads.
        leader: String,
        /// Requests per second that it serves.
        load: u32,
        /// The servers of the shard that could lead in place of the leader.
        followers: Vec<String>,
    } => ShardAnnounced;
    /// What the other shard should know.
    233 ShardAnnounced {
        /// The metadata servers of the first shard, with commas between them; empty if others could not call them there.
        servers: String,
        /// The network between the nodes, as in the map.
        topology: String,
        /// Which of the followers should lead instead, because its machine serves less; [`None`] if none.
        lead: Option<String>,
    };
    /// Asks which shard has a volume. A shard other than the first answers for itself. Refused with `NotServing` while a shard
    /// does not answer that may have it, `Exists` if two others than the asked one have one of this name.
    234 ShardFind {
        /// Name of the volume.
        volume: String,
    } => ShardFound;
    /// Where a shard is.
    235 ShardFound {
        /// Its metadata servers, with commas between them; empty if it is the one that was asked. [`None`] if there is no such shard,
        /// or none of its servers has led.
        servers: Option<String>,
    };
    /// Asks the first shard where another one is. Nobody else is asked.
    237 ShardServers {
        /// The shard.
        shard: ShardId,
    } => ShardFound;
    /// The first shard asks another one about itself.
    238 ShardStatus {
        /// Name of a volume.
        volume: String,
        /// Random, if the first shard is about to make a volume ([`VolumeCreate`](super::cluster::VolumeCreate)); else 0.
        token: u64,
    } => ShardReport;
    /// What a shard says of itself.
    239 ShardReport {
        /// Its number: another one may listen at its address by now.
        shard: ShardId,
        /// Whether it has the volume.
        has_volume: bool,
        /// How many volumes it has, with deleted ones of which bricks have bytes.
        volumes: u32,
        /// How many bricks are Up there.
        bricks: u32,
        /// CRC-32C of the topology in its map.
        topology: u32,
    };
    /// Forgets a shard without volumes. Refused by the first shard with `Unknown` if there is no such shard, `Busy` if it has
    /// volumes, or answers and counts as lost; `NotServing` if it does not answer.
    236 ShardRemove {
        /// The shard.
        shard: ShardId,
        /// It need not answer: it is lost, and all its volumes with it.
        lost: bool,
    } => Done;
}
