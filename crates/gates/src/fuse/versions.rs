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
//!   (`FUSE_AUTO_INVAL_DATA`). So attributes of a shared file are believed for no time, and before they are told all
//!   pages are forgotten, those that are being read at the moment too: what such a read then finds was fetched after it
//!   had begun. Attributes of other files are believed no longer than this client has a lease, so this also holds for a
//!   client that was stopped and whose lease ran out meanwhile;
//! * before a recalled mode is confirmed the attributes that were told earlier are forgotten.
//!
//! What maps a file, or moves its pages into a pipe, does not ask for attributes: a map of a file that others write
//! shows old bytes until somebody on the same machine reads the file or asks for its attributes.
//!
//! Nothing happens behind the kernel's back on an exclusive mount: it may believe everything for long, and it must keep
//! its pages, of which some may be newer than what this process knows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::Recalled;
use types::messages::cluster::Mode;
use types::messages::names::{Attr, FileKind};
use types::{InodeId, ObjectId};

/// How long the kernel may believe names and attributes.
const TTL: Duration = Duration::from_secs(1);
/// How long it may on an exclusive mount.
const TTL_EXCLUSIVE: Duration = Duration::from_secs(3600);
/// Inodes that are remembered; beyond, everything is forgotten and learned anew.
const REMEMBERED_MAX: usize = 1 << 16;

/// The contents of a file at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    object: ObjectId,
    size: u64,
    mtime: u64,
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
}

/// See the module.
#[derive(Default)]
pub(super) struct Versions {
    exclusive: bool,
    files: Mutex<BTreeMap<InodeId, Memory>>,
}

/// What an open means for the kernel's caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opening {
    /// Its attributes are out of date: it must forget them before the open is answered.
    pub(super) forget_attributes: bool,
    /// Its pages are still right.
    pub(super) keep_pages: bool,
    /// Nobody may cache.
    pub(super) direct: bool,
}

impl Versions {
    /// For a mount that may be the only one of its volume.
    pub(super) fn new(exclusive: bool) -> Versions {
        Versions { exclusive, files: Mutex::default() }
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

    /// True if the kernel must forget a file's pages before it is told attributes by a client with a lease of so long.
    pub(super) fn must_forget(&self, inode: InodeId, leased: Duration) -> bool {
        let files = self.lock();
        files.get(&inode).is_some_and(|memory| memory.caching && (memory.shared || leased.is_zero()))
    }

    /// Notes an open of a file in the mode that `mode` tells: a recall comes either before that, or finds the handle
    /// here. The new handle's pages show `attr` from here on.
    pub(super) fn open(&self, attr: &Attr, mode: impl FnOnce() -> Mode, write: bool) -> Opening {
        if self.exclusive {
            return Opening { forget_attributes: false, keep_pages: true, direct: false };
        }
        let mut files = self.lock();
        make_room(&mut files);
        let memory = files.entry(attr.inode).or_default();
        let version = Version::of(attr);
        let direct = mode() == Mode::Shared;
        let opening = Opening {
            forget_attributes: memory.told != Some(version),
            keep_pages: !direct && memory.pages == Some(version),
            direct,
        };
        memory.opens += 1;
        memory.caching |= !direct;
        memory.shared = direct;
        memory.told = Some(version);
        // A writer's pages soon show something else; what, is learned at the next open.
        memory.pages = (!direct && !write).then_some(version);
        opening
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
        Version { object: attr.object, size: attr.size, mtime: attr.mtime }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn attr(size: u64, mtime: u64) -> Attr {
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
        }
    }

    #[test]
    fn pages_are_kept_only_while_the_file_is_as_it_was() {
        let versions = Versions::default();
        assert_eq!(versions.tell(&attr(10, 1), LEASE), TTL);
        let first = versions.open(&attr(10, 1), || Mode::Readers, false);
        assert_eq!(first, Opening { forget_attributes: false, keep_pages: false, direct: false });
        versions.release(InodeId(5), false);
        assert!(versions.open(&attr(10, 1), || Mode::Readers, false).keep_pages);
        versions.release(InodeId(5), false);
        let changed = versions.open(&attr(20, 2), || Mode::Readers, false);
        assert_eq!(changed, Opening { forget_attributes: true, keep_pages: false, direct: false });
    }

    #[test]
    fn what_was_written_here_is_not_taken_for_what_was_read() {
        let versions = Versions::default();
        versions.open(&attr(10, 1), || Mode::Alone, true);
        versions.release(InodeId(5), true);
        assert!(!versions.open(&attr(10, 1), || Mode::Alone, false).keep_pages);
    }

    #[test]
    fn the_kernel_of_an_exclusive_mount_knows_best() {
        let versions = Versions::new(true);
        assert_eq!(versions.tell(&attr(10, 1), LEASE), TTL_EXCLUSIVE);
        let keeps = Opening { forget_attributes: false, keep_pages: true, direct: false };
        assert_eq!(versions.open(&attr(10, 1), || Mode::Alone, true), keeps);
        versions.release(InodeId(5), true);
        assert_eq!(versions.open(&attr(20, 2), || Mode::Readers, false), keeps);
        assert!(versions.lock().is_empty(), "nothing has to be remembered");
    }

    #[test]
    fn shared_files_are_not_cached() {
        let versions = Versions::default();
        versions.open(&attr(10, 1), || Mode::Alone, true);
        versions.recall(InodeId(5), Recalled::To(Mode::Shared));
        assert_eq!(versions.tell(&attr(10, 1), LEASE), Duration::ZERO);
        let second = versions.open(&attr(10, 1), || Mode::Shared, false);
        assert_eq!((second.direct, second.keep_pages), (true, false));
        versions.release(InodeId(5), false);
        versions.release(InodeId(5), true);
        assert_eq!(versions.tell(&attr(10, 1), LEASE), TTL);
    }

    #[test]
    fn handles_from_before_the_sharing_find_no_pages() {
        let versions = Versions::default();
        assert!(!versions.must_forget(InodeId(5), LEASE));
        versions.open(&attr(10, 1), || Mode::Alone, true);
        assert!(!versions.must_forget(InodeId(5), LEASE), "nobody else may change it");
        versions.recall(InodeId(5), Recalled::To(Mode::Shared));
        assert!(versions.must_forget(InodeId(5), LEASE));
        // A handle that is opened now does not cache, and changes nothing for the old one.
        versions.open(&attr(10, 1), || Mode::Shared, true);
        versions.release(InodeId(5), true);
        assert!(versions.must_forget(InodeId(5), LEASE));
        versions.release(InodeId(5), true);
        assert!(!versions.must_forget(InodeId(5), LEASE), "nobody has it open");
        versions.open(&attr(10, 1), || Mode::Shared, true);
        assert!(!versions.must_forget(InodeId(5), LEASE), "it reads around the cache");
    }

    #[test]
    fn nothing_is_believed_without_a_lease() {
        let versions = Versions::default();
        versions.open(&attr(10, 1), || Mode::Readers, false);
        let short = Duration::from_millis(300);
        assert_eq!(versions.tell(&attr(10, 1), short), short);
        assert!(!versions.must_forget(InodeId(5), short));
        assert_eq!(versions.tell(&attr(10, 1), Duration::ZERO), Duration::ZERO);
        assert!(versions.must_forget(InodeId(5), Duration::ZERO));
        // Others were let in; the handle is of no use any more, and must not show what it showed.
        versions.recall(InodeId(5), Recalled::Lost);
        assert!(versions.must_forget(InodeId(5), LEASE));
        assert_eq!(versions.tell(&attr(10, 1), LEASE), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_open_files_stay() {
        let versions = Versions::default();
        versions.open(&attr(10, 1), || Mode::Shared, true);
        for inode in 0..REMEMBERED_MAX as u64 + 10 {
            versions.tell(&Attr { inode: InodeId(100 + inode), ..attr(1, 1) }, LEASE);
        }
        assert!(versions.lock().len() < REMEMBERED_MAX);
        assert_eq!(versions.tell(&attr(10, 1), LEASE), Duration::ZERO);
    }
}
