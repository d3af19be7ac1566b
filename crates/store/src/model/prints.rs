//! A set of fingerprints that several threads fill.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

/// Fingerprints of states, in parts with a lock each.
pub(super) struct Prints {
    parts: Vec<Mutex<BTreeSet<u64>>>,
}

impl Default for Prints {
    fn default() -> Prints {
        Prints { parts: (0..64).map(|_| Mutex::default()).collect() }
    }
}

impl Prints {
    pub(super) fn contains(&self, print: u64) -> bool {
        self.part(print).contains(&print)
    }

    pub(super) fn insert(&self, print: u64) {
        self.part(print).insert(print);
    }

    fn part(&self, print: u64) -> MutexGuard<'_, BTreeSet<u64>> {
        self.parts[print as usize % self.parts.len()].lock().expect("no panic in between")
    }
}
