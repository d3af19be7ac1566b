//! By which names the kernel may find a file.
//!
//! The kernel believes names for [`TTL`]. Meanwhile another mount may give a name to another file. The kernel opens the file that
//! it knows, and does not say by which name it has found it. So the request to open says all names by which the kernel may have. If
//! the file has lost one of them, the service refuses with `Stale`. Then the kernel looks the name up and opens what it has found
//! ([`retries`](super::retries)).
//!
//! Names that the kernel must ask about again are of no use here. They go when they are old, half of the table at a time.

use std::collections::HashMap;
use std::iter::successors;
use std::mem::swap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;
use types::limits::OPEN_NAMES_MAX;
use types::messages::names::NamedAs;

use super::kernel_cache::TTL;

/// Most names in each half of the table.
const HALF_MAX: usize = 32_768;
/// How long a name may be believed since it was told: the answer takes a while to reach the kernel.
const BELIEVED: Duration = TTL.saturating_mul(2);

/// See the module.
#[derive(Default)]
pub(super) struct FileNames {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newer: Half,
    older: Half,
    /// When `newer` was begun.
    begun: Option<Instant>,
    /// Until then the kernel may believe names that are not here.
    forgot_until: Option<Instant>,
}

/// Names that were told within some time. Adding one allocates nothing, most times: each lookup of a file adds one.
#[derive(Default)]
struct Half {
    /// The last place in `told` of each file.
    last: HashMap<InodeId, usize>,
    told: Vec<Told>,
    /// The names, one after the other.
    text: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Told {
    parent: InodeId,
    /// Where the name begins in `text`, and its length.
    name: (usize, usize),
    until: Instant,
    /// The place of the name of the same file that was added before.
    before: Option<usize>,
}

/// What is known of the names of a file that the kernel opens.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// The kernel has found it by one of these, or without a name if there are none.
    Names(Vec<NamedAs>),
    /// There may be others.
    Unknown,
}

impl FileNames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told that a name is that of a file.
    pub(super) fn told(&self, parent: InodeId, name: &[u8], inode: InodeId, now: Instant) {
        let mut state = self.lock();
        state.turn(now);
        state.newer.add(inode, parent, name, now + BELIEVED);
    }

    /// The names by which the kernel may find a file.
    pub(super) fn known(&self, inode: InodeId, now: Instant) -> Known {
        let state = self.lock();
        let mut names: Vec<NamedAs> = Vec::new();
        for half in [&state.newer, &state.older] {
            let believed = half.of(inode).map(|at| &half.told[at]).filter(|told| told.until > now);
            for told in believed {
                let (parent, name) = (told.parent, half.name(told));
                let is_known = names.iter().any(|known| known.parent == parent && known.name == name);
                if !is_known {
                    names.push(NamedAs { parent, name: name.to_vec() });
                }
            }
        }
        let forgot = state.forgot_until.is_some_and(|until| until > now);
        if names.len() > OPEN_NAMES_MAX || names.is_empty() && forgot {
            return Known::Unknown;
        }
        Known::Names(names)
    }

    /// The kernel has removed a name of a file.
    pub(super) fn removed(&self, parent: InodeId, name: &[u8], inode: InodeId) {
        self.lock().take(parent, name, inode);
    }

    /// The kernel has moved a name of a file, or of something else.
    pub(super) fn moved(&self, from: (InodeId, &[u8]), to: (InodeId, &[u8]), inode: InodeId) {
        let mut state = self.lock();
        if let Some(until) = state.take(from.0, from.1, inode) {
            state.newer.add(inode, to.0, to.1, until);
        }
    }
}

impl Half {
    /// The places of the names of a file.
    fn of(&self, inode: InodeId) -> impl Iterator<Item = usize> {
        successors(self.last.get(&inode).copied(), |at| self.told[*at].before)
    }

    fn name(&self, told: &Told) -> &[u8] {
        let (start, len) = told.name;
        &self.text[start..start + len]
    }

    /// The place of a name of a file.
    fn find(&self, inode: InodeId, parent: InodeId, name: &[u8]) -> Option<usize> {
        self.of(inode).find(|at| self.told[*at].parent == parent && self.name(&self.told[*at]) == name)
    }

    fn add(&mut self, inode: InodeId, parent: InodeId, name: &[u8], until: Instant) {
        if let Some(known) = self.find(inode, parent, name) {
            self.told[known].until = until;
            return;
        }
        if self.of(inode).count() > OPEN_NAMES_MAX {
            // Too many for a request. Those that are here stand for all.
            let others: Vec<usize> = self.of(inode).collect();
            others.into_iter().for_each(|at| self.told[at].until = until);
            return;
        }
        let before = self.last.insert(inode, self.told.len());
        self.told.push(Told { parent, name: (self.text.len(), name.len()), until, before });
        self.text.extend_from_slice(name);
    }

    /// Takes a name of a file out, so that the file has as few places as names. Returns until when it was believed.
    fn take(&mut self, inode: InodeId, parent: InodeId, name: &[u8]) -> Option<Instant> {
        let at = self.find(inode, parent, name)?;
        let Told { until, before, .. } = self.told[at];
        let after = self.of(inode).find(|after| self.told[*after].before == Some(at));
        match (after, before) {
            (Some(after), _) => self.told[after].before = before,
            (None, Some(before)) => drop(self.last.insert(inode, before)),
            (None, None) => drop(self.last.remove(&inode)),
        }
        Some(until)
    }

    /// Forgets all names. Keeps the memory if it was of use.
    fn clear(&mut self) {
        if self.told.len() < self.told.capacity() / 4 {
            *self = Half::default();
        }
        self.last.clear();
        self.told.clear();
        self.text.clear();
    }
}

impl State {
    /// Begins a new half if the newer one is full or old, and forgets the oldest names.
    fn turn(&mut self, now: Instant) {
        let begun = *self.begun.get_or_insert(now);
        let age = now.saturating_duration_since(begun);
        if self.newer.told.len() < HALF_MAX && age < BELIEVED {
            return;
        }
        if age < BELIEVED && !self.older.told.is_empty() {
            self.forgot_until = Some(now + BELIEVED);
        }
        self.begun = Some(now);
        swap(&mut self.newer, &mut self.older);
        self.newer.clear();
    }

    /// Takes a name of a file out. Returns until when it was believed.
    fn take(&mut self, parent: InodeId, name: &[u8], inode: InodeId) -> Option<Instant> {
        let (older, newer) = (self.older.take(inode, parent, name), self.newer.take(inode, parent, name));
        newer.or(older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId(1);
    const FILE: InodeId = InodeId(5);

    fn names(file_names: &FileNames, inode: InodeId, now: Instant) -> Vec<String> {
        let Known::Names(names) = file_names.known(inode, now) else { panic!("they are not known") };
        let mut names: Vec<_> =
            names.into_iter().map(|named| String::from_utf8(named.name).expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_the_names_that_the_kernel_believes() {
        let (file_names, now) = (FileNames::default(), Instant::now());
        assert_eq!(file_names.known(FILE, now), Known::Names(vec![]), "it was found without a name");
        file_names.told(DIR, b"a", FILE, now);
        file_names.told(DIR, b"b", FILE, now + TTL);
        file_names.told(DIR, b"a", InodeId(6), now + TTL);
        assert_eq!(
            names(&file_names, FILE, now + TTL),
            ["a", "b"],
            "the kernel may not have heard of the other"
        );
        assert_eq!(names(&file_names, FILE, now + BELIEVED), ["b"]);
        file_names.told(DIR, b"b", FILE, now + BELIEVED);
        assert_eq!(names(&file_names, FILE, now + BELIEVED + TTL), ["b"]);
        assert!(names(&file_names, FILE, now + 2 * BELIEVED).is_empty());
    }

    #[test]
    fn names_move_as_the_kernel_moves_them() {
        let (file_names, now) = (FileNames::default(), Instant::now());
        file_names.told(DIR, b"a", FILE, now);
        file_names.told(DIR, b"b", FILE, now);
        file_names.moved((DIR, b"a"), (DIR, b"c"), FILE);
        file_names.moved((DIR, b"x"), (DIR, b"y"), FILE);
        assert_eq!(names(&file_names, FILE, now), ["b", "c"]);
        file_names.removed(DIR, b"b", FILE);
        assert_eq!(names(&file_names, FILE, now), ["c"]);
        file_names.removed(DIR, b"c", FILE);
        file_names.moved((DIR, b"c"), (DIR, b"d"), FILE);
        assert!(names(&file_names, FILE, now).is_empty(), "what was removed does not move");
        assert!(file_names.lock().newer.last.is_empty());
        file_names.told(DIR, b"c", FILE, now);
        assert_eq!(names(&file_names, FILE, now), ["c"]);
    }

    #[test]
    fn names_are_taken_out_in_any_order() {
        for first in 0..3 {
            for second in 0..2 {
                let (file_names, now) = (FileNames::default(), Instant::now());
                let mut all = vec!["a", "b", "c"];
                all.iter().for_each(|name| file_names.told(DIR, name.as_bytes(), FILE, now));
                file_names.told(DIR, b"a", InodeId(6), now);
                for at in [first, second] {
                    file_names.removed(DIR, all.remove(at).as_bytes(), FILE);
                    assert_eq!(names(&file_names, FILE, now), all);
                }
                assert_eq!(names(&file_names, InodeId(6), now), ["a"]);
            }
        }
    }

    #[test]
    fn more_names_than_there_is_room_for_are_unknown() {
        let (file_names, now) = (FileNames::default(), Instant::now());
        (0..100).for_each(|n: u32| file_names.told(DIR, n.to_string().as_bytes(), FILE, now));
        assert_eq!(file_names.known(FILE, now), Known::Unknown);
        assert_eq!(file_names.known(InodeId(6), now), Known::Names(vec![]));
        let later = now + BELIEVED;
        (0..100).for_each(|n: u32| file_names.told(DIR, n.to_string().as_bytes(), FILE, later));
        assert_eq!(file_names.lock().newer.told.len(), OPEN_NAMES_MAX + 1);
        // Names that the kernel believes have to go.
        (0..3 * HALF_MAX as u64).for_each(|inode| file_names.told(DIR, b"n", InodeId(100 + inode), later));
        let state = file_names.lock();
        assert!(state.newer.told.len() <= HALF_MAX && state.older.told.len() <= HALF_MAX);
        drop(state);
        assert_eq!(file_names.known(InodeId(100), later), Known::Unknown);
        assert_eq!(file_names.known(InodeId(100), later + BELIEVED), Known::Names(vec![]));
        assert_eq!(names(&file_names, InodeId(100 + 3 * HALF_MAX as u64 - 1), later), ["n"]);
    }
}
