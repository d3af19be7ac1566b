//! The name space: one request for each operation. Attributes include changes that this mount has not reported yet.

use types::InodeId;
use types::messages::cluster::Mode;
use types::messages::names::{
    Attr, AttrReply, Create, DirEntries, FileKind, GetAttr, Link, LinkTarget, Linked, Lookup, Mkdir, Owner,
    ReadDir, ReadDirFrom, ReadLink, Rename, RenameHow, Renamed, Rmdir, Space, StatFs, Symlink, Unlink,
    Unlinked,
};

use crate::error::ClientError;
use crate::face::session::Session;
use crate::paths::attrs::SetAttrs;

impl Session {
    /// Attributes from the service, with this mount's changes that are not reported yet.
    pub(crate) fn view(&self, attr: Attr) -> Attr {
        let attr = match self.mount.files.file(attr.inode) {
            Some(file) => file.lock().view(attr),
            None => attr,
        };
        self.mount.atimes.with_access(attr)
    }

    /// Finds a name in a directory.
    pub async fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, ClientError> {
        let request = Lookup { volume: self.link.routes.volume, parent, name: name.to_vec() };
        let AttrReply { attr } = self.link.ask(&request).await?;
        Ok(self.view(attr))
    }

    /// The attributes of an inode.
    pub async fn getattr(&self, inode: InodeId) -> Result<Attr, ClientError> {
        let AttrReply { attr } = self.link.ask(&GetAttr { volume: self.link.routes.volume, inode }).await?;
        Ok(self.view(attr))
    }

    /// Changes attributes. A new size needs a file that is open for writing, so it is opened if necessary.
    pub async fn setattr(&self, inode: InodeId, changes: SetAttrs) -> Result<Attr, ClientError> {
        if let Some(size) = changes.size {
            if let Some(file) = self.mount.files.file(inode).filter(|file| file.lock().write_handles > 0) {
                return self.cuts.truncate(&file, size, &changes).await;
            }
            let opened = self.open(inode, true, false).await?;
            let handle = self.handle(opened.handle)?;
            let outcome = self.cuts.truncate(&handle.file, size, &changes).await;
            let released = self.release(opened.handle).await;
            let attr = outcome?;
            return released.map(|()| attr);
        }
        if let (true, Some(mtime)) = (self.link.routes.options.keeps_times, changes.only_mtime()) {
            return self.set_mtime(inode, mtime, &changes).await;
        }
        self.set_others(inode, &changes).await
    }

    /// Sets the time of the last change. The user of an exclusive mount does this after many writes, renames and
    /// removals, so the time is sent with the file's next report, or not at all if the service has it already.
    async fn set_mtime(&self, inode: InodeId, mtime: i64, changes: &SetAttrs) -> Result<Attr, ClientError> {
        let attr = self.getattr(inode).await?;
        if attr.mtime == mtime {
            return Ok(attr);
        }
        let Some(file) = self.mount.files.file(inode) else { return self.set_others(inode, changes).await };
        loop {
            let changed = file.changed.wait();
            {
                let mut state = file.lock();
                if state.mode() != Mode::Alone || state.write_handles == 0 || state.fenced {
                    break;
                }
                // Reports with different times may overtake each other, so wait for those in flight.
                if state.growing == 0 {
                    state.set_mtime(mtime);
                    let (stable, attr) = (state.is_stable(), state.view(attr));
                    drop(state);
                    if stable {
                        self.mount.unstable.flow.queue_report(&file);
                    }
                    return Ok(attr);
                }
            }
            changed.await;
        }
        self.set_others(inode, changes).await
    }

    /// Changes attributes other than the size.
    async fn set_others(&self, inode: InodeId, changes: &SetAttrs) -> Result<Attr, ClientError> {
        let Some(file) = self.mount.files.file(inode).filter(|_| changes.mtime.is_some()) else {
            let attr = self.io.change_attr(inode, changes, 0).await?;
            return Ok(self.view(attr));
        };
        // A report of the old time that arrives later would undo the new one, so pause reports.
        let _turn = file.turn.lock().await;
        let _paused = self.io.pause_writeback(&file).await;
        let attr = self.io.change_attr(inode, changes, 0).await?;
        let mut state = file.lock();
        state.set_durable_mtime(attr.mtime);
        Ok(state.view(attr))
    }

    /// Makes a file, pipe, socket or device, and does not open it.
    pub async fn make_node(
        &self,
        parent: InodeId,
        name: &[u8],
        kind: FileKind,
        owner: Owner,
        rdev: u32,
    ) -> Result<Linked, ClientError> {
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        let near = if kind == FileKind::File { self.link.near_groups() } else { Vec::new() };
        let request =
            |caller| Create { caller, volume, parent, name, kind, owner, rdev, open: false, near, now };
        let made = self.link.change(request).await?;
        Ok(Linked { attr: made.attr, parent: made.parent })
    }

    /// Makes a directory.
    pub async fn mkdir(&self, parent: InodeId, name: &[u8], owner: Owner) -> Result<Linked, ClientError> {
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        self.link.change(|caller| Mkdir { caller, volume, parent, name, owner, now }).await
    }

    /// Makes a symbolic link to `target`.
    pub async fn symlink(
        &self,
        parent: InodeId,
        name: &[u8],
        target: &[u8],
        owner: Owner,
    ) -> Result<Linked, ClientError> {
        let (volume, now) = (self.link.routes.volume, self.link.world.wall());
        let (name, target) = (name.to_vec(), target.to_vec());
        self.link.change(|caller| Symlink { caller, volume, parent, name, target, owner, now }).await
    }

    /// The target of a symbolic link.
    pub async fn readlink(&self, inode: InodeId) -> Result<Vec<u8>, ClientError> {
        let LinkTarget { target } =
            self.link.ask(&ReadLink { volume: self.link.routes.volume, inode }).await?;
        Ok(target)
    }

    /// Gives a file another name.
    pub async fn link(&self, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Linked, ClientError> {
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        let request = |caller| Link { caller, volume, inode, parent, name, now };
        let Linked { attr, parent } = self.link.change(request).await?;
        Ok(Linked { attr: self.view(attr), parent })
    }

    /// Removes a name of a file.
    pub async fn unlink(&self, parent: InodeId, name: &[u8]) -> Result<Unlinked, ClientError> {
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        self.link.change(|caller| Unlink { caller, volume, parent, name, now }).await
    }

    /// Removes an empty directory. If `meant` is given and the name is that of another inode, this is refused with
    /// `Stale`.
    pub async fn rmdir(
        &self,
        parent: InodeId,
        name: &[u8],
        meant: Option<InodeId>,
    ) -> Result<Unlinked, ClientError> {
        let (volume, name, now) = (self.link.routes.volume, name.to_vec(), self.link.world.wall());
        self.link.change(|caller| Rmdir { caller, volume, parent, name, meant, now }).await
    }

    /// Moves a name. If `meant` is given and the new name is that of another inode, this is refused with `Stale`.
    pub async fn rename(
        &self,
        from: (InodeId, &[u8]),
        to: (InodeId, &[u8]),
        how: RenameHow,
        meant: Option<InodeId>,
    ) -> Result<Renamed, ClientError> {
        let (volume, now) = (self.link.routes.volume, self.link.world.wall());
        let (from_name, to_name) = (from.1.to_vec(), to.1.to_vec());
        let (from, to) = (from.0, to.0);
        let request = |caller| Rename { caller, volume, from, from_name, to, to_name, how, meant, now };
        self.link.change(request).await
    }

    /// Up to `count` entries of a directory after `cookie` (0 from the start), without `.` and `..`.
    pub async fn readdir(&self, inode: InodeId, cookie: u64, count: u32) -> Result<DirEntries, ClientError> {
        let request = ReadDir { volume: self.link.routes.volume, inode, cookie, count };
        Ok(self.view_all(self.link.ask(&request).await?))
    }

    /// Up to `count` entries of a directory from a name on, in the order of listing. The first is that of the name.
    pub async fn readdir_from(
        &self,
        parent: InodeId,
        name: &[u8],
        count: u32,
    ) -> Result<DirEntries, ClientError> {
        let (volume, name) = (self.link.routes.volume, name.to_vec());
        Ok(self.view_all(self.link.ask(&ReadDirFrom { volume, parent, name, count }).await?))
    }

    fn view_all(&self, mut listed: DirEntries) -> DirEntries {
        for entry in &mut listed.entries {
            entry.attr = self.view(entry.attr.clone());
        }
        listed
    }

    /// The volume's space.
    pub async fn statfs(&self) -> Result<Space, ClientError> {
        self.link.ask(&StatFs { volume: self.link.routes.volume }).await
    }
}
