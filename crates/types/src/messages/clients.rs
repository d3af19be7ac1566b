//! Clients: their leases, modes and recalls.

use super::Done;
use super::brick::AskedCounts;
use super::notes::SizeNote;
use crate::{BrickId, ClientId, InodeId, MapVersion, VolumeId, coded_enum, records};

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

records! {
    names REQUESTS;
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
    /// The client has no read or write of an inode under way. The service answers when the truncation is done or has failed. The client then
    /// gets the inode's new attributes, and begins reads and writes again.
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
}
