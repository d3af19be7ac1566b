//! Translates every request of the kernel. What asks the cluster is a future: it is carried out inline, and parked if it waits
//! for long ([`Gate::serve`]).

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::time::{Instant, SystemTime};

use client::{Seek, SetAttrs};
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, RequestId, TimeOrNow,
    WriteFlags,
};
use types::BufMut;
use types::messages::cluster::Mode;
use types::messages::names::FileKind;

use super::attributes::{directory, nanoseconds};
use super::gate::{GENERATION, Gate, name, owner, writes};
use super::interrupts::OnInterrupt;
use super::retries::Asker;
use super::{dot_shoal, local};

/// The user of whose changes the kernel says nothing about set-user-id bits.
const ROOT: u32 = 0;

impl Filesystem for Gate {
    fn before_read(&self, device: BorrowedFd<'_>) {
        local::before_read(self, device);
    }

    fn interrupt(&self, unique: RequestId) {
        self.interrupts.interrupt(unique.0);
    }

    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        super::mount::agree(config, self.mount.is_exclusive())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        if let Some(inode) = dot_shoal::lookup(self.inode(parent) == self.mount.root(), parent, entry) {
            return reply.entry(&dot_shoal::TTL, &dot_shoal::attr(inode), GENERATION);
        }
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            if let b"." | b".." = entry.as_bytes() {
                let is_parent = entry.as_bytes() == b"..";
                return gate.reply_entry(gate.lookup_handle(parent, is_parent).await, reply);
            }
            let found = match name(&entry) {
                Ok(name) => gate.lookup_ahead(asker, parent, name).await,
                Err(errno) => Err(errno),
            };
            gate.told_name(parent, entry.as_bytes(), found.as_ref().map(|found| &found.attr).ok());
            let found = found.map_err(|errno| gate.error_in(asker, parent, errno));
            match &found {
                Ok(_) => gate.retries.found(asker, Instant::now),
                Err(_) => gate.retries.opens_none(asker),
            }
            gate.reply_found(found, reply);
        });
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
        let thread = request.pid();
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            let asked = gate.ask_attr(async |session| session.getattr(inode).await).await;
            if asked.is_err() {
                gate.names_ahead.file_told(inode);
            }
            if asked == Err(Errno::ESTALE)
                && let Some(removed) = gate.removed(inode)
            {
                return gate.reply_attr(Ok(removed), reply);
            }
            gate.reply_asked(asked, thread, reply).await;
        });
    }

    fn setattr(
        &self,
        request: &Request,
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
        let inode = self.inode(inode);
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            let changed = gate.ask(async |session| session.setattr(inode, changes).await).await;
            gate.names_ahead.file_told(inode);
            if !changed.as_ref().is_ok_and(|attr| attr.kind != FileKind::Directory) {
                gate.dir_attrs.changed(inode);
            }
            let changed = changed.or_else(|errno| match errno {
                Errno::ESTALE => gate.change_removed(inode, &changes),
                _ => Err(errno),
            });
            gate.reply_changed(changed, reply);
        });
    }

    fn readlink(&self, request: &Request, inode: INodeNo, reply: ReplyData) {
        let inode = self.inode(inode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            match gate.ask(async |session| session.readlink(inode).await).await {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(errno),
            }
        });
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
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        let owner = owner(request, mode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            gate.reply_entry(gate.mknod_in(asker, parent, &entry, (mode, owner, rdev)).await, reply);
        });
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
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        let owner = owner(request, mode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            gate.reply_entry(gate.mkdir_in(asker, parent, &entry, owner).await, reply);
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let (parent, entry, thread) = (self.inode(parent), entry.to_owned(), request.pid());
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            Gate::reply_done(gate.unlink_in(thread, parent, &entry).await, reply);
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            Gate::reply_done(gate.rmdir_in(asker, parent, &entry).await, reply);
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, target: &Path, reply: ReplyEntry) {
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        let owner = owner(request, 0o777);
        let target = target.as_os_str().as_bytes().to_vec();
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            gate.reply_entry(gate.symlink_in(asker, parent, &entry, (&target, owner)).await, reply);
        });
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
        let (entry, new_entry, asker) = (entry.to_owned(), new_entry.to_owned(), Asker::of(request));
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            let renamed = gate.rename_in(asker, (from, &entry), (to, &new_entry), flags).await;
            Gate::reply_done(renamed, reply);
        });
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
        let (entry, asker) = (new_entry.to_owned(), Asker::of(request));
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            gate.reply_entry(gate.link_in(asker, inode, (parent, &entry)).await, reply);
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let write = writes(flags.0);
        if dot_shoal::is_ours(inode) {
            return match self.dot_shoal.open(inode, write) {
                Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO),
                Err(errno) => reply.error(errno),
            };
        }
        let (inode, asker) = (self.inode(inode), Asker::of(request));
        let truncate = flags.0 & libc::O_TRUNC != 0;
        let drops_privileges = truncate && request.uid() != ROOT;
        let append = flags.0 & libc::O_APPEND != 0 && !truncate;
        let on_interrupt = if truncate { OnInterrupt::Wait } else { OnInterrupt::Finish };
        self.serve(request, on_interrupt, async move |gate| {
            let opened = match gate.open_found(asker, inode, write || truncate, truncate).await {
                Ok(opened) if append => gate.open_to_append(asker, opened).await,
                Ok(opened) if drops_privileges => gate.drop_privileges(opened).await,
                opened => opened,
            };
            if gate.closes_late(&opened).await {
                return;
            }
            if let Ok(opened) = &opened {
                gate.opened_with(opened, flags.0);
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
        let (parent, entry, asker) = (self.inode(parent), entry.to_owned(), Asker::of(request));
        let owner = owner(request, mode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            let create = async || {
                let name = name(&entry)?;
                gate.ask_in(parent, async |session| session.open_new(parent, name, owner).await).await
            };
            gate.retries.opens_none(asker);
            let made = create().await;
            gate.names_ahead.name_told(parent, entry.as_bytes());
            if gate.closes_late(&made).await {
                return;
            }
            match made {
                Ok(opened) => {
                    if flags & libc::O_DIRECT == 0 {
                        gate.mount.set_in_kernel(opened.handle);
                    }
                    gate.told_file_name(parent, entry.as_bytes(), &opened.attr);
                    let (attr, _) = gate.told(&opened.attr);
                    let flags = gate.opened(&opened.attr, true);
                    // Another mount may have opened it already.
                    let (_, ttl) = gate.told(&opened.attr);
                    reply.created(&ttl, &attr, GENERATION, FileHandle(opened.handle), flags);
                }
                // Another mount has created it first. This error makes the kernel look up the name again and open the
                // existing file.
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => {
                    gate.retries.ask_to_open(asker, Instant::now());
                    reply.error(Errno::ESTALE);
                }
                Err(errno) => reply.error(gate.error_in(asker, parent, errno)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
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
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            match gate.ask(async |session| session.read(handle.0, offset, size as usize).await).await {
                Ok(bytes) => reply.data(&bytes),
                Err(errno) => reply.error(errno),
            }
        });
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
        let of = (self.inode(inode), request.pid());
        let is_alone = self.mount.mode(of.0) == Mode::Alone;
        // Such a write has only laid bytes into buffers while it waits, so it can begin again with a copy of its own. The
        // bytes of most writes are never copied.
        if is_alone {
            let attempt = pin!(self.write_bytes(of, handle, offset, data));
            if let Some(written) = local::attempt(&self.mount, local::PATIENCE_TO_WRITE_US, attempt) {
                return Gate::reply_written(written, reply);
            }
        }
        // From pages that are reused: new ones of this size would be faults of pages.
        let data = BufMut::copy_of(data);
        let on_interrupt = if is_alone { OnInterrupt::GiveUp } else { OnInterrupt::Wait };
        self.serve(request, on_interrupt, async move |gate| {
            Gate::reply_written(gate.write_bytes(of, handle, offset, &data).await, reply);
        });
    }

    fn flush(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.ok();
        }
        let inode = self.inode(inode);
        self.serve(request, OnInterrupt::GiveUp, async move |gate| {
            let done = gate.ask(async |session| session.flush(handle.0).await).await;
            gate.names_ahead.file_told(inode);
            Gate::reply_done(done, reply);
        });
    }

    fn release(
        &self,
        request: &Request,
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
        let inode = self.inode(inode);
        self.kernel_cache.release(inode, write);
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            let done = gate.ask(async |session| session.release(handle.0).await).await;
            gate.names_ahead.file_told(inode);
            Gate::reply_done(done, reply);
        });
    }

    fn fsync(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        if dot_shoal::is_our_handle(handle) {
            return reply.ok();
        }
        let inode = self.inode(inode);
        self.serve(request, OnInterrupt::GiveUp, async move |gate| {
            let done = gate.ask(async |session| session.fsync(handle.0).await).await;
            gate.names_ahead.file_told(inode);
            Gate::reply_done(done, reply);
        });
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if dot_shoal::is_ours(inode) {
            return reply.opened(dot_shoal::HANDLE, FopenFlags::empty());
        }
        let inode = self.inode(inode);
        // Usually the kernel has just looked up its name.
        if let Some(attr) = self.dir_attrs.last(inode) {
            return reply.opened(self.open_dirs.open(attr), FopenFlags::empty());
        }
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            match gate.ask_attr(async |session| session.getattr(inode).await).await {
                Ok(_) if local::is_late(&gate.mount) => {}
                Ok(attr) => reply.opened(gate.open_dirs.open(attr), FopenFlags::empty()),
                Err(errno) => reply.error(errno),
            }
        });
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
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            let add =
                |number, cookie, kind, name: &OsStr, _: Option<&_>| reply.add(number, cookie, kind, name);
            match gate.read_directory(inode, handle, offset, add).await {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let directory_inode = self.inode(inode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            let add = |number, cookie, _kind, name: &OsStr, attr: Option<&_>| match attr {
                Some(attr) => {
                    gate.told_name(directory_inode, name.as_bytes(), Some(attr));
                    let (attr, ttl) = gate.told(attr);
                    reply.add(number, cookie, name, &ttl, &attr, GENERATION)
                }
                // The kernel uses only number and kind of `.` and `..`.
                None => {
                    let ttl = gate.kernel_cache.name_ttl();
                    reply.add(number, cookie, name, &ttl, &directory(number), GENERATION)
                }
            };
            match gate.read_directory(inode, handle, offset, add).await {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
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
        request: &Request,
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
        let inode = self.inode(inode);
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            match gate.seek(inode, handle, offset, what).await {
                Ok(found) => reply.offset(found),
                Err(errno) => reply.error(errno),
            }
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
        let of = (self.inode(inode), request.pid());
        self.serve(request, OnInterrupt::Wait, async move |gate| {
            Gate::reply_done(gate.allocate(of, handle, range, mode).await, reply);
        });
    }

    fn statfs(&self, request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.serve(request, OnInterrupt::Finish, async move |gate| {
            Gate::reply_space(gate.ask(async |session| session.statfs().await).await, reply);
        });
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
