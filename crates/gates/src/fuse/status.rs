//! The file `.shoal/status` in the root of every mount: what the mount is and has done, as lines of `name value`.
//!
//! Neither the directory nor the file is listed, and neither is in the volume; both can be looked up by name. The
//! name `.shoal` in the root is taken by this.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use client::Mount;
use fuser::{FileAttr, FileHandle, FileType, INodeNo};
use types::messages::LongTurn;

use super::attributes::directory;

/// The directory's name in the root.
const DIRECTORY_NAME: &[u8] = b".shoal";
/// The file's name in the directory.
const FILE_NAME: &[u8] = b"status";
/// Inode numbers from the far end, where no volume's get.
const DIRECTORY: INodeNo = INodeNo(u64::MAX - 1);
const FILE: INodeNo = INodeNo(u64::MAX - 2);
/// The file's only handle: its text is made anew by every read from the start.
pub(super) const HANDLE: FileHandle = FileHandle(u64::MAX);

/// The inode of a name that is ours.
pub(super) fn lookup(in_root: bool, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
    match name.as_bytes() {
        DIRECTORY_NAME if in_root => Some(DIRECTORY),
        FILE_NAME if parent == DIRECTORY => Some(FILE),
        _ => None,
    }
}

/// True for an inode that is not the volume's.
pub(super) fn is_ours(inode: INodeNo) -> bool {
    inode == DIRECTORY || inode == FILE
}

/// Attributes of the directory or the file.
pub(super) fn attr(inode: INodeNo) -> FileAttr {
    let directory = directory(inode);
    if inode == DIRECTORY {
        return directory;
    }
    FileAttr { kind: FileType::RegularFile, perm: 0o444, nlink: 1, ..directory }
}

/// How long the kernel may believe those attributes.
pub(super) const TTL: Duration = Duration::from_secs(3600);

/// What a read of the file gets.
pub(super) fn part(mount: &Mount, offset: u64, size: u32) -> String {
    let text = text(mount);
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    let end = start.saturating_add(size as usize).min(text.len());
    text.get(start..end).unwrap_or_default().to_owned()
}

fn text(mount: &Mount) -> String {
    let counters = mount.counters();
    let lines = [
        ("pid", u64::from(std::process::id())),
        ("client", mount.client().0),
        ("volume", u64::from(mount.volume().0)),
        ("bytes_read", counters.bytes_read),
        ("bytes_written", counters.bytes_written),
        ("bytes_own", counters.bytes_own),
        ("bytes_direct", counters.bytes_direct),
        ("bytes_primary", counters.bytes_primary),
        ("stripes_staged", counters.stripes_staged),
        ("stripes_sent", counters.stripes_sent),
        ("units_decoded", counters.units_decoded),
        ("retries", counters.retries),
        ("pieces_sent", counters.pieces_sent),
        ("spans_sent", counters.spans_sent),
        ("unstable_bytes", counters.unstable_bytes),
        ("cache_bytes", counters.cache_bytes),
    ];
    // Times in microseconds: on the clock, and of the thread itself.
    let turn = |turn: LongTurn| format!("longest_turn {} {} {}\n", turn.wall_us, turn.cpu_us, turn.task);
    let turns = world::turns::longest().into_iter().map(turn);
    lines.into_iter().map(|(name, value)| format!("{name} {value}\n")).chain(turns).collect()
}
