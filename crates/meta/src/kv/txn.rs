//! One operation's view of the store.

use std::collections::BTreeMap;
use std::ops::Bound;

use types::Refusal;
use types::wire::Codec;

use super::engine::{EngineError, Pair, Store, Writes};
use crate::live::{Effect, Live};
use crate::records::{from_value, to_value};

/// Reads see the operation's own writes, then those of the operations before it in the batch, then committed state.
/// Dropped without [`Txn::keep`], it leaves nothing.
pub(crate) struct Txn<'a> {
    store: &'a Store,
    batch: &'a Writes,
    live: &'a Live,
    own: Writes,
    effects: Vec<Effect>,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(store: &'a Store, batch: &'a Writes, live: &'a Live) -> Txn<'a> {
        Txn { store, batch, live, own: BTreeMap::new(), effects: Vec::new() }
    }

    /// What the service knows beside the store.
    pub(crate) fn live(&self) -> &'a Live {
        self.live
    }

    /// The value of a key.
    pub(crate) fn get<T: Codec>(&self, key: &[u8]) -> Result<Option<T>, Refusal> {
        match self.own.get(key).or_else(|| self.batch.get(key)) {
            Some(Some(bytes)) => from_value(bytes).map(Some),
            Some(None) => Ok(None),
            None => self.store.committed().get(key, from_value).map_err(failed)?.transpose(),
        }
    }

    /// Whether there is such a key.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool, Refusal> {
        match self.own.get(key).or_else(|| self.batch.get(key)) {
            Some(value) => Ok(value.is_some()),
            None => Ok(self.store.committed().get(key, |_| ()).map_err(failed)?.is_some()),
        }
    }

    pub(crate) fn put<T: Codec>(&mut self, key: Vec<u8>, value: &T) {
        self.own.insert(key, Some(to_value(value)));
    }

    pub(crate) fn put_bytes(&mut self, key: Vec<u8>, bytes: Vec<u8>) {
        self.own.insert(key, Some(bytes));
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.own.insert(key, None);
    }

    /// The pairs of `from..to` in order, `limit` at most.
    pub(crate) fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, Refusal> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let mut changed: BTreeMap<&[u8], &Option<Vec<u8>>> = BTreeMap::new();
        for writes in [self.batch, &self.own] {
            changed.extend(writes.range::<[u8], _>(bounds).map(|(key, value)| (key.as_slice(), value)));
        }
        let mut pairs = Vec::new();
        // What changed may hide as many committed pairs as it removes.
        let wanted = limit + changed.values().filter(|value| value.is_none()).count();
        self.store
            .committed()
            .range(from, to, &mut |key, value| {
                if pairs.len() < wanted {
                    pairs.push((key.to_vec(), value.to_vec()));
                }
                pairs.len() < wanted
            })
            .map_err(failed)?;
        if !changed.is_empty() {
            let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = pairs.into_iter().collect();
            for (key, value) in changed {
                match value {
                    Some(value) => drop(merged.insert(key.to_vec(), value.clone())),
                    None => drop(merged.remove(key)),
                }
            }
            pairs = merged.into_iter().collect();
        }
        pairs.truncate(limit);
        Ok(pairs)
    }

    /// Something that becomes true beside the store when this operation is kept.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The operation's writes and effects.
    pub(crate) fn keep(self) -> (Writes, Vec<Effect>) {
        (self.own, self.effects)
    }
}

/// Logs what the engine says; the asker learns that the service failed.
fn failed(error: EngineError) -> Refusal {
    tracing::error!(%error, "the metadata store cannot be read");
    Refusal::MetaFailed
}
