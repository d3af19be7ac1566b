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
use types::{InodeId, ObjectId, cost};

/// How long the kernel may cache names and attributes.
pub(super) const TTL: Duration = Duration::from_secs(1);
/// The same for an exclusive mount.
const TTL_EXCLUSIVE: Duration = Duration::from_secs(3600);
/// Most closed files in the table. Beyond this, all closed files are dropped.
const REMEMBERED_MAX: usize = 1 << 16;

/// A thread that has not used a file for this long cannot interfere with another thread's answer.
const QUIET: Duration = Duration::from_millis(200);
/// Most recent threads that are remembered per file.
const THREADS_MAX: usize = 16;

/// How to answer a request for attributes so that the caller reads no outdated cached page afterwards.
///
/// The kernel invalidates pages itself when an answer has a new size or time. But it ignores attributes if its own
/// have changed since it asked (by a write, or by another answer on this machine), or if pages were invalidated
/// meanwhile. So if several threads use the file at the same time, its pages are invalidated explicitly. The kernel
/// gets a new size when one thread is alone for a moment; until then an answer with a new size is sent although the
/// kernel may ignore it, and pages may stay outdated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttrReply {
    /// With the unchanged attributes.
    Plain,
    /// With these nanoseconds in the mtime, which no earlier answer had.
    Stamped(u64),
    /// After the pages were invalidated.
    Invalidate,
}

/// Identifies the contents of a file at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    object: ObjectId,
    size: u64,
    mtime: i64,
    /// Needed because the other three may be the same after a change: clocks differ, and times can be set.
    changes: u64,
}

#[derive(Default)]
struct Memory {
    /// The version that the kernel was last told.
    told: Option<Version>,
    /// `told` was in an answer from names read ahead.
    from_ahead: bool,
    /// The version of its cached pages.
    pages: Option<Version>,
    /// Number of handles.
    opens: u32,
    /// Some handle has used the cache since the file was last fully closed.
    caching: bool,
    /// Other clients may change the file while it is open.
    shared: bool,
    /// While it is shared: the size that the kernel was told, and whether the kernel may have ignored it.
    size: Option<u64>,
    unsure: bool,
    /// Number of stamped answers.
    stamps: u64,
    /// The last threads that used the file, and when.
    threads: Vec<(u32, Instant)>,
}

impl Memory {
    /// Records that a thread uses the file. True if no other thread has done so recently.
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
    files: Mutex<Files>,
}

/// The table of files.
#[derive(Default)]
struct Files {
    by_inode: BTreeMap<InodeId, Memory>,
    /// Number of closed files in the table. Only these may be dropped, so only these count against the bound.
    /// Otherwise, with many open files, each further one would walk the whole table in vain.
    closed: usize,
}

impl Files {
    fn get_mut(&mut self, inode: InodeId) -> Option<&mut Memory> {
        self.by_inode.get_mut(&inode)
    }

    /// The entry of a file. First drops all closed files if there are too many.
    fn entry(&mut self, inode: InodeId) -> &mut Memory {
        if self.closed >= REMEMBERED_MAX {
            cost::entries(self.by_inode.len());
            self.by_inode.retain(|_, memory| memory.opens > 0);
            self.closed = 0;
        }
        self.by_inode.entry(inode).or_insert_with(|| {
            self.closed += 1;
            Memory::default()
        })
    }

    /// The entry of a file that gets another handle.
    fn opened(&mut self, inode: InodeId) -> &mut Memory {
        let is_closed = self.entry(inode).opens == 0;
        self.closed -= usize::from(is_closed);
        let memory = self.entry(inode);
        memory.opens += 1;
        memory
    }

    /// Drops the entry of a closed file.
    fn removed(&mut self, inode: InodeId) {
        if self.by_inode.get(&inode).is_some_and(|memory| memory.opens == 0) {
            self.by_inode.remove(&inode);
            self.closed -= 1;
        }
    }

    /// The entry of a file that has lost a handle.
    fn released(&mut self, inode: InodeId) -> Option<&mut Memory> {
        let memory = self.by_inode.get_mut(&inode)?;
        self.closed += usize::from(memory.opens == 1);
        memory.opens = memory.opens.saturating_sub(1);
        Some(memory)
    }
}

/// What the kernel must do with its caches at an open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CachePolicy {
    /// Its attributes are outdated and must be invalidated before the open is answered.
    pub(super) invalidate_attributes: bool,
    /// Its pages are still valid.
    pub(super) keep_pages: bool,
    /// The handle must bypass the cache.
    pub(super) direct: bool,
}

impl KernelCache {
    /// For a mount that is exclusive or not.
    pub(super) fn new(exclusive: bool) -> KernelCache {
        KernelCache { exclusive, files: Mutex::default() }
    }

    /// How long the kernel may cache a name.
    pub(super) fn name_ttl(&self) -> Duration {
        if self.exclusive { TTL_EXCLUSIVE } else { TTL }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records attributes that are sent to the kernel; `leased` is the remaining lease. Returns how long the kernel
    /// may cache them.
    pub(super) fn tell(&self, attr: &Attr, leased: Duration) -> Duration {
        if self.exclusive || attr.kind != FileKind::File {
            return self.name_ttl();
        }
        let mut files = self.lock();
        let memory = files.entry(attr.inode);
        memory.told = Some(Version::of(attr));
        memory.from_ahead = false;
        if memory.shared { Duration::ZERO } else { TTL.min(leased) }
    }

    /// The same for attributes that were read ahead, unless the kernel was told newer ones meanwhile.
    pub(super) fn tell_from_ahead(&self, attr: &Attr, leased: Duration) -> Duration {
        let mut files = self.lock();
        let memory = files.entry(attr.inode);
        if memory.told.is_none_or(|told| told.changes <= attr.changes) {
            (memory.told, memory.from_ahead) = (Some(Version::of(attr)), true);
        }
        if memory.shared { Duration::ZERO } else { TTL.min(leased) }
    }

    /// Whether what was told last was read ahead, and the file has changed since.
    pub(super) fn is_outdated_from_ahead(&self, attr: &Attr) -> bool {
        let mut files = self.lock();
        let told =
            files.get_mut(attr.inode).filter(|memory| memory.from_ahead).and_then(|memory| memory.told);
        told.is_some_and(|told| told != Version::of(attr))
    }

    /// A file was removed, or one of its names. If it is closed, it is forgotten.
    pub(super) fn removed(&self, inode: InodeId) {
        self.lock().removed(inode);
    }

    /// How to answer a thread's request for attributes; `leased` is the remaining lease.
    pub(super) fn asked(&self, attr: &Attr, thread: u32, leased: Duration, now: Instant) -> AttrReply {
        let mut files = self.lock();
        let Some(memory) = files.get_mut(attr.inode).filter(|memory| memory.caching) else {
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

    /// Records that a thread changes a file, or gets its attributes in another answer, so that the kernel's
    /// attributes change.
    pub(super) fn acts(&self, inode: InodeId, thread: u32) {
        if self.exclusive {
            return;
        }
        if let Some(memory) = self.lock().get_mut(inode).filter(|memory| memory.caching && memory.shared) {
            memory.note(thread, Instant::now());
        }
    }

    /// Records an open of a file. `mode` is called under the lock: a recall either comes before that, or finds the
    /// new handle. From here on the cached pages are those of `attr`.
    pub(super) fn open(&self, attr: &Attr, mode: impl FnOnce() -> Mode, write: bool) -> CachePolicy {
        if self.exclusive {
            return CachePolicy { invalidate_attributes: false, keep_pages: true, direct: false };
        }
        let mut files = self.lock();
        let memory = files.opened(attr.inode);
        let version = Version::of(attr);
        let direct = mode() == Mode::Shared;
        let policy = CachePolicy {
            invalidate_attributes: memory.told != Some(version),
            keep_pages: !direct && memory.pages == Some(version),
            direct,
        };
        memory.caching |= !direct;
        memory.shared = direct;
        (memory.told, memory.from_ahead) = (Some(version), false);
        // A writer changes the pages, so their version is unknown until the next open.
        memory.pages = (!direct && !write).then_some(version);
        policy
    }

    /// Records the close of a handle.
    pub(super) fn release(&self, inode: InodeId, write: bool) {
        let mut files = self.lock();
        if let Some(memory) = files.released(inode) {
            memory.shared &= memory.opens > 0;
            memory.caching &= memory.opens > 0;
            if write {
                memory.pages = None;
                memory.told = None;
            }
        }
    }

    /// Records that nothing cached is valid any more.
    pub(super) fn recall(&self, inode: InodeId, recalled: Recalled) {
        let mut files = self.lock();
        if let Some(memory) = files.get_mut(inode) {
            if recalled != Recalled::EndLost {
                memory.shared = matches!(recalled, Recalled::To(Mode::Shared) | Recalled::Lost);
            }
            memory.size = memory.told.map(|told| told.size).or(memory.size);
            memory.pages = None;
            memory.told = None;
        }
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
    use crate::fuse::attributes::plain_attr;

    const LEASE: Duration = Duration::from_secs(3);

    fn attr(size: u64, mtime: i64) -> Attr {
        Attr { size, mtime, ..plain_attr(InodeId(5), FileKind::File) }
    }

    #[test]
    fn what_was_read_ahead_is_outdated_after_a_change() {
        let kernel_cache = KernelCache::default();
        let changed = |changes| Attr { changes, ..attr(20, 2) };
        kernel_cache.tell(&attr(10, 1), LEASE);
        assert!(!kernel_cache.is_outdated_from_ahead(&changed(1)), "it was not read ahead");
        assert_eq!(kernel_cache.tell_from_ahead(&attr(10, 1), LEASE), TTL);
        assert!(!kernel_cache.is_outdated_from_ahead(&attr(10, 1)), "it is as it was");
        assert!(kernel_cache.is_outdated_from_ahead(&changed(1)));
        kernel_cache.recall(InodeId(5), Recalled::To(Mode::Readers));
        assert!(!kernel_cache.is_outdated_from_ahead(&changed(1)), "the kernel has forgotten it");
        kernel_cache.tell(&changed(1), LEASE);
        kernel_cache.tell_from_ahead(&attr(10, 1), LEASE);
        assert!(!kernel_cache.is_outdated_from_ahead(&changed(2)), "the service was asked meanwhile");
    }

    #[test]
    fn removed_files_are_forgotten_when_they_are_closed() {
        let kernel_cache = KernelCache::default();
        kernel_cache.tell(&attr(10, 1), LEASE);
        kernel_cache.open(&attr(10, 1), || Mode::Readers, false);
        kernel_cache.removed(InodeId(5));
        assert_eq!(kernel_cache.lock().by_inode.len(), 1, "it is open");
        kernel_cache.release(InodeId(5), false);
        assert_eq!(kernel_cache.lock().closed, 1);
        kernel_cache.removed(InodeId(5));
        kernel_cache.removed(InodeId(5));
        let files = kernel_cache.lock();
        assert_eq!((files.by_inode.len(), files.closed), (0, 0));
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
        assert!(kernel_cache.lock().by_inode.is_empty(), "nothing has to be remembered");
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
        assert!(kernel_cache.lock().by_inode.len() < REMEMBERED_MAX);
        assert_eq!(kernel_cache.tell(&attr(10, 1), LEASE), Duration::ZERO);
    }

    #[test]
    fn one_more_open_file_costs_the_same_however_many_are_open() {
        let kernel_cache = KernelCache::default();
        let open = |inode| {
            kernel_cache.open(&Attr { inode: InodeId(inode), ..attr(1, 1) }, || Mode::Readers, false);
        };
        (0..REMEMBERED_MAX as u64 + 10).for_each(open);
        cost::take_ns();
        (REMEMBERED_MAX as u64 + 10..REMEMBERED_MAX as u64 + 1000).for_each(open);
        assert_eq!(cost::take_ns(), 0, "no open walks the files that are open already");
        for inode in 0..REMEMBERED_MAX as u64 {
            kernel_cache.release(InodeId(inode), false);
        }
        open(1 << 40);
        assert_eq!(kernel_cache.lock().by_inode.len(), 1001, "closed files are forgotten, open ones stay");
    }
}
