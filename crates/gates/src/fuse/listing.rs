//! Listings of directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use fuser::{Errno, FileHandle, FileType, INodeNo};
use types::messages::names::{Attr, DirEntries};

use super::attributes::file_type;
use super::gate::Gate;
use super::{dot_shoal, local};

/// Cookies below belong to `.` and `..`; a directory's own entries follow.
const COOKIE_FIRST: u64 = 2;
/// Entries per request: about as many as fit into an answer of 32 KiB with attributes.
const ENTRIES_MAX: u32 = 192;

impl Gate {
    /// Entries from a kernel's cookie on.
    async fn list(&self, inode: INodeNo, cookie: u64) -> Result<DirEntries, Errno> {
        let inode = self.inode(inode);
        let cookie = cookie.saturating_sub(COOKIE_FIRST);
        let question = self.dir_attrs.question(Instant::now());
        let listed = self.ask(async |session| session.readdir(inode, cookie, ENTRIES_MAX).await).await;
        let listed = listed.map_err(|errno| match self.open_dirs.opened(inode) {
            // A removed directory has no entries.
            Some(_) if errno == Errno::ESTALE => Errno::ENOENT,
            _ => errno,
        })?;
        if cookie == 0
            && let Some(attr) = self.dir_attrs.last(inode).or_else(|| self.open_dirs.opened(inode))
        {
            self.listed(&attr);
        }
        listed.entries.iter().for_each(|entry| self.dir_attrs.update(question, &entry.attr));
        self.dir_attrs.listed(inode);
        Ok(listed)
    }

    /// Records that the directory with these attributes was listed.
    fn listed(&self, attr: &Attr) {
        if local::note_access(&self.mount, attr) {
            self.dir_attrs.accessed(&self.mount.with_access(attr.clone()));
        }
    }

    /// Lists a directory: passes cookie, name and attributes of each entry to `add`, until it is full.
    pub(super) async fn read_directory(
        &self,
        inode: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut add: impl FnMut(INodeNo, u64, FileType, &OsStr, Option<&Attr>) -> bool,
    ) -> Result<(), Errno> {
        if dot_shoal::is_ours(inode) {
            // Its entries are found by name only.
            return Ok(());
        }
        if self.open_dirs.take_end(handle, cookie) {
            return Ok(());
        }
        let listed = self.list(inode, cookie).await?;
        let parent = self.kernel_number(listed.parent);
        let dots = [(INodeNo(inode.0), "."), (parent, "..")];
        for (at, (number, name)) in dots.into_iter().enumerate().skip(cookie.min(COOKIE_FIRST) as usize) {
            if add(number, at as u64 + 1, FileType::Directory, OsStr::new(name), None) {
                return Ok(());
            }
        }
        for entry in &listed.entries {
            let kind = file_type(entry.attr.kind);
            let name = OsStr::from_bytes(&entry.name);
            if add(INodeNo(entry.attr.inode.0), entry.cookie + COOKIE_FIRST, kind, name, Some(&entry.attr)) {
                return Ok(());
            }
        }
        if listed.end {
            let last = listed.entries.last().map(|entry| entry.cookie + COOKIE_FIRST);
            self.open_dirs.end(handle, last.unwrap_or(cookie.max(COOKIE_FIRST)));
        }
        Ok(())
    }
}
