//! Attributes in the kernel's words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use types::messages::names::{Attr, FileKind};

/// What `stat` shows as the best size of a request.
const BLKSIZE: u32 = 1 << 20;

/// The kernel's view of an inode.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.inode.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLKSIZE,
        flags: 0,
    }
}

/// A read-only directory of which only the number matters.
pub(super) fn directory(number: INodeNo) -> FileAttr {
    FileAttr {
        ino: number,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0o555,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// What an inode is.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// What `mknod` is to make; `None` for what it cannot.
pub(super) fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileKind::File),
        libc::S_IFIFO => Some(FileKind::Fifo),
        libc::S_IFSOCK => Some(FileKind::Socket),
        libc::S_IFCHR => Some(FileKind::CharDevice),
        libc::S_IFBLK => Some(FileKind::BlockDevice),
        _ => None,
    }
}

/// A time that the volume has, in nanoseconds since 1970.
pub(super) fn time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// Nanoseconds since 1970 of a time that the kernel gave. Times before that count as 1970.
pub(super) fn nanoseconds(time: TimeOrNow) -> u64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{InodeId, ObjectId};

    #[test]
    fn attributes_keep_their_values() {
        let attr = Attr {
            inode: InodeId(9),
            kind: FileKind::File,
            mode: 0o4755,
            links: 2,
            uid: 1,
            gid: 2,
            rdev: 3,
            size: 1025,
            atime: 5,
            mtime: 1_700_000_000_123_456_789,
            ctime: 7,
            object: ObjectId(8),
            stale_end: 0,
            cuts: 0,
            changes: 0,
        };
        let seen = file_attr(&attr);
        assert_eq!((seen.ino.0, seen.size, seen.blocks, seen.perm), (9, 1025, 3, 0o4755));
        assert_eq!(nanoseconds(TimeOrNow::SpecificTime(seen.mtime)), attr.mtime);
        assert_eq!(kind_of_mode(libc::S_IFIFO | 0o600), Some(FileKind::Fifo));
        assert_eq!(kind_of_mode(libc::S_IFDIR), None);
        let before_1970 = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(nanoseconds(TimeOrNow::SpecificTime(before_1970)), 0);
    }
}
