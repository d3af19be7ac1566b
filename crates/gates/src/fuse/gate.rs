//! Common parts of the translation of requests.

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use client::{ClientError, Mount, Session};
use fuser::{Errno, FileHandle, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEntry, Request};
use types::InodeId;
use types::limits::NAME_MAX;
use types::messages::names::{Attr, FileKind, Owner};
use world::FutureBox;

use super::attributes::{file_attr, time};
use super::dir_attr_cache::{ChangedNames, DirAttrCache};
use super::dir_names::DirNames;
use super::dot_shoal::DotShoal;
use super::file_names::FileNames;
use super::interrupts::{Interrupts, OnInterrupt};
use super::invalidate::Invalidator;
use super::kernel_cache::{AttrReply, KernelCache};
use super::local;
use super::names_ahead::{NamesAhead, Next};
use super::open_dirs::OpenDirs;
use super::retries::{Asker, Retries};
use super::special::SpecialFiles;
use crate::errno::errno;

/// Inode numbers are never reused, so one generation is enough.
pub(super) const GENERATION: Generation = Generation(0);
/// Stands for an unknown thread.
const NOBODY: u32 = 0;
/// The kernel's inode number of the root.
const KERNEL_ROOT: u64 = 1;

/// What a lookup has found.
pub(super) struct Found {
    pub(super) attr: Attr,
    /// If it was read ahead: how long the kernel may believe it.
    left: Option<Duration>,
}

/// The state that all threads of a mount share. Clones share it.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) mount: Arc<Mount>,
    pub(super) kernel_cache: Arc<KernelCache>,
    /// Parked requests.
    pub(super) interrupts: Arc<Interrupts>,
    pub(super) dir_attrs: Arc<DirAttrCache>,
    pub(super) dir_names: Arc<DirNames>,
    pub(super) file_names: Arc<FileNames>,
    pub(super) names_ahead: Arc<NamesAhead>,
    pub(super) open_dirs: Arc<OpenDirs>,
    pub(super) retries: Arc<Retries>,
    pub(super) special: Arc<SpecialFiles>,
    pub(super) dot_shoal: Arc<DotShoal>,
    /// Set when the kernel has accepted the mount.
    pub(super) invalidator: Arc<OnceLock<Invalidator>>,
}

impl Gate {
    /// Carries out a request on this thread. The thread waits for a short time; then the request is parked, and is
    /// carried out further while the thread reads others (`local.rs`).
    pub(super) fn serve<F: Future<Output = ()> + 'static>(
        &self,
        request: &Request,
        on_interrupt: OnInterrupt,
        work: impl FnOnce(Rc<Gate>) -> F,
    ) {
        let gate = local::gate(self);
        let mut work = FutureBox::new(|| work(Rc::clone(&gate)));
        if local::attempt(&self.mount, local::PATIENCE_US, Pin::new(&mut work)).is_none() {
            local::park(&gate, (request.unique().0, request.pid()), on_interrupt, work);
        }
    }

    /// Asks the cluster.
    pub(super) async fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&Session) -> Result<T, ClientError>,
    ) -> Result<T, Errno> {
        let session = local::session(&self.mount)?;
        request(&session).await.map_err(|error| Errno::from_i32(errno(error)))
    }

    /// Has the kernel write back and forget a file's pages. That waits for its requests for these pages, which the threads
    /// of the mount must serve.
    pub(super) async fn invalidate_pages(&self, inode: InodeId) {
        if let (Some(invalidator), Ok(world)) = (self.invalidator.get(), local::world(&self.mount)) {
            let invalidator = invalidator.clone();
            world.off_thread(move || invalidator.pages(inode)).await;
        }
    }

    /// Carries out a request for attributes.
    pub(super) async fn ask_attr(
        &self,
        request: impl AsyncFnOnce(&Session) -> Result<Attr, ClientError>,
    ) -> Result<Attr, Errno> {
        let question = self.dir_attrs.question(Instant::now());
        let answer = self.ask(request).await;
        answer.inspect(|attr| self.dir_attrs.update(question, attr))
    }

    /// Carries out a change of names in a directory.
    pub(super) async fn ask_in<T: ChangedNames>(
        &self,
        directory: InodeId,
        request: impl AsyncFnOnce(&Session) -> Result<T, ClientError>,
    ) -> Result<T, Errno> {
        let question = self.dir_attrs.question(Instant::now());
        let answer = self.ask(request).await;
        match answer.as_ref().ok().and_then(T::directory) {
            Some(attr) => self.dir_attrs.changed_to(question, attr),
            None => self.dir_attrs.changed(directory),
        }
        answer
    }

    /// The volume's inode of a kernel's inode number.
    pub(super) fn inode(&self, number: INodeNo) -> InodeId {
        if number.0 == KERNEL_ROOT { self.mount.root() } else { InodeId(number.0) }
    }

    /// The kernel's inode number of a volume's inode.
    pub(super) fn kernel_number(&self, inode: InodeId) -> INodeNo {
        INodeNo(if inode == self.mount.root() { KERNEL_ROOT } else { inode.0 })
    }

    /// Attributes in the kernel's format, and how long it may cache them.
    pub(super) fn told(&self, attr: &Attr) -> (fuser::FileAttr, Duration) {
        if attr.kind == FileKind::File {
            self.names_ahead.file_told(attr.inode);
        }
        let ttl = self.kernel_cache.tell(attr, local::lease_left(&self.mount));
        self.special.tell(attr);
        let number = self.kernel_number(attr.inode);
        (fuser::FileAttr { ino: number, ..file_attr(attr) }, ttl)
    }

    /// Writes for a thread to an inode.
    pub(super) async fn write_bytes(
        &self,
        (inode, thread): (InodeId, u32),
        handle: FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, Errno> {
        self.kernel_cache.acts(inode, thread);
        let written = self.ask(async |session| session.write(handle.0, offset, data).await).await;
        self.kernel_cache.acts(inode, thread);
        self.names_ahead.file_told(inode);
        written.map(|written| u32::try_from(written).unwrap_or(u32::MAX))
    }

    /// Notes what the kernel is told of a name.
    pub(super) fn told_name(&self, parent: InodeId, name: &[u8], attr: Option<&Attr>) {
        self.names_ahead.name_told(parent, name);
        match attr.filter(|attr| attr.kind == FileKind::Directory) {
            Some(attr) => {
                let (now, ttl) = (Instant::now(), self.kernel_cache.name_ttl());
                self.dir_names.told(parent, name, attr.inode, now, ttl);
            }
            None => self.dir_names.forget(parent, name),
        }
        if let Some(attr) = attr {
            self.told_file_name(parent, name, attr);
        }
    }

    /// Notes that the kernel is told of a name of a file.
    pub(super) fn told_file_name(&self, parent: InodeId, name: &[u8], attr: &Attr) {
        if attr.kind == FileKind::File && !self.mount.is_exclusive() {
            self.file_names.told(parent, name, attr.inode, Instant::now());
        }
    }

    /// The directory that the kernel takes a name for, which a thread is about to remove or replace. Fails with `ESTALE` if that is
    /// not sure: then the kernel looks the name up again.
    pub(super) fn meant(&self, asker: Asker, parent: InodeId, name: &[u8]) -> Result<Option<InodeId>, Errno> {
        let now = asker.begun;
        match self.dir_names.meant(parent, name, now) {
            Some(meant) if meant.is_unsure && self.retries.ask(asker, parent, now) => Err(Errno::ESTALE),
            meant => Ok(meant.map(|meant| meant.inode)),
        }
    }

    /// After `ESTALE` the kernel looks a thread's names in a directory up again. A second one would reach the program.
    pub(super) fn looks_again(&self, asker: Asker, directory: InodeId, errno: Errno) {
        if errno == Errno::ESTALE {
            self.retries.ask(asker, directory, Instant::now());
        }
    }

    /// Looks up a name for a thread, which may be about to remove it and those that follow.
    pub(super) async fn lookup_ahead(
        &self,
        Asker { thread, begun: now }: Asker,
        parent: InodeId,
        name: &[u8],
    ) -> Result<Found, Errno> {
        let alone = async || {
            let attr = self.ask_attr(async |session| session.lookup(parent, name).await).await?;
            Ok(Found { attr, left: None })
        };
        if self.mount.is_exclusive() {
            return alone().await;
        }
        let count = match self.names_ahead.next(thread, parent, name, now) {
            Next::Alone => return alone().await,
            Next::Known(attr, left) => {
                self.mount.count_lookup_ahead();
                return Ok(Found { attr: self.mount.with_access(*attr), left: Some(left) });
            }
            Next::Ask(count) => count,
        };
        let question = self.dir_attrs.question(now);
        let listed = self.ask(async |session| session.readdir_from(parent, name, count).await).await;
        let mut entries = listed.map(|listed| listed.entries);
        let found = entries.as_mut().ok().filter(|entries| entries.first().is_some_and(|it| it.name == name));
        let found = found.map(|entries| entries.remove(0).attr);
        match &entries {
            Ok(ahead) => {
                // A file that is opened after this is told when it is open.
                let ahead = ahead.iter().filter(|entry| !self.mount.is_open(entry.attr.inode));
                self.names_ahead.answered(thread, parent, ahead);
            }
            Err(_) => self.names_ahead.failed(thread, parent),
        }
        match (found, entries) {
            (Some(attr), _) => {
                self.dir_attrs.update(question, &attr);
                Ok(Found { attr, left: None })
            }
            (None, Err(Errno::ENOENT)) => Err(Errno::ENOENT),
            // What is wrong may be another file of these.
            (None, _) => alone().await,
        }
    }

    /// Answers a lookup.
    pub(super) fn reply_found(&self, found: Result<Found, Errno>, reply: ReplyEntry) {
        match found {
            Ok(Found { attr, left: Some(left) }) => {
                self.kernel_cache.acts(attr.inode, NOBODY);
                self.names_ahead.file_told(attr.inode);
                let ttl = self.kernel_cache.tell_from_ahead(&attr, local::lease_left(&self.mount));
                let told = fuser::FileAttr { ino: self.kernel_number(attr.inode), ..file_attr(&attr) };
                reply.entry_with_ttls(&ttl.min(left), &left, &told, GENERATION);
            }
            found => self.reply_entry(found.map(|found| found.attr), reply),
        }
    }

    pub(super) fn reply_entry(&self, answer: Result<Attr, Errno>, reply: ReplyEntry) {
        match answer {
            Ok(attr) => {
                self.kernel_cache.acts(attr.inode, NOBODY);
                let (attr, ttl) = self.told(&attr);
                reply.entry_with_ttls(&ttl, &self.kernel_cache.name_ttl(), &attr, GENERATION);
            }
            Err(errno) => reply.error(errno),
        }
    }

    pub(super) fn reply_attr(&self, answer: Result<Attr, Errno>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => {
                let (attr, ttl) = self.told(&attr);
                reply.attr(&ttl, &attr);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// Answers a thread's request for attributes. The thread may be about to read cached pages: see
    /// `kernel_cache.rs`.
    pub(super) async fn reply_asked(&self, answer: Result<Attr, Errno>, thread: u32, reply: ReplyAttr) {
        let Ok(attr) = &answer else { return self.reply_attr(answer, reply) };
        match self.kernel_cache.asked(attr, thread, local::lease_left(&self.mount), Instant::now()) {
            AttrReply::Plain => self.reply_attr(answer, reply),
            AttrReply::Stamped(stamp) => {
                let (mut told, ttl) = self.told(attr);
                told.mtime =
                    time(attr.mtime.div_euclid(1000).saturating_mul(1000).saturating_add_unsigned(stamp));
                self.kernel_cache.acts(attr.inode, thread);
                reply.attr(&ttl, &told);
            }
            AttrReply::Invalidate => {
                self.invalidate_pages(attr.inode).await;
                self.reply_attr(answer, reply);
            }
        }
    }

    /// Answers a change of attributes. The kernel takes this answer as newer than anything it got meanwhile,
    /// including an invalidation. So it must not cache these attributes.
    pub(super) fn reply_changed(&self, answer: Result<Attr, Errno>, reply: ReplyAttr) {
        match answer {
            Ok(attr) => {
                self.kernel_cache.acts(attr.inode, NOBODY);
                let (told, ttl) = self.told(&attr);
                let ttl = if self.mount.is_exclusive() { ttl } else { Duration::ZERO };
                reply.attr(&ttl, &told);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// On an exclusive mount, an open for reading counts as an access. The kernel's attributes are then invalidated.
    pub(super) fn opened_to_read(&self, attr: &Attr) {
        if local::note_access(&self.mount, attr)
            && let Some(invalidator) = self.invalidator.get()
        {
            invalidator.attributes(attr.inode);
        }
    }

    /// The flags for a new handle: what the kernel does with its caches.
    pub(super) fn opened(&self, attr: &Attr, write: bool) -> FopenFlags {
        let policy = self.kernel_cache.open(attr, || self.mount.mode(attr.inode), write);
        if policy.invalidate_attributes
            && let Some(invalidator) = self.invalidator.get()
        {
            invalidator.attributes(attr.inode);
        }
        let mut flags = FopenFlags::empty();
        let due = !write && local::is_access_due(&self.mount, attr);
        // The kernel reads cached pages without a request. So if a read would count as an access, the pages are
        // dropped, to get a request. On an exclusive mount they are kept, and the open counts instead.
        let keep = policy.keep_pages && (!due || self.mount.is_exclusive());
        flags.set(FopenFlags::FOPEN_KEEP_CACHE, keep);
        flags.set(FopenFlags::FOPEN_DIRECT_IO, policy.direct);
        // The close of a reader has no errors to report.
        flags.set(FopenFlags::FOPEN_NOFLUSH, !write);
        flags
    }
}

/// A name that a volume can hold.
pub(super) fn name(name: &OsStr) -> Result<&[u8], Errno> {
    let bytes = name.as_bytes();
    if bytes.len() > NAME_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(bytes) }
}

/// Owner and mode of a new inode.
pub(super) fn owner(request: &Request, mode: u32) -> Owner {
    Owner { uid: request.uid(), gid: request.gid(), mode: mode & 0o7777 }
}

/// Whether a file opened with these flags can be written.
pub(super) fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}
