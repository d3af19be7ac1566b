//! Open files: their modes, their sizes and their times.

use super::Done;
use super::cluster::Mode;
use super::names::{Attr, AttrReply, Caller};
use crate::{ClientId, InodeId, VolumeId, records};

records! {
    names REQUESTS;
    /// A name of an inode.
    part NamedAs {
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
    }
    /// Opens a file. Answered when every client with a conflicting mode has given it up.
    317 Open {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// For writing.
        write: bool,
        /// Truncates it to nothing.
        truncate: bool,
        /// The names by which the caller may have found the file, at most
        /// [`OPEN_NAMES_MAX`](crate::limits::OPEN_NAMES_MAX). Refused with `Stale` if one of them is not the file's by now.
        names: Vec<NamedAs>,
        /// The time now.
        now: i64,
    } => Opened;
    /// The file is open.
    318 Opened {
        /// Its attributes.
        attr: Attr,
        /// What the client may do with it.
        mode: Mode,
    };
    /// Undoes one open of a file.
    319 Release {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// It was open for writing.
        write: bool,
    } => Done;
    /// A new size and time of a file.
    part SizeUpdate {
        /// The file.
        inode: InodeId,
        /// The file's `truncate_seq` when the bytes were written.
        truncate_seq: u64,
        /// The file has at least this many bytes.
        size: u64,
        /// When it was written.
        mtime: i64,
        /// Sets the time even to an older one, because the writer (an exclusive mount) owns the file's times.
        set_time: bool,
    }
    /// Reports growth. If `stable` is set, the bytes are stable and the service stores the sizes durably. Otherwise
    /// it shows the sizes to other clients, and forgets them when it restarts. A report from before a truncation
    /// changes nothing.
    320 UpdateSizes {
        /// The writer.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The files.
        sizes: Vec<SizeUpdate>,
        /// The bytes are stable.
        stable: bool,
        /// The writer wants to leave later sizes of these files with the bricks ([`SizeNote`](super::notes::SizeNote)), until it
        /// closes them.
        noting: bool,
    } => UpdateSizesReply;
    /// The service has taken the sizes, except those of some files.
    322 UpdateSizesReply {
        /// The service has stored that it must ask the bricks if the writer is lost. Only for files that the writer has open
        /// alone.
        noting: bool,
        /// The files that were truncated after the report was made, and their attributes.
        cut: Vec<Attr>,
    };
    /// A client that does not have a file Alone asks to zero the bytes that a truncation left beyond the end. One
    /// client at a time may do so, until it sends `Zeroed`.
    323 ZeroBegin {
        /// Who asks; [`Zeroed`] names its number (`op`).
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
    } => ZeroBeginReply;
    /// Whether the client may zero.
    324 ZeroBeginReply {
        /// If false, another client is zeroing: ask again.
        granted: bool,
    };
    /// The client has zeroed a file from its size to `stale_end`, or has given up. None of its zeros are under way
    /// any more.
    321 Zeroed {
        /// The writer.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// Number of the `ZeroBegin` that this ends; [`None`] from a client that has the file Alone.
        number: Option<u64>,
        /// The file's `truncate_seq` when the zeroing began.
        truncate_seq: u64,
        /// End of the zeroed bytes; 0 if the client gave up.
        stale_end: u64,
    } => Done;
    /// Bytes at the end of a file were lost: no brick will take them. The file ends at `size`, up to which everything is stable.
    /// Bricks may hold bytes beyond it. A request with an old `truncate_seq` changes nothing. Only from a client that has the file
    /// Alone. A file that has bytes keeps the time of the last change of these; an empty one gets the time 0.
    336 Retract {
        /// The writer.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// The file's `truncate_seq` when the bytes were written.
        truncate_seq: u64,
        /// Where the file ends, in bytes. A size that the service has stored stays if it is larger.
        size: u64,
        /// End of all bytes that were sent to bricks.
        sent_end: u64,
        /// When it happens, in nanoseconds since 1970.
        now: i64,
    } => AttrReply;
    /// An inode was read.
    part AccessTime {
        /// The inode.
        inode: InodeId,
        /// The access time that the reader knew. If the inode's time differs from it, this report is ignored.
        known: i64,
        /// The new access time.
        atime: i64,
    }
    /// Reports up to [`ACCESSES_MAX`](crate::limits::ACCESSES_MAX) accesses. Nothing else of the inodes changes.
    330 Accessed {
        /// The reader.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The accesses.
        times: Vec<AccessTime>,
    } => Done;
    /// Makes a file without a name in a tier, open for writing. It is gone with its last close. Refused with `Invalid`
    /// if the volume has no such tier.
    331 CreateTemporary {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The number of the tier that gets its bytes.
        tier: u8,
        /// The time now.
        now: i64,
    } => Opened;
    /// Two files swap their objects: `temporary` has a copy of the bytes of `inode`, durably. Times and contents stay
    /// what they are. The caller has both open for writing. Refused with `Busy` if `inode` has been written or
    /// truncated since the caller has seen it, or somebody else has it open for writing.
    332 SwapObjects {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file that moves.
        inode: InodeId,
        /// A file of [`CreateTemporary`].
        temporary: InodeId,
        /// The count of the file's changes when it was copied.
        changes: u64,
        /// The count of its truncations then.
        truncate_seq: u64,
    } => AttrReply;
}
