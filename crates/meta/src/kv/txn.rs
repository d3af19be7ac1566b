//! One operation's view of the store.

use std::cell::Cell;

use types::Refusal;
use types::wire::Codec;

use super::engine::{KeyValue, Writes};
use super::error::EngineError;
use super::store::Store;
use crate::records::{from_value, to_value};
use crate::volatile::{Effect, VolatileState};

/// Reads see the operation's own writes first, then the store's, durable or not. Without [`Txn::keep`], a drop discards
/// all writes.
pub(crate) struct Txn<'a> {
    store: &'a Store,
    volatile: &'a VolatileState,
    own: Writes,
    effects: Vec<Effect>,
    /// The newest record on which the reads depend.
    seen: Cell<u64>,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(store: &'a Store, volatile: &'a VolatileState) -> Txn<'a> {
        Txn { store, volatile, own: Writes::new(), effects: Vec::new(), seen: Cell::new(0) }
    }

    /// The service's volatile state.
    pub(crate) fn volatile(&self) -> &'a VolatileState {
        self.volatile
    }

    /// The record that must be durable before the result of the reads may leave the service.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.get()
    }

    fn read<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Refusal> {
        if let Some(value) = self.own.get(key) {
            return Ok(value.as_deref().map(f));
        }
        let (found, record) = self.store.get(key, f).map_err(failed)?;
        self.seen.set(self.seen.get().max(record));
        Ok(found)
    }

    /// The value of a key.
    pub(crate) fn get<T: Codec>(&self, key: &[u8]) -> Result<Option<T>, Refusal> {
        self.read(key, from_value)?.transpose()
    }

    /// The bytes of a key's value.
    pub(crate) fn get_bytes(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        self.read(key, <[u8]>::to_vec)
    }

    /// Whether there is such a key.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool, Refusal> {
        Ok(self.read(key, |_| ())?.is_some())
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
    pub(crate) fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<KeyValue>, Refusal> {
        let mut pairs = Vec::new();
        let mut take = |key: &[u8], value: &[u8]| {
            if pairs.len() < limit {
                pairs.push((key.to_vec(), value.to_vec()));
            }
            pairs.len() < limit
        };
        let record = self.store.range(from, to, &self.own, &mut take).map_err(failed)?;
        self.seen.set(self.seen.get().max(record));
        Ok(pairs)
    }

    /// Adds a change of the volatile state, made when this operation is kept.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The operation's writes and effects.
    pub(crate) fn keep(self) -> (Writes, Vec<Effect>) {
        (self.own, self.effects)
    }
}

/// Logs the engine's error; the caller learns only that the service failed.
fn failed(error: EngineError) -> Refusal {
    tracing::error!(%error, "the metadata store cannot be read");
    Refusal::MetaFailed
}
