//! Permissions, by the rules of POSIX. For FUSE the kernel checks them.

use types::messages::names::{Attr, FileKind};

use super::wire::{Credential, NewAttributes, SetTime, Status};

/// User and group id of `nobody`.
pub(super) const NOBODY: u32 = 65534;

/// Permissions to read, write, and execute or search.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;

/// Bits of the procedure ACCESS. Source: RFC 1813, 3.3.4.
const ACCESS_READ: u32 = 0x01;
const ACCESS_LOOKUP: u32 = 0x02;
const ACCESS_MODIFY: u32 = 0x04;
const ACCESS_EXTEND: u32 = 0x08;
const ACCESS_DELETE: u32 = 0x10;
const ACCESS_EXECUTE: u32 = 0x20;

/// The user of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    groups: Vec<u32>,
}

impl Caller {
    /// The caller that a client names; with `root_squash`, root becomes nobody.
    pub(super) fn new(credential: &Credential, root_squash: bool) -> Caller {
        let Credential::Sys(uid, gid, groups) = credential else {
            return Caller { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
        };
        let squash = |id: u32| if root_squash && id == 0 { NOBODY } else { id };
        if squash(*uid) != *uid {
            return Caller { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
        }
        Caller { uid: *uid, gid: squash(*gid), groups: groups.iter().map(|group| squash(*group)).collect() }
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn owns(&self, attr: &Attr) -> bool {
        self.is_root() || self.uid == attr.uid
    }

    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether this caller may set the setgid bit on a file of this group.
    pub(super) fn may_setgid(&self, gid: u32) -> bool {
        self.is_root() || self.is_in(gid)
    }

    /// Whether all of `wanted` is allowed.
    pub(super) fn may(&self, attr: &Attr, wanted: u32) -> bool {
        if self.is_root() {
            let any_execute = attr.mode & 0o111 != 0 || attr.kind == FileKind::Directory;
            return wanted & SEARCH == 0 || any_execute;
        }
        let shift = if self.uid == attr.uid {
            6
        } else if self.is_in(attr.gid) {
            3
        } else {
            0
        };
        attr.mode >> shift & wanted == wanted
    }

    /// Checks permissions in a directory.
    pub(super) fn check_directory(&self, directory: &Attr, wanted: u32) -> Result<(), Status> {
        if directory.kind != FileKind::Directory {
            return Err(Status::NotDirectory);
        }
        if self.may(directory, wanted) { Ok(()) } else { Err(Status::Access) }
    }

    /// Checks permission to read or write a file. Its owner always may, because the client checked the mode when the
    /// file was opened. A caller that may execute a file may also read it.
    pub(super) fn check_file(&self, file: &Attr, wanted: u32) -> Result<(), Status> {
        match file.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Status::IsDirectory),
            _ => return Err(Status::Invalid),
        }
        let allowed = self.owns(file) || self.may(file, wanted);
        let runs = wanted == READ && self.may(file, SEARCH);
        if allowed || runs { Ok(()) } else { Err(Status::Access) }
    }

    /// Checks the sticky bit before a name is removed from a directory.
    pub(super) fn check_sticky(&self, directory: &Attr, named: &Attr) -> Result<(), Status> {
        let kept = directory.mode & STICKY != 0 && !self.owns(directory) && !self.owns(named);
        if kept { Err(Status::NotOwner) } else { Ok(()) }
    }

    /// The allowed part of `wanted`, as bits of ACCESS.
    pub(super) fn allowed(&self, attr: &Attr, wanted: u32, read_only: bool) -> u32 {
        let mut bits = 0;
        if self.may(attr, READ) {
            bits |= ACCESS_READ;
        }
        if attr.kind == FileKind::Directory {
            if self.may(attr, SEARCH) {
                bits |= ACCESS_LOOKUP;
            }
            if !read_only && self.may(attr, WRITE | SEARCH) {
                bits |= ACCESS_MODIFY | ACCESS_EXTEND | ACCESS_DELETE;
            }
        } else {
            if self.may(attr, SEARCH) {
                bits |= ACCESS_EXECUTE;
            }
            // Data of a device or pipe belong to the client, even if the gate is read-only.
            if (!read_only || attr.kind != FileKind::File) && self.may(attr, WRITE) {
                bits |= ACCESS_MODIFY | ACCESS_EXTEND;
            }
        }
        bits & wanted
    }

    /// Checks whether this caller may set attributes. Returns the attributes to set, without setuid and setgid bits
    /// that a change of owner, group or contents clears.
    pub(super) fn check_change(&self, attr: &Attr, new: &NewAttributes) -> Result<NewAttributes, Status> {
        let mut granted = *new;
        let another_owner = new.uid.is_some_and(|uid| uid != attr.uid);
        let another_group = new.gid.is_some_and(|gid| gid != attr.gid);
        let given_time = matches!(new.atime, SetTime::To(_)) || matches!(new.mtime, SetTime::To(_));
        if !self.owns(attr) && (new.mode.is_some() || new.uid.is_some() || new.gid.is_some() || given_time) {
            return Err(Status::NotOwner);
        }
        if !self.is_root()
            && (another_owner || (another_group && !new.gid.is_some_and(|gid| self.is_in(gid))))
        {
            return Err(Status::NotOwner);
        }
        let touched = new.atime == SetTime::Now || new.mtime == SetTime::Now;
        if touched && !self.owns(attr) && !self.may(attr, WRITE) {
            return Err(Status::Access);
        }
        if new.size.is_some() {
            self.check_file(attr, WRITE)?;
        }
        let group = if another_group { new.gid.unwrap_or(attr.gid) } else { attr.gid };
        if let Some(mode) = granted.mode.as_mut() {
            if !self.is_root() && attr.kind != FileKind::Directory && !self.is_in(group) {
                *mode &= !SET_GROUP;
            }
        } else if !self.is_root() && (new.uid.is_some() || new.gid.is_some() || new.size.is_some()) {
            granted.mode = without_rights(attr);
        }
        Ok(granted)
    }

    /// The new mode of a file after a write by this caller, if it changes.
    pub(super) fn mode_after_write(&self, attr: &Attr) -> Option<u32> {
        if self.is_root() { None } else { without_rights(attr) }
    }

    /// Owner and group of a new inode by this caller, which may ask for others.
    pub(super) fn owner(&self, new: &NewAttributes) -> (u32, u32) {
        // As other servers do, ignore ids that only root may choose.
        match self.is_root() {
            true => (new.uid.unwrap_or(self.uid), new.gid.unwrap_or(self.gid)),
            false => (self.uid, new.gid.filter(|gid| self.is_in(*gid)).unwrap_or(self.gid)),
        }
    }
}

/// The mode of a file without setuid and setgid bits, if it has any.
fn without_rights(attr: &Attr) -> Option<u32> {
    let mut mode = attr.mode & 0o7777;
    if attr.kind == FileKind::File {
        mode &= !SET_USER;
        // Without group execute permission, the setgid bit has another meaning (mandatory locking).
        if mode & GROUP_EXECUTE != 0 {
            mode &= !SET_GROUP;
        }
    }
    (mode != attr.mode & 0o7777).then_some(mode)
}

#[cfg(test)]
mod tests;
