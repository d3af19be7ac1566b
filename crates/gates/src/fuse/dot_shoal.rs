//! The directory `.shoal` in the root of every mount: `status` shows the mount's ids and counters, `tune` shows and
//! changes the settings of its translators, `xray` shows what has entered each of its layers, `why` its slowest requests.
//!
//! Directory and files are not in the volume and are not listed, but can be looked up by name. The metadata service
//! lets nobody make this name in the root of a volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use client::Mount;
use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo};
use types::messages::names::RESERVED_NAME;

use super::attributes::directory;
use super::status;
use super::tune::TuneHandles;
use super::why::WhyHandles;
use super::xray::XrayHandles;

/// The files' names in the directory.
const STATUS_NAME: &[u8] = b"status";
const TUNE_NAME: &[u8] = b"tune";
const XRAY_NAME: &[u8] = b"xray";
const WHY_NAME: &[u8] = b"why";
/// Inode numbers from the end of the range, which no volume reaches.
const DIRECTORY: INodeNo = INodeNo(u64::MAX - 1);
const STATUS: INodeNo = INodeNo(u64::MAX - 2);
const TUNE: INodeNo = INodeNo(u64::MAX - 3);
const XRAY: INodeNo = INodeNo(u64::MAX - 4);
const WHY: INodeNo = INodeNo(u64::MAX - 5);
/// The only handle of the directory and of `status`.
pub(super) const HANDLE: FileHandle = FileHandle(u64::MAX);
/// The handles of `tune` begin here, and those of `xray` and `why`. The client counts its own from 1.
const TUNE_HANDLES: u64 = 1 << 63;
const XRAY_HANDLES: u64 = TUNE_HANDLES | 1 << 62;
const WHY_HANDLES: u64 = XRAY_HANDLES | 1 << 61;

/// How long the kernel may believe the attributes.
pub(super) const TTL: Duration = Duration::from_secs(3600);

/// The inode of a name that belongs to this module.
pub(super) fn lookup(in_root: bool, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
    match name.as_bytes() {
        RESERVED_NAME if in_root => Some(DIRECTORY),
        STATUS_NAME if parent == DIRECTORY => Some(STATUS),
        TUNE_NAME if parent == DIRECTORY => Some(TUNE),
        XRAY_NAME if parent == DIRECTORY => Some(XRAY),
        WHY_NAME if parent == DIRECTORY => Some(WHY),
        _ => None,
    }
}

/// Whether an inode belongs to this module and not to the volume.
pub(super) fn is_ours(inode: INodeNo) -> bool {
    [DIRECTORY, STATUS, TUNE, XRAY, WHY].contains(&inode)
}

/// Whether a handle belongs to this module and not to the client.
pub(super) fn is_our_handle(handle: FileHandle) -> bool {
    handle.0 >= TUNE_HANDLES
}

/// Attributes of the directory or a file.
pub(super) fn attr(inode: INodeNo) -> FileAttr {
    let directory = directory(inode);
    let file = |perm| FileAttr { kind: FileType::RegularFile, perm, nlink: 1, ..directory };
    match inode {
        STATUS => file(0o444),
        TUNE | XRAY | WHY => file(0o600),
        _ => directory,
    }
}

/// What the kernel is answered when it sets attributes. It sets the size of a file that is opened to be written anew, and
/// on an exclusive mount the times.
pub(super) fn set_attr(inode: INodeNo, mode_or_owner: bool) -> Result<FileAttr, Errno> {
    if matches!(inode, TUNE | XRAY | WHY) && !mode_or_owner { Ok(attr(inode)) } else { Err(Errno::EPERM) }
}

/// The open files.
#[derive(Default)]
pub(super) struct DotShoal {
    tune: TuneHandles,
    xray: XrayHandles,
    why: WhyHandles,
}

/// What a handle stands for, with its number among those of its file.
enum Open {
    Status,
    Tune(u64),
    Xray(u64),
    Why(u64),
}

impl Open {
    fn of(handle: FileHandle) -> Open {
        match handle {
            HANDLE => Open::Status,
            FileHandle(number @ WHY_HANDLES..) => Open::Why(number - WHY_HANDLES),
            FileHandle(number @ XRAY_HANDLES..) => Open::Xray(number - XRAY_HANDLES),
            FileHandle(number) => Open::Tune(number - TUNE_HANDLES),
        }
    }
}

impl DotShoal {
    pub(super) fn open(&self, inode: INodeNo, write: bool) -> Result<FileHandle, Errno> {
        match inode {
            TUNE => Ok(FileHandle(TUNE_HANDLES + self.tune.open.open())),
            XRAY => Ok(FileHandle(XRAY_HANDLES + self.xray.0.open())),
            WHY => Ok(FileHandle(WHY_HANDLES + self.why.0.open())),
            _ if write => Err(Errno::EACCES),
            _ => Ok(HANDLE),
        }
    }

    /// The part of a file's text for a read.
    pub(super) fn read(&self, mount: &Arc<Mount>, handle: FileHandle, offset: u64, size: u32) -> String {
        let text = match Open::of(handle) {
            Open::Status => status::text(mount),
            Open::Tune(number) => self.tune.read(mount, number, offset == 0),
            Open::Xray(number) => self.xray.read(mount, number, offset == 0),
            Open::Why(number) => self.why.read(mount, number, offset == 0),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(size as usize).min(text.len());
        text.get(start..end).unwrap_or_default().to_owned()
    }

    pub(super) fn write(&self, mount: &Arc<Mount>, handle: FileHandle, data: &[u8]) -> Result<u32, Errno> {
        let done = match Open::of(handle) {
            Open::Status => return Err(Errno::EBADF),
            Open::Tune(number) => self.tune.write(mount, number, data),
            Open::Xray(number) => self.xray.write(mount, number, data),
            Open::Why(number) => self.why.write(number, data),
        };
        match done {
            Ok(()) => Ok(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(_) => Err(Errno::EINVAL),
        }
    }

    pub(super) fn release(&self, handle: FileHandle) {
        match Open::of(handle) {
            Open::Status => {}
            Open::Tune(number) => self.tune.open.release(number),
            Open::Xray(number) => self.xray.0.release(number),
            Open::Why(number) => self.why.0.release(number),
        }
    }
}
