//! Attributes in the kernel's format.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use types::messages::names::{Attr, FileKind};

/// The preferred size of a request, as `stat` shows it.
const BLKSIZE: u32 = 1 << 20;

/// Programs should search only files of at least this many bytes for holes.
const SPARSE_MIN: u64 = 1 << 20;
/// Bytes of a block of `stat`.
const STAT_BLOCK: u64 = 512;

/// The used blocks that `stat` shows. The real number is not known. But cp and tar search for holes only if a file
/// uses less space than its size, and treat a file that uses no space as one hole.
fn blocks(attr: &Attr) -> u64 {
    if attr.kind == FileKind::File && attr.size >= SPARSE_MIN {
        attr.size / STAT_BLOCK - 1
    } else {
        attr.size.div_ceil(STAT_BLOCK)
    }
}

/// The kernel's view of an inode.
pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.inode.0),
        size: attr.size,
        blocks: blocks(attr),
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

/// The attributes of a synthetic read-only directory.
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

/// The type of an inode.
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

/// The kind that `mknod` is asked for; `None` if it cannot make it.
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

/// A time of the volume (nanoseconds since 1970) as a system time.
pub(super) fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// A time from the kernel as nanoseconds since 1970. Times before September 1677 and after April 2262 do not fit and
/// are clamped.
pub(super) fn nanoseconds(time: TimeOrNow) -> i64 {
    let since = match time {
        TimeOrNow::Now => Ok(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
        TimeOrNow::SpecificTime(time) => time.duration_since(UNIX_EPOCH),
    };
    let nanoseconds = match since {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => {
            // The kernel counts whole seconds down and nanoseconds up from there; fuser takes both away from 1970.
            // Source: fuser 0.18, `system_time_from_time`.
            let (seconds, up) = (before.duration().as_secs(), before.duration().subsec_nanos());
            i128::from(up) - i128::from(seconds) * 1_000_000_000
        }
    };
    nanoseconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Attributes of an inode, for tests that say only what they are about.
#[cfg(test)]
pub(super) fn plain_attr(inode: types::InodeId, kind: FileKind) -> Attr {
    Attr {
        inode,
        kind,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime: 0,
        mtime: 0,
        ctime: 0,
        object: types::ObjectId(0),
        stale_end: 0,
        truncate_seq: 0,
        changes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::InodeId;

    #[test]
    fn attributes_keep_their_values() {
        let mtime = 1_700_000_000_123_456_789;
        let attr = Attr { mode: 0o4755, links: 2, uid: 1, gid: 2, rdev: 3, size: 1025, mtime, ..plain() };
        let seen = file_attr(&attr);
        assert_eq!((seen.ino.0, seen.size, seen.blocks, seen.perm), (9, 1025, 3, 0o4755));
        assert_eq!(nanoseconds(TimeOrNow::SpecificTime(seen.mtime)), attr.mtime);
        assert_eq!(kind_of_mode(libc::S_IFIFO | 0o600), Some(FileKind::Fifo));
        assert_eq!(kind_of_mode(libc::S_IFDIR), None);
    }

    #[test]
    fn large_files_may_have_holes() {
        let file = |size| Attr { size, kind: FileKind::File, ..plain() };
        assert_eq!([0, 1, 513].map(|size| blocks(&file(size))), [0, 1, 2]);
        assert_eq!([1 << 20, (1 << 20) + 1].map(|size| blocks(&file(size))), [2047, 2047]);
        assert_eq!(blocks(&Attr { size: 1 << 20, kind: FileKind::Directory, ..plain() }), 2048);
    }

    fn plain() -> Attr {
        plain_attr(InodeId(9), FileKind::File)
    }

    /// As fuser gives what the kernel means by so many seconds and nanoseconds.
    fn from_kernel(seconds: i64, nanos: u32) -> TimeOrNow {
        let distance = Duration::new(seconds.unsigned_abs(), nanos);
        TimeOrNow::SpecificTime(if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance })
    }

    #[test]
    fn times_before_1970_and_far_ones() {
        const SECOND: i64 = 1_000_000_000;
        for (seconds, nanos) in [(0, 1), (-1, 0), (-1, 999_999_999), (-315_593_940, 0), (-2, 200_000_000)] {
            let known = nanoseconds(from_kernel(seconds, nanos));
            assert_eq!(known, seconds * SECOND + i64::from(nanos));
            let shown = time(known);
            let since = match shown.duration_since(UNIX_EPOCH) {
                Ok(after) => after.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            assert_eq!(since, i128::from(known));
        }
        assert_eq!(nanoseconds(from_kernel(i64::MAX, 0)), i64::MAX);
        assert_eq!(nanoseconds(from_kernel(i64::MIN + 1, 0)), i64::MIN);
        assert!(time(i64::MIN) < UNIX_EPOCH && time(i64::MAX) > UNIX_EPOCH);
    }
}
