//! Finding, making, moving and removing names.

use client::{ClientError, SetAttrs};
use types::limits::SYMLINK_MAX;
use types::messages::names::{Attr, FileKind, Linked, Owner, RenameHow, Renamed, Unlinked};
use types::{InodeId, Refusal};

use crate::nfs::access::{Caller, SEARCH, WRITE};
use crate::nfs::gate::Gate;
use crate::nfs::wire::{
    CreateHow, DirOpArgs, NewAttributes, Results, SetTime, Status, Writer, device_of_numbers,
};

/// Mode of a file that is created without one.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o755;
/// Permission bit of a directory: new inodes in it get its group.
const SET_GROUP: u32 = 0o2000;
/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

impl Gate {
    /// A directory in which the caller has the permissions `wanted`.
    async fn directory(&self, caller: &Caller, handle: &[u8], wanted: u32) -> Result<Attr, Status> {
        let attr = self.attr_of(handle).await?;
        caller.check_directory(&attr, wanted)?;
        Ok(attr)
    }

    /// The attributes of a name in a directory; `None` if there is no such name.
    async fn find(&self, directory: InodeId, name: &[u8]) -> Result<Option<Attr>, Status> {
        match self.session.lookup(directory, name).await {
            Ok(attr) => Ok(Some(attr)),
            Err(ClientError::Refused(Refusal::NotFound)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn lookup(&self, caller: &Caller, at: DirOpArgs<'_>) -> Result<Results, Status> {
        let directory = self.directory(caller, at.directory, SEARCH).await?;
        let found = self.step(&directory, at.name).await?;
        let mut writer = Writer::default();
        writer.opaque(&self.shared.file_system.handle(found.inode));
        self.attributes().put_post_op_attr(&mut writer, Some(&found));
        self.attributes().put_post_op_attr(&mut writer, Some(&directory));
        Ok(writer.into())
    }

    /// The attributes of a name in a directory; the name may be `.` or `..`.
    pub(in crate::nfs) async fn step(&self, directory: &Attr, name: &[u8]) -> Result<Attr, Status> {
        match name {
            b"." => Ok(directory.clone()),
            b".." => {
                let listed = self.session.readdir(directory.inode, 0, 1).await?;
                self.attr(listed.parent).await
            }
            _ => Ok(self.session.lookup(directory.inode, name).await?),
        }
    }

    /// Owner and mode of a new inode in a directory.
    fn owner(&self, caller: &Caller, directory: &Attr, new: &NewAttributes, mode: u32) -> Owner {
        let (uid, gid) = caller.owner(new);
        let mut mode = new.mode.unwrap_or(mode) & 0o7777;
        if directory.mode & SET_GROUP != 0 && !caller.may_setgid(directory.gid) {
            // The directory's group is inherited, and a caller who is not in it must not set the set-group bit for it.
            mode &= !SET_GROUP;
        }
        Owner { uid, gid, mode }
    }

    /// The results of a procedure that creates an inode.
    fn made(&self, made: &Attr, directory: Option<&Attr>) -> Results {
        let mut writer = Writer::default();
        writer.bool(true).opaque(&self.shared.file_system.handle(made.inode));
        self.attributes().put_post_op_attr(&mut writer, Some(made));
        self.attributes().put_wcc_data(&mut writer, directory);
        writer.into()
    }

    /// The results of a procedure that only changes a directory.
    fn changed(&self, directory: &Attr) -> Results {
        let mut writer = Writer::default();
        self.attributes().put_wcc_data(&mut writer, Some(directory));
        writer.into()
    }

    pub(super) async fn create(
        &self,
        caller: &Caller,
        at: DirOpArgs<'_>,
        how: CreateHow,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, SEARCH).await?;
        let made = match caller.check_directory(&directory, WRITE) {
            Ok(()) => self.create_new(caller, &directory, at.name, how).await?,
            // An existing file can be used even without permission to create one.
            Err(refused) => self.find(directory.inode, at.name).await?.map_or(Err(refused), |_| Ok(None))?,
        };
        if let Some((attr, parent)) = made {
            return Ok(self.made(&attr, parent.as_ref()));
        }
        let there = self.find(directory.inode, at.name).await?.ok_or(Status::Jukebox)?;
        let used = self.use_old(caller, there, how).await?;
        Ok(self.made(&used, self.attr_after(directory.inode).await.as_ref()))
    }

    /// Makes a file; returns it with the directory's new attributes, or `None` if there is a file already.
    async fn create_new(
        &self,
        caller: &Caller,
        directory: &Attr,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Option<(Attr, Option<Attr>)>, Status> {
        let new = match how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new,
            CreateHow::Exclusive(_) => NewAttributes::default(),
        };
        let owner = self.owner(caller, directory, &new, FILE_MODE);
        let opened = match self.session.create(directory.inode, name, owner).await {
            Ok(opened) => opened,
            Err(ClientError::Refused(Refusal::Exists)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (now, inode) = (self.world.now(), opened.attr.inode);
        self.shared.files.adopt(&self.session, &opened, now, &self.shared.verifier).await;
        let rest = match how {
            CreateHow::Exclusive(verifier) => {
                let (atime, mtime) = times_of(verifier);
                SetAttrs { atime: Some(atime), mtime: Some(mtime), ..SetAttrs::default() }
            }
            _ => {
                let size = new.size.filter(|size| *size > 0);
                self.changes(&NewAttributes {
                    size,
                    atime: new.atime,
                    mtime: new.mtime,
                    ..Default::default()
                })
            }
        };
        let attr = match rest == SetAttrs::default() {
            true => opened.attr,
            false => self.session.setattr(inode, rest).await?,
        };
        Ok(Some((attr, opened.parent)))
    }

    /// Uses an existing file in place of a new one, or refuses.
    async fn use_old(&self, caller: &Caller, there: Attr, how: CreateHow) -> Result<Attr, Status> {
        if there.kind != FileKind::File {
            return Err(Status::Exists);
        }
        match how {
            CreateHow::Guarded(_) => Err(Status::Exists),
            CreateHow::Exclusive(verifier) => {
                let same = (there.atime, there.mtime) == times_of(verifier) && there.size == 0;
                if same { Ok(there) } else { Err(Status::Exists) }
            }
            CreateHow::Unchecked(NewAttributes { size: None, .. }) => Ok(there),
            CreateHow::Unchecked(NewAttributes { size, .. }) => {
                let new = NewAttributes { size, ..NewAttributes::default() };
                let granted = caller.check_change(&there, &new)?;
                Ok(self.session.setattr(there.inode, self.changes(&granted)).await?)
            }
        }
    }

    pub(super) async fn make_directory(
        &self,
        caller: &Caller,
        at: DirOpArgs<'_>,
        new: NewAttributes,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        let owner = self.owner(caller, &directory, &new, DIRECTORY_MODE);
        let made = self.session.mkdir(directory.inode, at.name, owner).await?;
        let attr = self.set_times(made.attr, &new).await?;
        Ok(self.made(&attr, Some(&made.parent)))
    }

    /// Sets the times that the client has asked for on a new inode.
    async fn set_times(&self, made: Attr, new: &NewAttributes) -> Result<Attr, Status> {
        if new.atime == SetTime::Keep && new.mtime == SetTime::Keep {
            return Ok(made);
        }
        let times = NewAttributes { atime: new.atime, mtime: new.mtime, ..NewAttributes::default() };
        Ok(self.session.setattr(made.inode, self.changes(&times)).await?)
    }

    pub(super) async fn symlink(
        &self,
        caller: &Caller,
        at: DirOpArgs<'_>,
        new: NewAttributes,
        target: &[u8],
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        if target.len() > SYMLINK_MAX {
            return Err(Status::NameTooLong);
        }
        let owner = Owner { mode: 0o777, ..self.owner(caller, &directory, &new, 0o777) };
        let made = self.session.symlink(directory.inode, at.name, target, owner).await?;
        Ok(self.made(&made.attr, Some(&made.parent)))
    }

    pub(super) async fn make_node(
        &self,
        caller: &Caller,
        at: DirOpArgs<'_>,
        kind: FileKind,
        new: NewAttributes,
        device: (u32, u32),
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && caller.uid != 0 {
            return Err(Status::NotOwner);
        }
        let rdev = device_of_numbers(device).ok_or(Status::Invalid)?;
        let owner = self.owner(caller, &directory, &new, FILE_MODE);
        let made = self.session.make_node(directory.inode, at.name, kind, owner, rdev).await?;
        let attr = self.set_times(made.attr, &new).await?;
        Ok(self.made(&attr, Some(&made.parent)))
    }

    pub(super) async fn remove(&self, caller: &Caller, at: DirOpArgs<'_>) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        let named = self.find(directory.inode, at.name).await?.ok_or(Status::NoEntry)?;
        caller.check_sticky(&directory, &named)?;
        let Unlinked { parent, .. } = self.session.unlink(directory.inode, at.name).await?;
        self.forget(&named).await;
        Ok(self.changed(&parent))
    }

    /// A name of a file was removed. After the last one, the gate need not keep the file open.
    async fn forget(&self, named: &Attr) {
        if named.kind == FileKind::File && named.links <= 1 {
            self.shared.files.forget(&self.session, named.inode).await;
        }
    }

    pub(super) async fn remove_directory(
        &self,
        caller: &Caller,
        at: DirOpArgs<'_>,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        let named = self.find(directory.inode, at.name).await?.ok_or(Status::NoEntry)?;
        caller.check_sticky(&directory, &named)?;
        let Unlinked { parent, .. } = self.session.rmdir(directory.inode, at.name, None).await?;
        Ok(self.changed(&parent))
    }

    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: DirOpArgs<'_>,
        to: DirOpArgs<'_>,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let old = self.directory(caller, from.directory, WRITE | SEARCH).await?;
        let new = match from.directory == to.directory {
            true => old.clone(),
            false => self.directory(caller, to.directory, WRITE | SEARCH).await?,
        };
        let moved = self.find(old.inode, from.name).await?.ok_or(Status::NoEntry)?;
        caller.check_sticky(&old, &moved)?;
        if moved.kind == FileKind::Directory && old.inode != new.inode && !caller.may(&moved, WRITE) {
            // Moving a directory changes its `..`.
            return Err(Status::Access);
        }
        let replaced = self.find(new.inode, to.name).await?;
        if let Some(replaced) = &replaced {
            caller.check_sticky(&new, replaced)?;
        }
        let (here, there) = ((old.inode, from.name), (new.inode, to.name));
        let Renamed { from, to, .. } = self.session.rename(here, there, RenameHow::Replace, None).await?;
        if let Some(replaced) = replaced.filter(|replaced| replaced.inode != moved.inode) {
            self.forget(&replaced).await;
        }
        let mut writer = Writer::default();
        self.attributes().put_wcc_data(&mut writer, Some(&from));
        self.attributes().put_wcc_data(&mut writer, Some(&to));
        Ok(writer.into())
    }

    pub(super) async fn link(
        &self,
        caller: &Caller,
        file: &[u8],
        at: DirOpArgs<'_>,
    ) -> Result<Results, Status> {
        self.check_writable()?;
        let named = self.attr_of(file).await?;
        let directory = self.directory(caller, at.directory, WRITE | SEARCH).await?;
        let Linked { attr, parent } = self.session.link(named.inode, directory.inode, at.name).await?;
        self.shared.files.cache_attr(&attr, self.world.now());
        let mut writer = Writer::default();
        self.attributes().put_post_op_attr(&mut writer, Some(&attr));
        self.attributes().put_wcc_data(&mut writer, Some(&parent));
        Ok(writer.into())
    }
}

/// The times of a new file in which the number of an exclusive creation is stored until the client sets others: no
/// other attribute has room for it.
fn times_of(verifier: u64) -> (i64, i64) {
    let second = |half: u64| half as u32;
    (i64::from(second(verifier >> 32)) * SECOND, i64::from(second(verifier)) * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exclusive_creations_are_told_apart(a: u64, b: u64) {
            prop_assert_eq!(times_of(a) == times_of(b), a == b);
        }
    }
}
