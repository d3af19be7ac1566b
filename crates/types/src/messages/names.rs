//! The name space: one request per file operation.
//!
//! Times are nanoseconds since 1970, negative before. Permissions are checked by the gate (for FUSE by the kernel); the service
//! keeps owners and modes. Every change carries a [`Caller`], so that a repeated request is done once.

use super::Done;
use super::cluster::Mode;
use crate::{ClientId, InodeId, ObjectId, VolumeId};
use crate::{coded_enum, records};

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
        /// Every change up to here has been answered.
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
        /// End of the bytes beyond `size` that the bricks may still hold and that must read as zeros: they are
        /// zeroed before the file may grow. Not above `size` if there are none.
        stale_end: u64,
        /// How often the file has become shorter: what was made of it before counts no more.
        truncate_seq: u64,
        /// Grows with every change of the contents that is durable, whatever the times say.
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
    /// Changes attributes. A size of 0 gives the file a new object; a smaller size leaves bytes to zero.
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
        /// The bricks may hold bytes of the file up to here, whatever the service was told before and forgot.
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
        /// What it is; neither directory nor link.
        kind: FileKind,
        /// Owner and mode.
        owner: Owner,
        /// Device number.
        rdev: u32,
        /// Opens it for writing.
        open: bool,
        /// The time now.
        now: i64,
    } => Created;
    /// The file is there, and open if that was asked.
    325 Created {
        /// Its attributes.
        attr: Attr,
        /// What the holder may do.
        mode: Mode,
        /// The directory's attributes with it.
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
    /// Something has a new name.
    326 Linked {
        /// Its attributes.
        attr: Attr,
        /// Those of the directory with the name.
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
    /// Where a link points.
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
    /// A name has gone.
    327 Unlinked {
        /// What it named.
        inode: InodeId,
        /// The attributes of the directory that had it.
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
        /// The time now.
        now: i64,
    } => Renamed;
    /// A name has moved.
    328 Renamed {
        /// The attributes of the directory that it left.
        from: Attr,
        /// Those of the directory that it entered.
        to: Attr,
        /// A directory was moved or replaced: others than these two have changed.
        directories: bool,
    };
    /// An entry of a directory.
    part DirEntry {
        /// Ask on from here: the entries after this one.
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
        /// At most so many.
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
    /// Opens a file. Waits until a conflicting holder has given way.
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
        /// The time now.
        now: i64,
    } => Opened;
    /// The file is open.
    318 Opened {
        /// Its attributes.
        attr: Attr,
        /// What the holder may do.
        mode: Mode,
    };
    /// Closes a file once.
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
        /// How often it had been cut when it was written.
        truncate_seq: u64,
        /// The file has at least so many bytes.
        size: u64,
        /// When it was written.
        mtime: i64,
        /// That time counts whatever was known before: the writer puts the file's times in order itself.
        set_time: bool,
    }
    /// Tells of growth. `stable`: the bytes are stable and the sizes are to be kept for good; otherwise they are
    /// shown to others and forgotten with the service. A report from before a cut changes nothing.
    320 UpdateSizes {
        /// The writer.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The files.
        sizes: Vec<SizeUpdate>,
        /// The bytes are stable.
        stable: bool,
    } => UpdateSizesReply;
    /// Sizes were taken over, but for some files.
    322 UpdateSizesReply {
        /// Those that were cut since the report was made.
        cut: Vec<Attr>,
    };
    /// A client that does not have a file alone wants to zero what a cut has left beyond its end. One client does so at a
    /// time, until its `Zeroed`.
    323 ZeroBegin {
        /// Who asks; its number for this is what [`Zeroed`] names.
        caller: Caller,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
    } => ZeroBeginReply;
    /// Whether it may.
    324 ZeroBeginReply {
        /// If not, another one is at it: ask again.
        granted: bool,
    };
    /// The bytes of a file from its size to `stale_end` have been zeroed, or not all of them, and no zeros are on their way.
    321 Zeroed {
        /// The writer.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// The file.
        inode: InodeId,
        /// Number of the `ZeroBegin` that this ends; none of a client that has the file alone.
        number: Option<u64>,
        /// How often it had been cut when that began.
        truncate_seq: u64,
        /// Up to where: 0 if it was given up.
        stale_end: u64,
    } => Done;
    /// Something was read.
    part AccessTime {
        /// The inode.
        inode: InodeId,
        /// The time of its last access that the reader knew: if it is another one by now, this counts no more.
        known: i64,
        /// The new one.
        atime: i64,
    }
    /// Tells of accesses, at most [`ACCESSES_MAX`](crate::limits::ACCESSES_MAX) of them. Nothing else of the inodes changes.
    330 Accessed {
        /// The reader.
        client: ClientId,
        /// The volume.
        volume: VolumeId,
        /// What it has read.
        times: Vec<AccessTime>,
    } => Done;
}
