//! What the kernel may keep in its caches.
//!
//! The kernel caches attributes for [`TTL`] and a file's pages until it is told otherwise. These rules keep that
//! honest:
//!
//! * an open whose attributes differ from the last ones that the kernel was given makes it forget those, so that a
//!   file is read up to the end that it had when it was opened;
//! * pages are kept over an open only if the file is as it was when this mount last opened it;
//! * handles of a file of mode `Shared` read and write around the cache;
//! * handles from before go on using the cache: for whom, is said at the open and never again. But the kernel does not
//!   read a page that it has before it has asked for the file's attributes, unless it may still believe those
//!   (`FUSE_AUTO_INVAL_DATA`). So attributes of a shared file are believed for no time, and with them all pages are
//!   forgotten, those that are being read at the moment too: what such a read then finds was fetched after it had begun.
//!   See [`AttrReply`] for how. Attributes of other files are believed no longer than this client has a lease, so this also
//!   holds for a client that was stopped and whose lease ran out meanwhile;
//! * before a recalled mode is confirmed the attributes that were told earlier are forgotten.
//!
//! What maps a file, or moves its pages into a pipe, does not ask for attributes: a map of a file that others write
//! shows old bytes until somebody on the same machine reads the file or asks for its attributes.
//!
//! Nothing happens behind the kernel's back on an exclusive mount: it may believe everything for long, and it must keep
//! its pages, of which some may be newer than what this process knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::Recalled;
use types::messages::cluster::Mode;
use types::messages::names::{Attr, FileKind};
use types::{InodeId, ObjectId};

/// How long the kernel may believe names and attributes.
pub(super) const TTL: Duration = Duration::from_secs(1);
/// How long it may on an exclusive mount.
const TTL_EXCLUSIVE: Duration = Duration::from_secs(3600);
/// Inodes that are remembered; beyond, everything is forgotten and learned anew.
const REMEMBERED_MAX: usize = 1 << 16;

/// A thread that has done nothing to a file for so long does not disturb what another one is told of it.
const QUIET: Duration = Duration::from_millis(200);
/// Threads that are remembered, the last ones.
const THREADS_MAX: usize = 16;

/// How a question for attributes is answered so that whoever asks finds no old page afterwards.
///
/// The kernel forgets pages by itself when it hears of another size or time. But it takes no attributes over if its own
/// have changed since it asked, by a write or another answer to the same machine; and it takes none over after it was
/// made to forget pages. So where several threads use the file at once it is made to, and hears of a new size when one
/// of them is alone for a moment, or at some risk for the pages until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttrReply {
    /// With what there is.
    Plain,
    /// With so many nanoseconds in the place of those of its time: no answer before had these.
    Stamped(u64),
    /// When the kernel has been made to forget the pages.
    Invalidate,
}

/// The contents of a file at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    object: ObjectId,
    size: u64,
    mtime: i64,
    /// The other three may be as they were after a change: clocks differ, and times can be set.
    changes: u64,
}

#[derive(Default)]
struct Memory {
    /// What the kernel was last told of a file.
    told: Option<Version>,
    /// What its cached pages show.
    pages: Option<Version>,
    /// Handles.
    opens: u32,
    /// One of them, or one that was closed before the others, uses the cache.
    caching: bool,
    /// Others may change the file while it is open.
    shared: bool,
    /// While it is shared: the size that the kernel was told, and whether it may have missed it.
    size: Option<u64>,
    unsure: bool,
    /// Answers that were stamped.
    stamps: u64,
    /// The last threads that did something to the file, and when.
    threads: Vec<(u32, Instant)>,
}

impl Memory {
    /// Notes that a thread does something. True if no other one has for a while.
    fn note(&mut self, thread: u32, now: Instant) -> bool {
        self.threads.retain(|(other, at)| *other != thread && now.duration_since(*at) < QUIET);
        let alone = self.threads.is_empty();
        self.threads.truncate(THREADS_MAX);
        self.threads.push((thread, now));
        alone
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct KernelCache {
    exclusive: bool,
    files: Mutex<BTreeMap<InodeId, Memory>>,
}

/// What an open means for the kernel's caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CachePolicy {
    /// Its attributes are out of date: it must forget them before the open is answered.
    pub(super) invalidate_attributes: bool,
    /// Its pages are still right.
    pub(super) keep_pages: bool,
    /// Nobody may cache.
    pub(super) direct: bool,
}

impl KernelCache {
    /// For a mount that may be the only one of its volume.
    pub(super) fn new(exclusive: bool) -> KernelCache {
        KernelCache { exclusive, files: Mutex::default() }
    }

    /// For how long the kernel may believe a name.
    pub(super) fn name_ttl(&self) -> Duration {
        if self.exclusive { TTL_EXCLUSIVE } else { TTL }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<InodeId, Memory>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes attributes that the kernel is being told by a client with a lease of so long. Returns for how long it may
    /// believe them.
    pub(super) fn tell(&self, attr: &Attr, leased: Duration) -> Duration {
        if self.exclusive || attr.kind != FileKind::File {
            return self.name_ttl();
        }
        let mut files = self.lock();
        make_room(&mut files);
        let memory = files.entry(attr.inode).or_default();
        memory.told = Some(Version::of(attr));
        if memory.shared { Duration::ZERO } else { TTL.min(leased) }
    }

    /// A thread asks for attributes, of a client with a lease of so long: how it is told these.
    pub(super) fn asked(&self, attr: &Attr, thread: u32, leased: Duration, now: Instant) -> AttrReply {
        let mut files = self.lock();
        let Some(memory) = files.get_mut(&attr.inode).filter(|memory| memory.caching) else {
            return AttrReply::Plain;
        };
        if !memory.shared {
            return if leased.is_zero() { AttrReply::Invalidate } else { AttrReply::Plain };
        }
        if memory.size != Some(attr.size) {
            (memory.size, memory.unsure) = (Some(attr.size), true);
        }
        let alone = memory.note(thread, now);
        if !alone && !memory.unsure {
            return AttrReply::Invalidate;
        }
        memory.unsure &= !alone;
        memory.stamps += 1;
        AttrReply::Stamped(memory.stamps % 1000)
    }

    /// Notes that a thread is changing a file, or is about to be told of it otherwise: the kernel's attributes change.
    pub(super) fn acts(&self, inode: InodeId, thread: u32) {
        if self.exclusive {
            return;
        }
        if let Some(memory) = self.lock().get_mut(&inode).filter(|memory| memory.caching && memory.shared) {
            memory.note(thread, Instant::now());
        }
    }

    /// Notes an open of a file in the mode that `mode` tells: a recall comes either before that, or finds the handle
    /// here. The new handle's pages show `attr` from here on.
    pub(super) fn open(&self, attr: &Attr, mode: impl FnOnce() -> Mode, write: bool) -> CachePolicy {
        if self.exclusive {
            return CachePolicy { invalidate_attributes: false, keep_pages: true, direct: false };
        }
        let mut files = self.lock();
        make_room(&mut files);
        let memory = files.entry(attr.inode).or_default();
        let version = Version::of(attr);
        let direct = mode() == Mode::Shared;
        let policy = CachePolicy {
            invalidate_attributes: memory.told != Some(version),
            keep_pages: !direct && memory.pages == Some(version),
            direct,
        };
        memory.opens += 1;
        memory.caching |= !direct;
        memory.shared = direct;
        memory.told = Some(version);
        // A writer's pages soon show something else; what, is learned at the next open.
        memory.pages = (!direct && !write).then_some(version);
        policy
    }

    /// Notes the end of a handle.
    pub(super) fn release(&self, inode: InodeId, write: bool) {
        let mut files = self.lock();
        if let Some(memory) = files.get_mut(&inode) {
            memory.opens = memory.opens.saturating_sub(1);
            memory.shared &= memory.opens > 0;
            memory.caching &= memory.opens > 0;
            if write {
                memory.pages = None;
                memory.told = None;
            }
        }
    }

    /// Notes that nothing cached counts any more.
    pub(super) fn recall(&self, inode: InodeId, recalled: Recalled) {
        let mut files = self.lock();
        if let Some(memory) = files.get_mut(&inode) {
            memory.shared = matches!(recalled, Recalled::To(Mode::Shared) | Recalled::Lost);
            memory.size = memory.told.map(|told| told.size).or(memory.size);
            memory.pages = None;
            memory.told = None;
        }
    }
}

/// Forgets closed files when there are too many.
fn make_room(files: &mut BTreeMap<InodeId, Memory>) {
    if files.len() >= REMEMBERED_MAX {
        files.retain(|_, memory| memory.opens > 0);
    }
}

impl Version {
    fn of(attr: &Attr) -> Version {
        Version { object: attr.object, size: attr.size, mtime: attr.mtime, changes: attr.changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn attr(size: u64, mtime: i64) -> Attr {
        Attr {
            inode: InodeId(5),
            kind: FileKind::File,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            atime: 0,
            mtime,
            ctime: 0,
            object: ObjectId(1),
            stale_end: 0,
            truncate_seq: 0,
            changes: 0,
        }
    }

    #[test]
    fn pages_are_kept_only_while_the_file_is_as_it_was() {
        let kernel_cache = KernelCache::default();
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), TTL);
        let first = kernel_cache.open(&attr(10, 1), || Mode::Readers, false);
        assert_eq!(first, CachePolicy { invalidate_attributes: false, keep_pages: false, direct: false });
        kernel_cache.release(InodeId(5), false);
        assert!(kernel_cache.open(&attr(10, 1), || Mode::Readers, false).keep_pages);
        kernel_cache.release(InodeId(5), false);
        let changed = kernel_cache.open(&attr(20, 2), || Mode::Readers, false);
        assert_eq!(changed, CachePolicy { invalidate_attributes: true, keep_pages: false, direct: false });
    }

    /// Rewritten elsewhere in its length, its time set back to what it was.
    #[test]
    fn pages_of_a_file_that_only_looks_as_it_was_are_not_kept() {
        let kernel_cache = KernelCache::default();
        kernel_cache.open(&attr(10, 1), || Mode::Readers, false);
        kernel_cache.release(InodeId(5), false);
        let rewritten = Attr { changes: 1, ..attr(10, 1) };
        let policy = kernel_cache.open(&rewritten, || Mode::Readers, false);
        assert_eq!(policy, CachePolicy { invalidate_attributes: true, keep_pages: false, direct: false });
    }

    #[test]
    fn what_was_written_here_is_not_taken_for_what_was_read() {
        let kernel_cache = KernelCache::default();
        kernel_cache.open(&attr(10, 1), || Mode::Alone, true);
        kernel_cache.release(InodeId(5), true);
        assert!(!kernel_cache.open(&attr(10, 1), || Mode::Alone, false).keep_pages);
    }

    #[test]
    fn the_kernel_of_an_exclusive_mount_knows_best() {
        let kernel_cache = KernelCache::new(true);
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), TTL_EXCLUSIVE);
        let keeps = CachePolicy { invalidate_attributes: false, keep_pages: true, direct: false };
        assert_eq!(kernel_cache.open(&attr(10, 1), || Mode::Alone, true), keeps);
        kernel_cache.release(InodeId(5), true);
        assert_eq!(kernel_cache.open(&attr(20, 2), || Mode::Readers, false), keeps);
        assert!(kernel_cache.lock().is_empty(), "nothing has to be remembered");
    }

    #[test]
    fn shared_files_are_not_cached() {
        let kernel_cache = KernelCache::default();
        kernel_cache.open(&attr(10, 1), || Mode::Alone, true);
        kernel_cache.recall(InodeId(5), Recalled::To(Mode::Shared));
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), Duration::ZERO);
        let second = kernel_cache.open(&attr(10, 1), || Mode::Shared, false);
        assert_eq!((second.direct, second.keep_pages), (true, false));
        kernel_cache.release(InodeId(5), false);
        kernel_cache.release(InodeId(5), true);
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), TTL);
    }

    #[test]
    fn handles_from_before_the_sharing_find_no_pages() {
        let (kernel_cache, now) = (KernelCache::default(), Instant::now());
        let asked = |size, thread, after: u64| {
            kernel_cache.asked(&attr(size, 1), thread, LEASE, now + Duration::from_millis(after))
        };
        assert_eq!(asked(10, 1, 0), AttrReply::Plain, "it is not open");
        kernel_cache.open(&attr(10, 1), || Mode::Alone, true);
        assert_eq!(asked(10, 1, 0), AttrReply::Plain, "nobody else may change it");
        kernel_cache.recall(InodeId(5), Recalled::To(Mode::Shared));
        assert_eq!(asked(10, 1, 0), AttrReply::Stamped(1));
        assert_eq!(asked(10, 1, 1), AttrReply::Stamped(2), "the kernel has not seen that time");
        assert_eq!(
            asked(10, 2, 2),
            AttrReply::Invalidate,
            "the answer to another thread may overtake this one"
        );
        assert_eq!(asked(10, 1, 3), AttrReply::Invalidate);
        // A new size has to arrive, and is told until one that asks is alone.
        assert_eq!(asked(11, 2, 4), AttrReply::Stamped(3));
        assert_eq!(asked(11, 1, 5), AttrReply::Stamped(4));
        assert_eq!(asked(11, 1, 300), AttrReply::Stamped(5));
        assert_eq!(asked(11, 2, 301), AttrReply::Invalidate);
        // A handle that is opened now does not cache, and changes nothing for the old one.
        kernel_cache.open(&attr(10, 1), || Mode::Shared, true);
        kernel_cache.release(InodeId(5), true);
        assert_eq!(asked(11, 1, 302), AttrReply::Invalidate);
        kernel_cache.release(InodeId(5), true);
        kernel_cache.open(&attr(10, 1), || Mode::Shared, true);
        assert_eq!(asked(11, 1, 303), AttrReply::Plain, "it reads around the cache");
    }

    #[test]
    fn nothing_is_believed_without_a_lease() {
        let (kernel_cache, now) = (KernelCache::default(), Instant::now());
        kernel_cache.open(&attr(10, 1), || Mode::Readers, false);
        let short = Duration::from_millis(300);
        assert_eq!(kernel_cache.tell(&attr(10, 1), short), short);
        assert_eq!(kernel_cache.asked(&attr(10, 1), 1, short, now), AttrReply::Plain);
        assert_eq!(kernel_cache.tell(&attr(10, 1), Duration::ZERO), Duration::ZERO);
        assert_eq!(kernel_cache.asked(&attr(10, 1), 1, Duration::ZERO, now), AttrReply::Invalidate);
        // Others were let in; the handle is of no use any more, and must not show what it showed.
        kernel_cache.recall(InodeId(5), Recalled::Lost);
        assert_eq!(kernel_cache.asked(&attr(10, 1), 1, LEASE, now), AttrReply::Stamped(1));
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_open_files_stay() {
        let kernel_cache = KernelCache::default();
        kernel_cache.open(&attr(10, 1), || Mode::Shared, true);
        for inode in 0..REMEMBERED_MAX as u64 + 10 {
            kernel_cache.tell(&Attr { inode: InodeId(100 + inode), ..attr(1, 1) }, LEASE);
        }
        assert!(kernel_cache.lock().len() < REMEMBERED_MAX);
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), Duration::ZERO);
    }
}
