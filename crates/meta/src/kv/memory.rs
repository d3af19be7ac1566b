//! The engine of tests and simulated clusters: a map in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::engine::{KeyValue, Writes, number};
use super::error::EngineError;
use crate::records::to_value;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store in memory. Clones share the contents.
#[derive(Clone, Default)]
pub struct MemoryEngine {
    pairs: Arc<Mutex<Pairs>>,
    staged: Arc<Mutex<Pairs>>,
    /// Written to the other store since, to keys that it does not have here yet.
    kept: Arc<Mutex<Writes>>,
    failing: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    journal: Option<Arc<str>>,
}

impl MemoryEngine {
    pub(super) fn with_journal(journal: &str) -> MemoryEngine {
        MemoryEngine { journal: Some(journal.into()), ..MemoryEngine::default() }
    }

    pub(super) fn journal(&self) -> Option<&str> {
        self.journal.as_deref()
    }

    /// From now on every commit fails, and changes nothing, if `failing`.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Relaxed);
    }

    /// From now on every commit of a service waits until this is taken back, if `full`.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    pub(super) fn reader(&self) -> MemoryReader {
        MemoryReader { pairs: Arc::clone(&self.pairs) }
    }

    pub(super) fn commit<'a>(
        &self,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(EngineError::InjectedFault);
        }
        put(&mut lock(&self.pairs), writes);
        Ok(())
    }

    pub(super) fn advance<'a>(
        &self,
        key: &[u8],
        last: u64,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(EngineError::InjectedFault);
        }
        if self.full.load(Ordering::Relaxed) {
            return Err(EngineError::Full);
        }
        let mut pairs = lock(&self.pairs);
        if pairs.get(key).is_none_or(|found| number(found) < last) {
            put(&mut pairs, writes);
            pairs.insert(key.to_vec(), to_value(&last));
        }
        Ok(())
    }

    pub(super) fn replace_all(&self, with: &[KeyValue]) -> Result<(), EngineError> {
        *lock(&self.pairs) = with.iter().cloned().collect();
        Ok(())
    }

    pub(super) fn begin_staging(&self) {
        lock(&self.staged).clear();
        lock(&self.kept).clear();
    }

    pub(super) fn stage_part(&self, pairs: &Writes, upto: Option<&[u8]>, since: &Writes) {
        self.stage(pairs);
        let mut kept = lock(&self.kept);
        kept.extend(since.clone());
        let later = match upto {
            Some(upto) => kept.split_off([upto, &[0]].concat().as_slice()),
            None => Writes::new(),
        };
        self.stage(&std::mem::replace(&mut *kept, later));
    }

    pub(super) fn stage(&self, pairs: &Writes) {
        put(&mut lock(&self.staged), pairs.iter().map(|(key, value)| (key.as_slice(), value.as_deref())));
    }

    pub(super) fn replace_by_staged(&self, pairs: &Writes) {
        self.stage(pairs);
        *lock(&self.pairs) = std::mem::take(&mut *lock(&self.staged));
    }

    pub(super) fn snapshot(&self) -> MemoryReader {
        MemoryReader { pairs: Arc::new(Mutex::new(lock(&self.pairs).clone())) }
    }
}

/// The committed pairs. The same thread commits and reads, so nothing changes while a reader exists.
pub(crate) struct MemoryReader {
    pairs: Arc<Mutex<Pairs>>,
}

impl MemoryReader {
    pub(super) fn get<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        lock(&self.pairs).get(key).map(|value| f(value))
    }

    pub(super) fn range(&self, from: &[u8], to: &[u8], f: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let pairs = lock(&self.pairs);
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let _stopped = pairs.range::<[u8], _>(bounds).all(|(key, value)| f(key, value));
    }
}

fn put<'a>(pairs: &mut Pairs, writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
    for (key, value) in writes {
        match value {
            Some(value) => pairs.insert(key.to_vec(), value.to_vec()),
            None => pairs.remove(key),
        };
    }
}

fn lock<T>(pairs: &Mutex<T>) -> MutexGuard<'_, T> {
    pairs.lock().unwrap_or_else(PoisonError::into_inner)
}
