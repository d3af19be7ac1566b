//! Names are made, removed and renamed. Everything that is kept about names hears of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use fuser::{Errno, RenameFlags};
use types::InodeId;
use types::limits::SYMLINK_MAX;
use types::messages::names::{Attr, Owner, RenameHow, Renamed};

use super::answers::rename_how;
use super::attributes::kind_of_mode;
use super::gate::{Gate, name};
use super::retries::Asker;

impl Gate {
    /// Makes a file, pipe, socket or device with a mode, an owner and a device number.
    pub(super) async fn mknod_in(
        &self,
        asker: Asker,
        parent: InodeId,
        entry: &OsStr,
        (mode, owner, rdev): (u32, Owner, u32),
    ) -> Result<Attr, Errno> {
        let make = async || {
            let name = name(entry)?;
            let kind = kind_of_mode(mode).ok_or(Errno::EINVAL)?;
            self.ask_in(parent, async |session| session.make_node(parent, name, kind, owner, rdev).await)
                .await
        };
        let made = make().await.map(|made| made.attr);
        self.file_was_made(asker, parent, entry, made)
    }

    /// Makes a directory.
    pub(super) async fn mkdir_in(
        &self,
        asker: Asker,
        parent: InodeId,
        entry: &OsStr,
        owner: Owner,
    ) -> Result<Attr, Errno> {
        let make = async || {
            let name = name(entry)?;
            self.ask_in(parent, async |session| session.mkdir(parent, name, owner).await).await
        };
        let made = make().await.map(|made| made.attr);
        match &made {
            Ok(attr) => self.told_name(parent, entry.as_bytes(), Some(attr)),
            Err(_) => self.names_ahead.name_told(parent, entry.as_bytes()),
        }
        made.map_err(|errno| self.error_in(asker, parent, errno))
    }

    /// Makes a symbolic link to a target.
    pub(super) async fn symlink_in(
        &self,
        asker: Asker,
        parent: InodeId,
        entry: &OsStr,
        (target, owner): (&[u8], Owner),
    ) -> Result<Attr, Errno> {
        let make = async || {
            let name = name(entry)?;
            if target.len() > SYMLINK_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            self.ask_in(parent, async |session| session.symlink(parent, name, target, owner).await).await
        };
        let made = make().await.map(|made| made.attr);
        self.names_ahead.name_told(parent, entry.as_bytes());
        made.map_err(|errno| self.error_in(asker, parent, errno))
    }

    /// Gives a file one more name.
    pub(super) async fn link_in(
        &self,
        asker: Asker,
        inode: InodeId,
        (parent, entry): (InodeId, &OsStr),
    ) -> Result<Attr, Errno> {
        let make = async || {
            let name = name(entry)?;
            self.ask_in(parent, async |session| session.link(inode, parent, name).await).await
        };
        let made = make().await.map(|made| made.attr);
        self.names_ahead.file_told(inode);
        self.file_was_made(asker, parent, entry, made)
    }

    /// A name of a file was made, or not.
    fn file_was_made(
        &self,
        asker: Asker,
        parent: InodeId,
        entry: &OsStr,
        made: Result<Attr, Errno>,
    ) -> Result<Attr, Errno> {
        self.names_ahead.name_told(parent, entry.as_bytes());
        if let Ok(attr) = &made {
            self.told_file_name(parent, entry.as_bytes(), attr);
        }
        made.map_err(|errno| self.error_in(asker, parent, errno))
    }

    /// Removes a name of a file.
    pub(super) async fn unlink_in(&self, thread: u32, parent: InodeId, entry: &OsStr) -> Result<(), Errno> {
        let remove = async || {
            let name = name(entry)?;
            self.ask_in(parent, async |session| session.unlink(parent, name).await).await
        };
        let gone = remove().await;
        self.names_ahead.name_told(parent, entry.as_bytes());
        if let Ok(gone) = &gone
            && !self.mount.is_exclusive()
        {
            self.names_ahead.removed(thread, parent, Instant::now());
            self.kernel_cache.removed(gone.inode);
            self.file_names.removed(parent, entry.as_bytes(), gone.inode);
        }
        gone.map(|_| ())
    }

    /// Removes a directory.
    pub(super) async fn rmdir_in(&self, asker: Asker, parent: InodeId, entry: &OsStr) -> Result<(), Errno> {
        let remove = async || {
            let name = name(entry)?;
            let meant = self.meant(asker, parent, name)?;
            self.ask_in(parent, async |session| session.rmdir(parent, name, meant).await).await
        };
        let gone = remove().await;
        self.names_ahead.name_told(parent, entry.as_bytes());
        match &gone {
            Ok(gone) => {
                self.dir_names.forget(parent, entry.as_bytes());
                self.dir_attrs.changed(gone.inode);
            }
            // The name may be gone in spite of the error.
            Err(errno) => {
                self.looks_again(asker, parent, *errno);
                self.dir_attrs.some_changed();
            }
        }
        gone.map(|_| ())
    }

    /// Renames an entry of a directory, and tells all that is kept about names.
    pub(super) async fn rename_in(
        &self,
        asker: Asker,
        (from, entry): (InodeId, &OsStr),
        (to, new_entry): (InodeId, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let question = self.dir_attrs.question(Instant::now());
        let rename = async || {
            let how = rename_how(flags)?;
            let (name, new_name) = (name(entry)?, name(new_entry)?);
            // An exchange makes nothing dead.
            let meant = match how {
                RenameHow::Replace => self.meant(asker, to, new_name)?,
                _ => None,
            };
            let moved = self
                .ask(async |session| session.rename((from, name), (to, new_name), how, meant).await)
                .await?;
            self.dir_names.moved((from, name), (to, new_name), how == RenameHow::Exchange);
            self.file_names.moved((from, name), (to, new_name), moved.moved);
            if let Some(exchanged) = moved.exchanged {
                self.file_names.moved((to, new_name), (from, name), exchanged);
            }
            Ok(moved)
        };
        let moved = rename().await.inspect_err(|errno| self.looks_again(asker, to, *errno));
        self.names_ahead.name_told(from, entry.as_bytes());
        self.names_ahead.name_told(to, new_entry.as_bytes());
        match &moved {
            Ok(Renamed { from, to, directories: false, .. }) => {
                [from, to].into_iter().for_each(|attr| self.dir_attrs.changed_to(question, attr));
            }
            // The inode numbers of the directories that were moved or replaced are not known.
            _ => self.dir_attrs.some_changed(),
        }
        moved.map(|_| ())
    }
}
