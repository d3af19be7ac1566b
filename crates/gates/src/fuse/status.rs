//! The file `.shoal/status` in the root of every mount: the mount's ids and counters, as lines of `name value`.
//!
//! Directory and file are not in the volume and are not listed, but can be looked up by name. So the name `.shoal` in
//! the root is reserved.

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
/// Inode numbers from the end of the range, which no volume reaches.
const DIRECTORY: INodeNo = INodeNo(u64::MAX - 1);
const FILE: INodeNo = INodeNo(u64::MAX - 2);
/// The file's only handle. Every read generates the text again.
pub(super) const HANDLE: FileHandle = FileHandle(u64::MAX);

/// The inode of a name that belongs to this module.
pub(super) fn lookup(in_root: bool, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
    match name.as_bytes() {
        DIRECTORY_NAME if in_root => Some(DIRECTORY),
        FILE_NAME if parent == DIRECTORY => Some(FILE),
        _ => None,
    }
}

/// Whether an inode belongs to this module and not to the volume.
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

/// The part of the file's text for a read.
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
