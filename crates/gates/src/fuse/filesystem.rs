//! Translates every request of the kernel. Each is carried out inline, to its end.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Instant, SystemTime};

use client::{Opened, Seek, SetAttrs};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use types::InodeId;
use types::limits::{BLOCK, NAME_MAX, SYMLINK_MAX};
use types::messages::names::{Attr, FileKind, RenameHow, Renamed};

use super::attributes::{directory, kind_of_mode, nanoseconds};
use super::dot_shoal;
use super::gate::{GENERATION, Gate, name, owner, waited_since, writes};

/// The user of whose changes the kernel says nothing about set-user-id bits.
const ROOT: u32 = 0;

impl Gate {
    /// Resolves an inode number from an old file handle, or the parent of that inode. The kernel has dropped the
    /// inode or never knew it. Numbers of removed inodes are never reused.
    fn lookup_handle(&self, inode: InodeId, parent: bool) -> Result<Attr, Errno> {
        let inode = if parent {
            // Only the parent in the answer is needed, not the entries.
            self.ask(async |session| session.readdir(inode, u64::MAX - 1, 1).await)?.parent
        } else {
            inode
        };
        let attr = self.ask_attr(async |session| session.getattr(inode).await)?;
        // An inode without a name exists only for those who have it open, and the kernel knows these.
        if attr.links == 0 { Err(Errno::ESTALE) } else { Ok(attr) }
    }

    /// The first place of the kind `what` from `offset` on.
    fn seek(&self, inode: InodeId, handle: FileHandle, offset: u64, what: Seek) -> Result<i64, Errno> {
        // The kernel may still have dirty pages: of memory maps, or of any write on an exclusive mount.
        if self.mount.is_written(inode)
            && let Some(invalidator) = self.invalidator.get()
        {
            invalidator.pages(inode);
        }
        let found = self.ask(async |session| session.seek(handle.0, offset, what).await)?;
        found.and_then(|found| i64::try_from(found).ok()).ok_or(Errno::ENXIO)
    }

    fn reply_open(&self, answer: Result<Opened, Errno>, write: bool, reply: ReplyOpen) {
        match answer {
            Ok(opened) => {
                let flags = self.opened(&opened.attr, write);
                reply.opened(FileHandle(opened.handle), flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn reply_done(answer: Result<(), Errno>, reply: ReplyEmpty) {
        match answer {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }
}

impl Filesystem for Gate {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::mount::agree(config, self.mount.is_exclusive())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        if let Some(inode) = dot_shoal::lookup(self.inode(parent) == self.mount.root(), parent, entry) {
            return reply.entry(&dot_shoal::TTL, &dot_shoal::attr(inode), GENERATION);
        }
        let parent = self.inode(parent);
        if let b"." | b".." = entry.as_bytes() {
            return self.reply_entry(self.lookup_handle(parent, entry.as_bytes() == b".."), reply);
        }
        let found = name(entry).and_then(|name| self.lookup_ahead(request.pid(), parent, name));
        self.told_name(parent, entry.as_bytes(), found.as_ref().map(|found| &found.attr).ok());
        let found = found.map_err(|errno| self.error_in(request.pid(), parent, errno));
        if found.is_err() {
            self.retries.found_none(request.pid());
        }
        self.reply_found(found, reply);
    }

    fn forget(&self, _request: &Request, inode: INodeNo, _lookups: u64) {
        self.special.forget(self.inode(inode));
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        if dot_shoal::is_ours(inode) {
            return reply.attr(&dot_shoal::TTL, &dot_shoal::attr(inode));
        }
        let inode = self.inode(inode);
        if let Some((attr, ttl)) = self.dir_attrs.known(inode, Instant::now()) {
            let (told, full) = self.told(&self.mount.with_access(attr));
            return reply.attr(if self.mount.is_exclusive() { &full } else { &ttl }, &told);
        }
        let asked = self.ask_attr(async |session| session.getattr(inode).await);
        if asked.is_err() {
            self.names_ahead.file_told(inode);
        }
        if asked == Err(Errno::ESTALE)
            && let Some(removed) = self.removed(inode)
        {
            return self.reply_attr(Ok(removed), reply);
        }
        self.reply_asked(asked, request.pid(), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if dot_shoal::is_ours(inode) {
            return match dot_shoal::set_attr(inode, mode.is_some() || uid.is_some() || gid.is_some()) {
                Ok(attr) => reply.attr(&dot_shoal::TTL, &attr),
                Err(errno) => reply.error(errno),
            };
        }
        let changes = SetAttrs {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(nanoseconds),
            mtime: mtime.map(nanoseconds),
            // Only a kernel that keeps the times itself sends this.
            ctime: ctime.map(|time| nanoseconds(TimeOrNow::SpecificTime(time))),
        };
        let (gate, inode) = (self.clone(), self.inode(inode));
        let change = move || {
            let changed = gate.ask(async |session| session.setattr(inode, changes).await);
            gate.names_ahead.file_told(inode);
            if !changed.as_ref().is_ok_and(|attr| attr.kind != FileKind::Directory) {
                gate.dir_attrs.changed(inode);
            }
            let changed = changed.or_else(|errno| match errno {
                Errno::ESTALE => gate.change_removed(inode, &changes),
                _ => Err(errno),
            });
            gate.reply_changed(changed, reply);
        };
        // A new size needs an open for writing, which may wait for another client.
        if size.is_some() { self.spare.run(change) } else { change() }
    }

    fn readlink(&self, _request: &Request, inode: INodeNo, reply: ReplyData) {
        let inode = self.inode(inode);
        match self.ask(async |session| session.readlink(inode).await) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let parent = self.inode(parent);
        let owner = owner(request, mode);
        let made = name(entry).and_then(|name| {
            let kind = kind_of_mode(mode).ok_or(Errno::EINVAL)?;
            self.ask_in(parent, async |session| session.make_node(parent, name, kind, owner, rdev).await)
        });
        self.names_ahead.name_told(parent, entry.as_bytes());
        if let Ok(made) = &made {
            self.told_file_name(parent, entry.as_bytes(), &made.attr);
        }
        let made = made.map_err(|errno| self.error_in(request.pid(), parent, errno));
        self.reply_entry(made.map(|made| made.attr), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let parent = self.inode(parent);
        let owner = owner(request, mode);
        let made = name(entry)
            .and_then(|name| self.ask_in(parent, async |session| session.mkdir(parent, name, owner).await));
        match &made {
            Ok(made) => self.told_name(parent, entry.as_bytes(), Some(&made.attr)),
            Err(_) => self.names_ahead.name_told(parent, entry.as_bytes()),
        }
        let made = made.map_err(|errno| self.error_in(request.pid(), parent, errno));
        self.reply_entry(made.map(|made| made.attr), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let parent = self.inode(parent);
        let gone = name(entry)
            .and_then(|name| self.ask_in(parent, async |session| session.unlink(parent, name).await));
        self.names_ahead.name_told(parent, entry.as_bytes());
        if let Ok(gone) = &gone
            && !self.mount.is_exclusive()
        {
            self.names_ahead.removed(request.pid(), parent, Instant::now());
            self.kernel_cache.removed(gone.inode);
            self.file_names.removed(parent, entry.as_bytes(), gone.inode);
        }
        Gate::reply_done(gone.map(|_| ()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let parent = self.inode(parent);
        let gone = name(entry).and_then(|name| {
            let meant = self.meant(request.pid(), parent, name)?;
            self.ask_in(parent, async |session| session.rmdir(parent, name, meant).await)
        });
        self.names_ahead.name_told(parent, entry.as_bytes());
        match &gone {
            Ok(gone) => {
                self.dir_names.forget(parent, entry.as_bytes());
                self.dir_attrs.changed(gone.inode);
            }
            // The name may be gone in spite of the error.
            Err(_) => self.dir_attrs.some_changed(),
        }
        Gate::reply_done(gone.map(|_| ()), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, target: &Path, reply: ReplyEntry) {
        let parent = self.inode(parent);
        let owner = owner(request, 0o777);
        let target = target.as_os_str().as_bytes();
        let made = name(entry).and_then(|name| {
            if target.len() > SYMLINK_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            self.ask_in(parent, async |session| session.symlink(parent, name, target, owner).await)
        });
        self.names_ahead.name_told(parent, entry.as_bytes());
        let made = made.map_err(|errno| self.error_in(request.pid(), parent, errno));
        self.reply_entry(made.map(|made| made.attr), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        new_parent: INodeNo,
        new_entry: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (self.inode(parent), self.inode(new_parent));
        let question = self.dir_attrs.question(Instant::now());
        let moved = rename_how(flags).and_then(|how| {
            let (name, new_name) = (name(entry)?, name(new_entry)?);
            // An exchange makes nothing dead.
            let meant = match how {
                RenameHow::Replace => self.meant(request.pid(), to, new_name)?,
                _ => None,
            };
            let moved =
                self.ask(async |session| session.rename((from, name), (to, new_name), how, meant).await)?;
            self.dir_names.moved((from, name), (to, new_name), how == RenameHow::Exchange);
            self.file_names.moved((from, name), (to, new_name), moved.moved);
            if let Some(exchanged) = moved.exchanged {
                self.file_names.moved((to, new_name), (from, name), exchanged);
            }
            Ok(moved)
        });
        self.names_ahead.name_told(from, entry.as_bytes());
        self.names_ahead.name_told(to, new_entry.as_bytes());
        match &moved {
            Ok(Renamed { from, to, directories: false, .. }) => {
                [from, to].into_iter().for_each(|attr| self.dir_attrs.changed_to(question, attr));
            }
            // The inode numbers of the directories that were moved or replaced are not known.
            _ => self.dir_attrs.some_changed(),
        }
        Gate::reply_done(moved.map(|_| ()), reply);
    }

    fn link(
        &self,
        request: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_entry: &OsStr,
        reply: ReplyEntry,
    ) {
        let (inode, parent) = (self.inode(inode), self.inode(new_parent));
        let made = name(new_entry)
            .and_then(|name| self.ask_in(parent, async |session| session.link(inode, parent, name).await));
        self.names_ahead.name_told(parent, new_entry.as_bytes());
        self.names_ahead.file_told(inode);
        if let Ok(made) = &made {
            self.told_file_name(parent, new_entry.as_bytes(), &made.attr);
        }
        let made = made.map_err(|errno| self.error_in(request.pid(), parent, errno));
        self.reply_entry(made.map(|made| made.attr), reply);
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = writes(flags.0);
        if dot_shoal::is_ours(inode) {
            return match self.dot_shoal.open(inode, write) {
                Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
                Err(errno) => reply.error(errno),
            };
        }
        let (gate, inode, thread) = (self.clone(), self.inode(inode), request.pid());
        let truncate = flags.0 & libc::O_TRUNC != 0;
        let drops_privileges = truncate && request.uid() != ROOT;
        let append = flags.0 & libc::O_APPEND != 0 && !truncate;
        let noatime = flags.0 & libc::O_NOATIME != 0;
        self.spare.run(move || {
            let opened = gate.open_found(thread, inode, write || truncate, truncate);
            let opened = if append { opened.and_then(|opened| gate.open_to_append(opened)) } else { opened };
            let opened = if drops_privileges {
                opened.and_then(|opened| gate.drop_privileges(opened))
            } else {
                opened
            };
            if let Ok(opened) = &opened {
                if flags.0 & libc::O_DIRECT == 0 {
                    gate.mount.set_in_kernel(opened.handle);
                }
                if noatime {
                    gate.mount.set_noatime(opened.handle);
                } else if gate.mount.is_exclusive() && !write {
                    gate.opened_to_read(&opened.attr);
                }
            }
            gate.reply_open(opened, write || truncate, reply);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let parent = self.inode(parent);
        let owner = owner(request, mode);
        let made = name(entry)
            .and_then(|name| self.ask_in(parent, async |session| session.create(parent, name, owner).await));
        self.names_ahead.name_told(parent, entry.as_bytes());
        match made {
            Ok(opened) => {
                if flags & libc::O_DIRECT == 0 {
                    self.mount.set_in_kernel(opened.handle);
                }
                self.told_file_name(parent, entry.as_bytes(), &opened.attr);
                let (attr, _) = self.told(&opened.attr);
                let flags = self.opened(&opened.attr, true);
                // Another mount may have opened it already.
                let (_, ttl) = self.told(&opened.attr);
                reply.created(&ttl, &attr, GENERATION, FileHandle(opened.handle), flags);
            }
            // Another mount has created it first. This error makes the kernel look up the name again and open the
            // existing file.
            Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => reply.error(Errno::ESTALE),
            Err(errno) => reply.error(self.error_in(request.pid(), parent, errno)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.data(self.dot_shoal.read(&self.mount, handle, offset, size).as_bytes());
        }
        if self.mount.has_quiesced_files() {
            let gate = self.clone();
            let arrived = Instant::now();
            self.spare.run(move || {
                waited_since(arrived);
                gate.read_bytes(handle, offset, size, reply);
            });
        } else {
            self.read_bytes(handle, offset, size, reply);
        }
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return match self.dot_shoal.write(&self.mount, handle, data) {
                Ok(written) => reply.written(written),
                Err(errno) => reply.error(errno),
            };
        }
        let (inode, thread) = (self.inode(inode), request.pid());
        if self.mount.has_quiesced_files() {
            let (gate, data) = (self.clone(), data.to_vec());
            let arrived = Instant::now();
            self.spare.run(move || {
                waited_since(arrived);
                gate.write_bytes((inode, thread), handle, offset, &data, reply);
            });
        } else {
            self.write_bytes((inode, thread), handle, offset, data, reply);
        }
    }

    fn flush(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.ok();
        }
        let done = self.ask(async |session| session.flush(handle.0).await);
        self.names_ahead.file_told(self.inode(inode));
        Gate::reply_done(done, reply);
    }

    fn release(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            self.dot_shoal.release(handle);
            return reply.ok();
        }
        let write = writes(flags.0) || flags.0 & libc::O_TRUNC != 0;
        self.kernel_cache.release(self.inode(inode), write);
        let done = self.ask(async |session| session.release(handle.0).await);
        self.names_ahead.file_told(self.inode(inode));
        Gate::reply_done(done, reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.ok();
        }
        let done = self.ask(async |session| session.fsync(handle.0).await);
        self.names_ahead.file_told(self.inode(inode));
        Gate::reply_done(done, reply);
    }

    fn opendir(&self, _request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if dot_shoal::is_ours(inode) {
            return reply.opened(dot_shoal::HANDLE, FopenFlags::empty());
        }
        let inode = self.inode(inode);
        // Usually the kernel has just looked up its name.
        let attr = match self.dir_attrs.last(inode) {
            Some(attr) => Ok(attr),
            None => self.ask_attr(async |session| session.getattr(inode).await),
        };
        match attr {
            Ok(attr) => reply.opened(self.open_dirs.open(attr), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        if !dot_shoal::is_ours(inode) {
            self.open_dirs.close(self.inode(inode), handle);
        }
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let add = |number, cookie, kind, name: &OsStr, _: Option<&_>| reply.add(number, cookie, kind, name);
        match self.read_directory(inode, handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let directory_inode = self.inode(inode);
        let add = |number, cookie, _kind, name: &OsStr, attr: Option<&_>| match attr {
            Some(attr) => {
                self.told_name(directory_inode, name.as_bytes(), Some(attr));
                let (attr, ttl) = self.told(attr);
                reply.add(number, cookie, name, &ttl, &attr, GENERATION)
            }
            // The kernel uses only number and kind of `.` and `..`.
            None => {
                let ttl = self.kernel_cache.name_ttl();
                reply.add(number, cookie, name, &ttl, &directory(number), GENERATION)
            }
        };
        match self.read_directory(inode, handle, offset, add) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Nothing to do: changes of names are durable before they are answered.
        reply.ok();
    }

    fn lseek(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let offset = match u64::try_from(offset) {
            Ok(offset) if !dot_shoal::is_our_handle(handle) => offset,
            _ => return reply.error(Errno::ENXIO),
        };
        let (gate, inode) = (self.clone(), self.inode(inode));
        // The kernel waits for writes of these pages, which the pool must serve; and many bricks may be asked.
        self.spare.run(move || match gate.seek(inode, handle, offset, what) {
            Ok(found) => reply.offset(found),
            Err(errno) => reply.error(errno),
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let range = offset..offset.saturating_add(length);
        let (gate, inode, thread) = (self.clone(), self.inode(inode), request.pid());
        // A new size may wait for other clients, and many bricks may be asked where there are bytes.
        self.spare.run(move || {
            Gate::reply_done(gate.allocate((inode, thread), handle, range, mode), reply);
        });
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let block = BLOCK as u64;
        match self.ask(async |session| session.statfs().await) {
            Ok(space) => {
                let (blocks, free) = (space.total / block, space.free / block);
                // Inodes share the space with bytes, so as many are free as blocks.
                let files = space.inodes.saturating_add(free);
                reply.statfs(blocks, free, free, files, free, BLOCK as u32, NAME_MAX as u32, BLOCK as u32);
            }
            Err(errno) => reply.error(errno),
        }
    }

    // After the first "not supported" the kernel handles these itself.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}

fn rename_how(flags: RenameFlags) -> Result<RenameHow, Errno> {
    if flags.is_empty() {
        Ok(RenameHow::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Ok(RenameHow::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Ok(RenameHow::Exchange)
    } else {
        Err(Errno::EINVAL)
    }
}
