//! A set of fingerprints that several threads fill.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

/// Fingerprints of states, in parts with a lock each.
pub(super) struct FingerprintSet {
    parts: Vec<Mutex<BTreeSet<u64>>>,
}

impl Default for FingerprintSet {
    fn default() -> FingerprintSet {
        FingerprintSet { parts: (0..64).map(|_| Mutex::default()).collect() }
    }
}

impl FingerprintSet {
    pub(super) fn contains(&self, fingerprint: u64) -> bool {
        self.part(fingerprint).contains(&fingerprint)
    }

    pub(super) fn insert(&self, fingerprint: u64) {
        self.part(fingerprint).insert(fingerprint);
    }

    fn part(&self, fingerprint: u64) -> MutexGuard<'_, BTreeSet<u64>> {
        self.parts[fingerprint as usize % self.parts.len()].lock().expect("no panic in between")
    }
}
