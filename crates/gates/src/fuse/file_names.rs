//! By which names the kernel may find a file.
//!
//! The kernel believes names for [`TTL`]. Meanwhile another mount may give a name to another file. The kernel opens the file that
//! it knows, and does not say by which name it has found it. So the request to open says all names by which the kernel may have. If
//! the file has lost one of them, the service refuses with `Stale`. Then the kernel looks the name up and opens what it has found
//! ([`retries`](super::retries)).
//!
//! Names that the kernel must ask about again are of no use here. They go when they are old, half of the table at a time.

use std::collections::HashMap;
use std::mem::take;
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

#[derive(Default)]
struct Half {
    files: HashMap<InodeId, Vec<Told>>,
    /// Number of names.
    names: usize,
}

struct Told {
    parent: InodeId,
    name: Box<[u8]>,
    until: Instant,
}

impl Told {
    fn is(&self, parent: InodeId, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
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
        let dropped = {
            let mut state = self.lock();
            let dropped = state.turn(now);
            let until = now + BELIEVED;
            state.newer.add(inode, Told { parent, name: name.into(), until });
            dropped
        };
        // Many names: not under the lock.
        drop(dropped);
    }

    /// The names by which the kernel may find a file.
    pub(super) fn known(&self, inode: InodeId, now: Instant) -> Known {
        let state = self.lock();
        let told =
            [&state.newer, &state.older].into_iter().filter_map(|half| half.files.get(&inode)).flatten();
        let mut names: Vec<NamedAs> = Vec::new();
        for Told { parent, name, .. } in told.filter(|told| told.until > now) {
            let is_known = names.iter().any(|known| known.parent == *parent && *known.name == **name);
            if !is_known {
                names.push(NamedAs { parent: *parent, name: name.to_vec() });
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
        if let Some(told) = state.take(from.0, from.1, inode) {
            state.newer.add(inode, Told { parent: to.0, name: to.1.into(), ..told });
        }
    }
}

impl Half {
    fn add(&mut self, inode: InodeId, told: Told) {
        let names = self.files.entry(inode).or_default();
        if let Some(known) = names.iter_mut().find(|known| known.is(told.parent, &told.name)) {
            known.until = told.until;
        } else if names.len() > OPEN_NAMES_MAX {
            // Too many for a request. Those that are here stand for all.
            names.iter_mut().for_each(|known| known.until = told.until);
        } else {
            names.push(told);
            self.names += 1;
        }
    }
}

impl State {
    /// Begins a new half if the newer one is full or old. Returns the oldest names.
    fn turn(&mut self, now: Instant) -> Half {
        let begun = *self.begun.get_or_insert(now);
        let age = now.saturating_duration_since(begun);
        if self.newer.names < HALF_MAX && age < BELIEVED {
            return Half::default();
        }
        if age < BELIEVED && self.older.names > 0 {
            self.forgot_until = Some(now + BELIEVED);
        }
        self.begun = Some(now);
        let newer = take(&mut self.newer);
        std::mem::replace(&mut self.older, newer)
    }

    /// Takes a name of an inode out.
    fn take(&mut self, parent: InodeId, name: &[u8], inode: InodeId) -> Option<Told> {
        let mut taken = None;
        for half in [&mut self.older, &mut self.newer] {
            let Some(names) = half.files.get_mut(&inode) else { continue };
            if let Some(at) = names.iter().position(|told| told.is(parent, name)) {
                taken = Some(names.swap_remove(at));
                half.names -= 1;
            }
            if names.is_empty() {
                half.files.remove(&inode);
            }
        }
        taken
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
        let state = file_names.lock();
        assert_eq!((state.newer.names, state.newer.files.len()), (0, 0));
    }

    #[test]
    fn more_names_than_there_is_room_for_are_unknown() {
        let (file_names, now) = (FileNames::default(), Instant::now());
        (0..100).for_each(|n: u32| file_names.told(DIR, n.to_string().as_bytes(), FILE, now));
        assert_eq!(file_names.known(FILE, now), Known::Unknown);
        assert_eq!(file_names.known(InodeId(6), now), Known::Names(vec![]));
        let later = now + BELIEVED;
        (0..100).for_each(|n: u32| file_names.told(DIR, n.to_string().as_bytes(), FILE, later));
        assert_eq!(file_names.lock().newer.names, OPEN_NAMES_MAX + 1);
        // Names that the kernel believes have to go.
        (0..3 * HALF_MAX as u64).for_each(|inode| file_names.told(DIR, b"n", InodeId(100 + inode), later));
        let state = file_names.lock();
        assert!(state.newer.names <= HALF_MAX && state.older.names <= HALF_MAX);
        drop(state);
        assert_eq!(file_names.known(InodeId(100), later), Known::Unknown);
        assert_eq!(file_names.known(InodeId(100), later + BELIEVED), Known::Names(vec![]));
        assert_eq!(names(&file_names, InodeId(100 + 3 * HALF_MAX as u64 - 1), later), ["n"]);
    }
}
