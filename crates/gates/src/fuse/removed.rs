//! Requests about inodes that were removed, here or through another mount.
//!
//! The metadata service keeps removed files that are open. It does not know of open directories, pipes, sockets and devices. What is
//! asked about those is answered from what this mount knows of them.

use std::time::Instant;

use client::SetAttrs;
use fuser::{Errno, TimeOrNow};
use types::InodeId;
use types::messages::names::{Attr, FileKind};

use super::attributes::nanoseconds;
use super::gate::Gate;
use super::retries::Asker;

impl Gate {
    /// The attributes of an inode that is gone, if somebody may have it open.
    pub(super) fn removed(&self, inode: InodeId) -> Option<Attr> {
        self.open_dirs.removed(inode).or_else(|| self.special.removed(inode))
    }

    /// Changes the attributes of an inode that is gone.
    pub(super) fn change_removed(&self, inode: InodeId, changes: &SetAttrs) -> Result<Attr, Errno> {
        if changes.size.is_some() {
            return Err(Errno::ESTALE);
        }
        let now = nanoseconds(TimeOrNow::Now);
        let change = |attr: &mut Attr| apply(attr, changes, now);
        let removed = self.open_dirs.change(inode, change).or_else(|| self.special.change(inode, change));
        match removed {
            Some(attr) => Ok(attr),
            // An exclusive mount's kernel keeps the times of files, and may send them when the file is gone. It does not look at
            // the answer.
            None if self.mount.is_exclusive() && changes.ctime.is_some() => Ok(timed(inode, changes)),
            None => Err(Errno::ESTALE),
        }
    }

    /// The error of a thread's request for a name in a directory. A directory that is gone has no names. But the path may lead to
    /// another one by now, so the kernel looks again first.
    pub(super) fn error_in(&self, asker: Asker, directory: InodeId, errno: Errno) -> Errno {
        let is_gone = errno == Errno::ESTALE;
        if is_gone && !self.retries.ask(asker, directory, Instant::now()) { Errno::ENOENT } else { errno }
    }
}

fn apply(attr: &mut Attr, changes: &SetAttrs, now: i64) {
    attr.mode = changes.mode.unwrap_or(attr.mode);
    attr.uid = changes.uid.unwrap_or(attr.uid);
    attr.gid = changes.gid.unwrap_or(attr.gid);
    attr.atime = changes.atime.unwrap_or(attr.atime);
    attr.mtime = changes.mtime.unwrap_or(attr.mtime);
    attr.ctime = changes.ctime.unwrap_or(now);
}

/// A file of which only these times are known.
fn timed(inode: InodeId, changes: &SetAttrs) -> Attr {
    let (atime, mtime, ctime) = (changes.atime, changes.mtime, changes.ctime);
    let [atime, mtime, ctime] = [atime, mtime, ctime].map(Option::unwrap_or_default);
    Attr {
        inode,
        kind: FileKind::File,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime,
        mtime,
        ctime,
        object: types::ObjectId(0),
        stale_end: 0,
        truncate_seq: 0,
        changes: 0,
    }
}
