//! Files of directories that were listed, to answer lookups while this mount removes them.
//!
//! Whoever removes a tree lists each directory and then removes its files, one after the other. Before each removal the
//! kernel asks which file the name is of, unless it was told within the last second ([`TTL`]). But the answer to each
//! removal has the directory's number of changes. If that has grown by just one since the last answer, nobody else has
//! changed a name in between. So what was listed before is still true, and the next lookup is answered from here, as long
//! after the removal as the kernel may believe a name anyway.
//!
//! The attributes may be older than that, so the kernel is told not to believe them. It knows more than they say of a file
//! that this mount has used since: for such a file, and for one with several names, the service is asked. In a directory
//! with the sticky bit a file's owner decides who may remove it (`check_sticky`, Linux, fs/namei.c): such a directory is
//! not kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;
use types::messages::names::{Attr, DirEntry, FileKind};

use super::kernel_cache::TTL;

/// Most names in the table. Beyond this, all are dropped.
const REMEMBERED_MAX: usize = 16_384;
/// The bit of a mode that restricts removals.
const STICKY: u32 = 0o1000;

/// See the module.
#[derive(Default)]
pub(super) struct ListedFiles {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    directories: HashMap<InodeId, Directory>,
    /// Those of the listed files that were not used since.
    files: HashMap<InodeId, Attr>,
    /// Names in all directories.
    names: usize,
    /// Number of uses and removals of files by this mount. What was listed before the last one may be outdated.
    uses: u64,
}

struct Directory {
    /// Its number of changes in the last answer.
    changes: u64,
    /// When the last names were listed.
    listed: Instant,
    /// When the last removal was asked for whose answer shows that all listed names are true.
    confirmed: Option<Instant>,
    names: HashMap<Vec<u8>, InodeId>,
}

/// A request for a listing: the value of `uses` when it was sent.
#[derive(Clone, Copy)]
pub(super) struct Listing(u64);

impl ListedFiles {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request for a listing.
    pub(super) fn begin(&self) -> Listing {
        Listing(self.lock().uses)
    }

    /// The answer came. `directory`: attributes from before the request. `is_open`: whether this mount has a file open.
    pub(super) fn listed(
        &self,
        listing: Listing,
        directory: &Attr,
        entries: &[DirEntry],
        is_open: impl Fn(InodeId) -> bool,
        now: Instant,
    ) {
        let mut state = self.lock();
        if state.uses != listing.0 || directory.mode & STICKY != 0 {
            return;
        }
        let outdated = |known: &Directory| known.changes < directory.changes;
        if state.directories.get(&directory.inode).is_some_and(outdated) {
            state.forget(directory.inode);
        }
        let is_kept = |attr: &Attr| attr.kind == FileKind::File && attr.links == 1 && !is_open(attr.inode);
        let kept: Vec<_> = entries.iter().filter(|entry| is_kept(&entry.attr)).collect();
        if kept.is_empty() {
            return;
        }
        if state.names + kept.len() > REMEMBERED_MAX {
            state.clear();
        }
        let State { directories, files, names, .. } = &mut *state;
        let known = directories.entry(directory.inode).or_insert_with(|| Directory {
            changes: directory.changes,
            listed: now,
            confirmed: None,
            names: HashMap::new(),
        });
        (known.listed, known.confirmed) = (now, None);
        for DirEntry { name, attr, .. } in kept {
            *names += usize::from(known.names.insert(name.clone(), attr.inode).is_none());
            files.insert(attr.inode, attr.clone());
        }
    }

    /// This mount uses a file: opens, closes or changes it.
    pub(super) fn used(&self, inode: InodeId) {
        let mut state = self.lock();
        state.uses += 1;
        state.files.remove(&inode);
    }

    /// This mount is about to ask for the removal of a name. Returns the time, for [`ListedFiles::removed`].
    pub(super) fn removing(&self, directory: InodeId, name: &[u8]) -> Instant {
        let mut state = self.lock();
        state.uses += 1;
        let State { directories, files, names, .. } = &mut *state;
        if let Some(known) = directories.get_mut(&directory) {
            if let Some(inode) = known.names.remove(name) {
                *names -= 1;
                files.remove(&inode);
            }
            // So there are no more directories than names.
            if known.names.is_empty() {
                directories.remove(&directory);
            }
        }
        Instant::now()
    }

    /// The answer to a removal: the directory has these attributes.
    pub(super) fn removed(&self, asked: Instant, directory: &Attr) {
        let mut state = self.lock();
        let Some(known) = state.directories.get_mut(&directory.inode) else { return };
        if directory.changes != known.changes + 1 {
            state.forget(directory.inode);
            return;
        }
        known.changes = directory.changes;
        if asked >= known.listed {
            known.confirmed = Some(asked);
        }
    }

    /// Another change of a directory, or a removal that failed.
    pub(super) fn changed(&self, directory: InodeId) {
        self.lock().forget(directory);
    }

    /// The file of a name, and how long the kernel may believe that it is.
    pub(super) fn known(&self, directory: InodeId, name: &[u8], now: Instant) -> Option<(Attr, Duration)> {
        let state = self.lock();
        let known = state.directories.get(&directory)?;
        let left = (known.confirmed? + TTL).checked_duration_since(now).filter(|left| !left.is_zero())?;
        let attr = state.files.get(known.names.get(name)?)?;
        Some((attr.clone(), left))
    }
}

impl State {
    fn forget(&mut self, directory: InodeId) {
        // A listing whose answer is on its way may be older.
        self.uses += 1;
        let Some(known) = self.directories.remove(&directory) else { return };
        self.names -= known.names.len();
        for inode in known.names.values() {
            self.files.remove(inode);
        }
    }

    fn clear(&mut self) {
        *self = State { uses: self.uses, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectId;

    const DIR: InodeId = InodeId(5);

    fn attr(inode: u64, kind: FileKind, changes: u64) -> Attr {
        Attr {
            inode: InodeId(inode),
            kind,
            mode: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 9,
            atime: 0,
            mtime: 0,
            ctime: 0,
            object: ObjectId(0),
            stale_end: 0,
            truncate_seq: 0,
            changes,
        }
    }

    fn directory(changes: u64) -> Attr {
        attr(DIR.0, FileKind::Directory, changes)
    }

    fn name(number: u64) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    fn entries(numbers: std::ops::Range<u64>) -> Vec<DirEntry> {
        let entry = |n: u64| DirEntry { cookie: n, name: name(n), attr: attr(1000 + n, FileKind::File, 0) };
        numbers.map(entry).collect()
    }

    /// Files 0 to 9 of a directory with 7 changes were listed.
    fn table() -> ListedFiles {
        let listed = ListedFiles::default();
        listed.listed(listed.begin(), &directory(7), &entries(0..10), |_| false, Instant::now());
        listed
    }

    fn remove(listed: &ListedFiles, number: u64, changes: u64) -> Instant {
        let asked = listed.removing(DIR, &name(number));
        listed.removed(asked, &directory(changes));
        asked
    }

    fn knows(listed: &ListedFiles, number: u64, now: Instant) -> bool {
        listed.known(DIR, &name(number), now).is_some()
    }

    #[test]
    fn names_are_known_while_nobody_else_changes_the_directory() {
        let listed = table();
        assert!(!knows(&listed, 1, Instant::now()), "it may have changed since");
        let asked = remove(&listed, 0, 8);
        let (known, left) = listed.known(DIR, &name(1), asked + TTL / 4).expect("one change, by this mount");
        assert_eq!((known.inode, left), (InodeId(1001), TTL - TTL / 4));
        assert!(!knows(&listed, 0, asked), "it is removed");
        assert!(!knows(&listed, 1, asked + TTL), "that is long ago");
        let asked = remove(&listed, 1, 9);
        assert!(knows(&listed, 2, asked));
        let asked = remove(&listed, 2, 11);
        assert!(!knows(&listed, 3, asked), "somebody else has changed it");
        let asked = remove(&listed, 3, 12);
        assert!(!knows(&listed, 4, asked), "all was dropped");
    }

    #[test]
    fn other_changes_and_failures_end_it() {
        let listed = table();
        let asked = remove(&listed, 0, 8);
        listed.changed(DIR);
        assert!(!knows(&listed, 1, asked));
        let state = listed.lock();
        assert_eq!((state.names, state.files.len()), (0, 0));
    }

    #[test]
    fn files_that_were_used_are_asked_for() {
        let listed = table();
        listed.used(InodeId(1001));
        let asked = remove(&listed, 0, 8);
        assert!(!knows(&listed, 1, asked) && knows(&listed, 2, asked));
    }

    /// A file that is opened, written and closed while a listing is on its way is larger than the listing says.
    #[test]
    fn a_listing_that_a_use_has_overtaken_is_not_believed() {
        let listed = ListedFiles::default();
        let listing = listed.begin();
        listed.used(InodeId(1001));
        listed.listed(listing, &directory(7), &entries(0..10), |_| false, Instant::now());
        let asked = remove(&listed, 0, 8);
        assert!(!knows(&listed, 1, asked));
        let listing = listed.begin();
        let asked = remove(&listed, 2, 9);
        listed.listed(listing, &directory(7), &entries(0..10), |_| false, Instant::now());
        assert!(!knows(&listed, 2, asked));
    }

    #[test]
    fn a_removal_confirms_no_later_listing() {
        let listed = table();
        let asked = listed.removing(DIR, &name(0));
        let now = asked + TTL / 4;
        listed.listed(listed.begin(), &directory(7), &entries(10..20), |_| false, now);
        listed.removed(asked, &directory(8));
        assert!(!knows(&listed, 11, now));
    }

    #[test]
    fn a_directory_that_was_opened_anew_after_another_change_is_listed_anew() {
        let listed = table();
        listed.listed(listed.begin(), &directory(9), &entries(5..10), |_| false, Instant::now());
        let asked = remove(&listed, 5, 10);
        assert!(!knows(&listed, 1, asked) && knows(&listed, 6, asked));
    }

    #[test]
    fn what_is_open_linked_sticky_or_no_file_is_not_kept() {
        let listed = ListedFiles::default();
        let mut some = entries(0..4);
        some[1].attr.links = 2;
        some[2].attr.kind = FileKind::Symlink;
        let is_open = |inode| inode == InodeId(1003);
        listed.listed(listed.begin(), &directory(7), &some, is_open, Instant::now());
        assert_eq!(listed.lock().names, 1);
        let sticky = Attr { mode: 0o1777, ..directory(7) };
        let listed = ListedFiles::default();
        listed.listed(listed.begin(), &sticky, &some, is_open, Instant::now());
        assert_eq!(listed.lock().names, 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let listed = ListedFiles::default();
        for part in 0..300 {
            let some = entries(part * 192..(part + 1) * 192);
            listed.listed(listed.begin(), &directory(7), &some, |_| false, Instant::now());
            let state = listed.lock();
            assert!(state.names <= REMEMBERED_MAX && state.files.len() <= REMEMBERED_MAX);
            assert_eq!(state.names, state.directories[&DIR].names.len());
        }
        // A last part without entries is no reason to drop all.
        listed.listed(listed.begin(), &directory(7), &[], |_| false, Instant::now());
        assert!(listed.lock().names > 0);
        let listed = table();
        for number in 0..10 {
            remove(&listed, number, 8 + number);
        }
        listed.listed(listed.begin(), &directory(18), &[], |_| false, Instant::now());
        let state = listed.lock();
        assert!(
            state.directories.is_empty() && state.files.is_empty(),
            "directories without names are not counted"
        );
    }
}
