//! Which directory the kernel takes a name for.
//!
//! When the kernel has removed a directory, or has put another in its place, it marks the one that it takes the name
//! for as dead. From then on this one lists nothing and takes no new name, for as long as the kernel remembers it. But
//! another mount may have given the name to another directory since the kernel last asked, and what was removed is that
//! one; the directory that is marked lives on elsewhere in the tree. So a request to remove or replace a directory says
//! which one the kernel means. If the name is another's by now, the service refuses with `Stale`, and the kernel looks
//! the name up and tries again (`LOOKUP_REVAL`).
//!
//! Here is what the kernel was last told of each name of a directory. It may know less by now. If two look-ups were answered with
//! different directories, the kernel may have taken the answers in another order, so it is asked to look again.
//! `S_DEAD` is set in `vfs_rmdir` and `vfs_rename` of Linux (fs/namei.c).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;

/// Most names in the table. Beyond this, names that the kernel must ask about again are dropped, or else all of them.
/// Without an entry, a request says nothing of what the kernel means.
const REMEMBERED_MAX: usize = 16_384;

/// A directory and a name in it.
type Place = (InodeId, Vec<u8>);

/// See the module.
#[derive(Default)]
pub(super) struct DirNames {
    told: Mutex<HashMap<Place, Told>>,
}

#[derive(Clone, Copy)]
struct Told {
    inode: InodeId,
    /// From then on the kernel asks before it uses the name.
    until: Instant,
    /// Until then the kernel may take the name for another directory, of which it was told before.
    unsure_until: Option<Instant>,
}

/// The directory that the kernel takes a name for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Meant {
    pub(super) inode: InodeId,
    /// It may be another one, unless the kernel has just looked again.
    pub(super) is_unsure: bool,
}

impl DirNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that the kernel takes a name for, if it is known.
    pub(super) fn meant(&self, parent: InodeId, name: &[u8], now: Instant) -> Option<Meant> {
        let told = *self.lock().get(&(parent, name.to_vec()))?;
        Some(Meant { inode: told.inode, is_unsure: told.unsure_until.is_some_and(|until| until > now) })
    }

    /// The kernel is told that a name is that of a directory. It believes so for `ttl`, counted from when it hears it.
    pub(super) fn told(&self, parent: InodeId, name: &[u8], inode: InodeId, now: Instant, ttl: Duration) {
        let mut told = self.lock();
        if told.len() >= REMEMBERED_MAX {
            told.retain(|_, told| told.until > now);
        }
        if told.len() >= REMEMBERED_MAX {
            told.clear();
        }
        let place = (parent, name.to_vec());
        let unsure_until = told.get(&place).and_then(|before| match before.inode == inode {
            true => before.unsure_until,
            false => Some(before.until).max(before.unsure_until),
        });
        // The answer takes a while to reach the kernel.
        told.insert(place, Told { inode, until: now + 2 * ttl, unsure_until });
    }

    /// The kernel is told that a name is not that of a directory, or has removed it.
    pub(super) fn forget(&self, parent: InodeId, name: &[u8]) {
        let mut told = self.lock();
        if !told.is_empty() {
            told.remove(&(parent, name.to_vec()));
        }
    }

    /// The kernel has moved a name, or swapped two.
    pub(super) fn moved(&self, from: (InodeId, &[u8]), to: (InodeId, &[u8]), exchanged: bool) {
        let (from, to) = ((from.0, from.1.to_vec()), (to.0, to.1.to_vec()));
        let mut told = self.lock();
        let (source, target) = (told.remove(&from), told.remove(&to));
        if let Some(source) = source {
            told.insert(to, source);
        }
        if let Some(target) = target.filter(|_| exchanged) {
            told.insert(from, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(1);
    const TTL: Duration = Duration::from_secs(1);

    #[test]
    fn names_move_as_the_kernel_moves_them() {
        let (names, now) = (DirNames::default(), Instant::now());
        names.told(DIR, b"a", InodeId(5), now, TTL);
        names.told(DIR, b"b", InodeId(6), now, TTL);
        let meant =
            || [&b"a"[..], b"b", b"c"].map(|name| names.meant(DIR, name, now).map(|meant| meant.inode.0));
        names.moved((DIR, b"a"), (DIR, b"b"), true);
        assert_eq!(meant(), [Some(6), Some(5), None]);
        names.moved((DIR, b"a"), (DIR, b"c"), false);
        assert_eq!(meant(), [None, Some(5), Some(6)]);
        // A file in its place.
        names.moved((DIR, b"f"), (DIR, b"b"), false);
        names.forget(DIR, b"c");
        assert_eq!(meant(), [None, None, None]);
    }

    #[test]
    fn answers_may_have_overtaken_each_other() {
        let (names, now) = (DirNames::default(), Instant::now());
        let meant = |at: Instant| names.meant(DIR, b"a", at).map(|meant| (meant.inode.0, meant.is_unsure));
        names.told(DIR, b"a", InodeId(5), now, TTL);
        names.told(DIR, b"a", InodeId(5), now, TTL);
        assert_eq!(meant(now), Some((5, false)));
        names.told(DIR, b"a", InodeId(6), now + TTL, TTL);
        names.told(DIR, b"a", InodeId(6), now + TTL, TTL);
        assert_eq!(meant(now + TTL), Some((6, true)), "the kernel may have heard of the first one last");
        assert_eq!(meant(now + 2 * TTL), Some((6, false)), "it does not believe that any more");
        names.forget(DIR, b"a");
        names.told(DIR, b"a", InodeId(7), now, TTL);
        assert_eq!(meant(now), Some((7, false)), "the kernel has removed the others itself");
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_the_kernel_may_use() {
        let (names, now) = (DirNames::default(), Instant::now());
        let name = |number: usize| number.to_string().into_bytes();
        names.told(DIR, &name(0), InodeId(7), now, TTL);
        let later = now + 3 * TTL;
        (1..REMEMBERED_MAX).for_each(|n| names.told(DIR, &name(n), InodeId(8), later, TTL));
        names.told(DIR, b"one more", InodeId(9), later, TTL);
        let meant = |n| names.meant(DIR, &name(n), later).map(|meant| meant.inode);
        assert_eq!((meant(0), meant(1)), (None, Some(InodeId(8))));
        (0..REMEMBERED_MAX).for_each(|n| names.told(DIR, &name(n), InodeId(8), later, TTL));
        assert!(names.lock().len() <= REMEMBERED_MAX);
    }
}
