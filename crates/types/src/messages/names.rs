//! The name space: one request per file operation.
//!
//! Times are nanoseconds since 1970, negative before. Gates check permissions (for FUSE, the kernel does); the
//! service keeps owners and modes. Every change carries a [`Caller`], so that a repeated request is executed once.

use super::Done;
use super::cluster::Mode;
use crate::{ClientId, InodeId, ObjectId, VolumeId};
use crate::{coded_enum, records};

/// The name in the root of a volume under which every mount shows its control files. Nobody can make it.
pub const RESERVED_NAME: &[u8] = b".shoal";

coded_enum! {
    /// What an inode is.
    pub enum FileKind: u8 {
        /// A regular file.
        File = 1,
        /// A directory.
        Directory = 2,
        /// A symbolic link.
        Symlink = 3,
        /// A named pipe.
        Fifo = 4,
        /// A socket.
        Socket = 5,
        /// A character device.
        CharDevice = 6,
        /// A block device.
        BlockDevice = 7,
    }
}

coded_enum! {
    /// How `rename` treats an existing target.
    pub enum RenameHow: u8 {
        /// Replaces it.
        Replace = 1,
        /// Refuses.
        NoReplace = 2,
        /// Swaps the two.
        Exchange = 3,
    }
}

records! {
    names REQUESTS;
    /// Who asks for a change, and its number.
    part Caller {
        /// The mount.
        client: ClientId,
        /// The mount's number for this change.
        op: u64,
        /// The mount has the answers to all its changes up to this number.
        acked: u64,
    }
    /// The attributes of an inode.
    part Attr {
        /// The inode.
        inode: InodeId,
        /// What it is.
        kind: FileKind,
        /// Permission bits, without the kind.
        mode: u32,
        /// Hard links.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a device.
        rdev: u32,
        /// Bytes of a file or of a link's target.
        size: u64,
        /// Last access.
        atime: i64,
        /// Last change of the contents.
        mtime: i64,
        /// Last change of anything.
        ctime: i64,
        /// The bytes of a file.
        object: ObjectId,
        /// The bricks may still hold old bytes from `size` up to here. These must read as zeros, and are zeroed
        /// before the file may grow. Not above `size` if there are none.
        stale_end: u64,
        /// How often the file has been truncated. A report that was made for an older count is ignored.
        truncate_seq: u64,
        /// Grows with every durable change of the contents, even if the times stay the same.
        changes: u64,
    }
    /// Owner and mode of a new inode.
    part Owner {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Permission bits.
        mode: u32,
    }

    /// Finds a name in a directory.
    300 Lookup {
        /// The volume.
        volume: VolumeId,
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
    } => AttrReply;
    /// Attributes of an inode.
    301 AttrReply {
        /// The attributes.
        attr: Attr,
    };
    /// Reads an inode's attributes.
    302 GetAttr {
        /// The volume.
        volume: VolumeId,
        /// The inode.
        inode: InodeId,
    } => AttrReply;
    /// Changes attributes. A size of 0 gives the file a new object. Any other smaller size leaves old bytes that must
    /// be zeroed (`stale_end`).
    303 SetAttr {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The inode.
        inode: InodeId,
        /// New permission bits.
        mode: Option<u32>,
        /// New owner.
        uid: Option<u32>,
        /// New group.
        gid: Option<u32>,
        /// New size.
        size: Option<u64>,
        /// The bricks may hold bytes of the file up to here. A restarted service may have forgotten earlier reports
        /// of this.
        sent_end: u64,
        /// New access time.
        atime: Option<i64>,
        /// New modification time.
        mtime: Option<i64>,
        /// The time now.
        now: i64,
    } => AttrReply;
    /// Makes a file (or pipe, socket, device) and opens it if asked.
    304 Create {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// What it is; neither a directory nor a symbolic link.
        kind: FileKind,
        /// Owner and mode.
        owner: Owner,
        /// Device number.
        rdev: u32,
        /// Opens it for writing.
        open: bool,
        /// Groups of the first tier, in ascending order: the file begins in one of them if they have room. Empty: in any
        /// group. At most [`NEAR_GROUPS_MAX`](crate::limits::NEAR_GROUPS_MAX).
        near: Vec<u32>,
        /// The time now.
        now: i64,
    } => Created;
    /// The file exists, and is open if the request asked for it.
    325 Created {
        /// Its attributes.
        attr: Attr,
        /// What the client may do with it.
        mode: Mode,
        /// The directory's attributes after the change.
        parent: Attr,
    };
    /// Makes a directory.
    305 Mkdir {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory that it goes into.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// Owner and mode.
        owner: Owner,
        /// The time now.
        now: i64,
    } => Linked;
    /// An inode has a new name.
    326 Linked {
        /// Its attributes.
        attr: Attr,
        /// The attributes of the directory with the new name.
        parent: Attr,
    };
    /// Makes a symbolic link.
    306 Symlink {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// What it points to.
        target: Vec<u8>,
        /// Owner and mode.
        owner: Owner,
        /// The time now.
        now: i64,
    } => Linked;
    /// Reads a symbolic link.
    307 ReadLink {
        /// The volume.
        volume: VolumeId,
        /// The link.
        inode: InodeId,
    } => LinkTarget;
    /// The target of a link.
    308 LinkTarget {
        /// The target.
        target: Vec<u8>,
    };
    /// Gives a file another name.
    309 Link {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// The directory of the new name.
        parent: InodeId,
        /// The new name.
        name: Vec<u8>,
        /// The time now.
        now: i64,
    } => Linked;
    /// Removes a name of a file. Its bytes go with the last name and the last open.
    310 Unlink {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// The time now.
        now: i64,
    } => Unlinked;
    /// A name has been removed.
    327 Unlinked {
        /// The inode that it named.
        inode: InodeId,
        /// The attributes of the directory that held it.
        parent: Attr,
    };
    /// Removes an empty directory.
    311 Rmdir {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory that holds it.
        parent: InodeId,
        /// The name.
        name: Vec<u8>,
        /// The inode that the caller takes the name for. Refused with `Stale` if it is another's.
        meant: Option<InodeId>,
        /// The time now.
        now: i64,
    } => Unlinked;
    /// Moves a name.
    312 Rename {
        /// Who asks.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The directory that it leaves.
        from: InodeId,
        /// The name that it leaves.
        from_name: Vec<u8>,
        /// The directory that it enters.
        to: InodeId,
        /// The name that it gets.
        to_name: Vec<u8>,
        /// What happens to an existing target.
        how: RenameHow,
        /// The inode that the caller takes the new name for. Refused with `Stale` if it is another's.
        meant: Option<InodeId>,
        /// The time now.
        now: i64,
    } => Renamed;
    /// A name has moved.
    328 Renamed {
        /// The attributes of the directory that it left.
        from: Attr,
        /// Those of the directory that it entered.
        to: Attr,
        /// A directory was moved or replaced, so attributes of other directories have changed too.
        directories: bool,
        /// The inode that has moved.
        moved: InodeId,
        /// The one with which it was exchanged.
        exchanged: Option<InodeId>,
    };
    /// An entry of a directory.
    part DirEntry {
        /// Pass this as `cookie` of [`ReadDir`] to get the entries after this one.
        cookie: u64,
        /// The name.
        name: Vec<u8>,
        /// The attributes.
        attr: Attr,
    }
    /// Lists a directory with attributes, without `.` and `..`.
    313 ReadDir {
        /// The volume.
        volume: VolumeId,
        /// The directory.
        inode: InodeId,
        /// The entries after this cookie; 0 from the start.
        cookie: u64,
        /// Most entries in the answer.
        count: u32,
    } => DirEntries;
    /// Entries, in the order of their cookies.
    314 DirEntries {
        /// The entries.
        entries: Vec<DirEntry>,
        /// Nothing follows.
        end: bool,
        /// The directory's own parent (itself for the root).
        parent: InodeId,
    };
    /// Lists a directory from a name on, in the order of cookies: the name's own entry first.
    333 ReadDirFrom {
        /// The volume.
        volume: VolumeId,
        /// The directory.
        parent: InodeId,
        /// The name. Refused with `NotFound` if there is no such name.
        name: Vec<u8>,
        /// Most entries in the answer.
        count: u32,
    } => DirEntries;
    /// Asks for a volume's space.
    315 StatFs {
        /// The volume.
        volume: VolumeId,
    } => Space;
    /// A volume's space.
    316 Space {
        /// Bytes of data that fit in all.
        total: u64,
        /// Bytes of data that still fit.
        free: u64,
        /// Inodes in use.
        inodes: u64,
    };
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
