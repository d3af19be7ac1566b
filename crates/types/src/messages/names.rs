//! The name space: one request per file operation.
//!
//! Times are nanoseconds since 1970, negative before. Gates check permissions (for FUSE, the kernel does); the
//! service keeps owners and modes. Every change carries a [`Caller`], so that a repeated request is executed once.

use super::cluster::Mode;
use crate::{ClientId, InodeId, ObjectId, VolumeId};
use crate::{coded_enum, records};

pub use super::opens::{
    AccessTime, Accessed, CreateTemporary, NamedAs, Open, Opened, Release, Retract, SizeUpdate, SwapObjects,
    UpdateSizes, UpdateSizesReply, ZeroBegin, ZeroBeginReply, Zeroed,
};

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
}
