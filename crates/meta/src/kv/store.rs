//! The engine, and in front of it the newer writes that it does not have yet.
//!
//! ```text
//! reads and changes look in: gathered -> recent -> frozen -> engine
//!                                |          |        |
//!              sealed: a record of the     the half is full    on its way into the engine, by another thread;
//!              journal with a number                           then forgotten here
//! ```
//!
//! Without a journal there is only `gathered`, and the engine makes it durable at once.

use std::collections::VecDeque;
use std::collections::btree_map::{self, BTreeMap};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use types::cost;
use world::Notify;

use super::engine::{Engine, Reader, Writes};
use super::error::EngineError;
use super::record::{self, EncodedRecord, Salt};

/// Gathered writes are sealed into a record at about this many bytes, or at a quarter of half the journal if this is
/// less: with one more change, they must still fit into a half.
const SEAL_BYTES: usize = 1 << 20;

/// A value newer than the engine's; `None` removes.
pub(crate) struct MemEntry {
    /// The number of its record.
    record: u64,
    value: Option<Vec<u8>>,
}

/// Writes that the engine does not have yet.
pub(crate) type MemTable = BTreeMap<Vec<u8>, MemEntry>;

/// The writes between the changes and the engine, if there is a journal.
struct Ahead {
    salt: Salt,
    /// The number of the record that will have the gathered writes.
    next: u64,
    /// Records that wait for the journal.
    sealed: VecDeque<EncodedRecord>,
    recent: MemTable,
    /// The writes that are being committed to the engine, and their last record.
    frozen: Option<(Arc<MemTable>, u64)>,
    /// Notified when a write has been gathered.
    work: Notify,
    /// Gathered bytes at which a record is sealed.
    seal_bytes: usize,
}

/// See the module.
pub(crate) struct Store {
    engine: Engine,
    reader: Reader,
    gathered: Writes,
    gathered_bytes: usize,
    ahead: Option<Box<Ahead>>,
}

impl Store {
    /// A store without a journal.
    pub(crate) fn open(engine: Engine) -> Result<Store, EngineError> {
        let reader = engine.reader()?;
        Ok(Store { engine, reader, gathered: Writes::new(), gathered_bytes: 0, ahead: None })
    }

    /// From now on, changes are durable when the journal has their record. `half_len` is the length of a half in bytes,
    /// `next` the number of the first record. `work` is notified when there is something to write.
    pub(crate) fn attach_journal(&mut self, salt: Salt, half_len: u64, next: u64, work: Notify) {
        let (sealed, recent) = (VecDeque::new(), MemTable::new());
        let seal_bytes = usize::try_from(half_len / 4).unwrap_or(SEAL_BYTES).min(SEAL_BYTES);
        self.ahead = Some(Box::new(Ahead { salt, next, sealed, recent, frozen: None, work, seal_bytes }));
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The number of the record that makes everything gathered so far durable; 0 without a journal.
    pub(crate) fn last(&self) -> u64 {
        let Some(ahead) = &self.ahead else { return 0 };
        if self.gathered.is_empty() { ahead.next - 1 } else { ahead.next }
    }

    /// Applies `f` to the value of `key`. Also returns the record that wrote or removed the value.
    pub(crate) fn get<T>(
        &self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<(Option<T>, u64), EngineError> {
        let Some(ahead) = &self.ahead else {
            return match self.gathered.get(key) {
                Some(value) => Ok((value.as_deref().map(f), 0)),
                None => Ok((self.reader.get(key, f)?, 0)),
            };
        };
        if let Some(value) = self.gathered.get(key) {
            return Ok((value.as_deref().map(f), ahead.next));
        }
        let older = || ahead.frozen.as_ref().and_then(|(table, _)| table.get(key));
        match ahead.recent.get(key).or_else(older) {
            Some(newer) => Ok((newer.value.as_deref().map(f), newer.record)),
            None => Ok((self.reader.get(key, f)?, 0)),
        }
    }

    /// Calls `f` with the pairs of `from..to` in order until it returns false; `own` overrides the store. Returns the
    /// newest record that wrote or removed any of the pairs.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: &[u8],
        own: &Writes,
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<u64, EngineError> {
        let mut layers = Layers::new(self, own, from, to);
        let mut more = true;
        self.reader.range(from, to, &mut |key, value| {
            cost::entries(1);
            let mut hidden = false;
            while more && let Some((newer_key, newer)) = layers.next_up_to(key) {
                hidden = newer_key == key;
                if let Some(newer) = newer {
                    more = f(newer_key, newer);
                }
            }
            if more && !hidden {
                more = f(key, value);
            }
            more
        })?;
        while more && let Some((key, value)) = layers.next() {
            if let Some(value) = value {
                more = f(key, value);
            }
        }
        Ok(layers.newest)
    }

    /// Adds writes to the next commit or record.
    pub(crate) fn gather(&mut self, writes: Writes) {
        if writes.is_empty() {
            return;
        }
        let Some(ahead) = &self.ahead else {
            self.gathered.extend(writes);
            return;
        };
        self.gathered_bytes += record::weight(&writes);
        cost::entries(writes.len());
        // `append` would rebuild the whole map.
        self.gathered.extend(writes);
        ahead.work.notify();
    }

    /// Ends a batch. Without a journal, it is durable when this returns; with one, it becomes durable with the record
    /// [`Store::last`]. After an error, the store shows the state before the batch.
    pub(crate) fn end_batch(&mut self) -> Result<(), EngineError> {
        if let Some(ahead) = &self.ahead {
            return if self.gathered_bytes < ahead.seal_bytes { Ok(()) } else { self.seal() };
        }
        let writes = std::mem::take(&mut self.gathered);
        if !writes.is_empty() {
            cost::entries(writes.len());
            self.engine.commit(writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref())))?;
            self.reader = self.engine.reader()?;
        }
        Ok(())
    }

    fn seal(&mut self) -> Result<(), EngineError> {
        let Some(ahead) = self.ahead.as_mut().filter(|_| !self.gathered.is_empty()) else { return Ok(()) };
        let writes = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        let record = ahead.next;
        ahead.sealed.push_back(record::seal(&ahead.salt, record, &writes).ok_or(EngineError::TooLarge)?);
        ahead.next += 1;
        cost::entries(writes.len());
        ahead.recent.extend(writes.into_iter().map(|(key, value)| (key, MemEntry { record, value })));
        Ok(())
    }

    /// Whether there is something to write to the journal.
    pub(crate) fn has_records(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.sealed.is_empty() || !self.gathered.is_empty())
    }

    /// The next record to write to the journal.
    pub(crate) fn next_record(&mut self) -> Result<Option<EncodedRecord>, EngineError> {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.sealed.is_empty()) {
            self.seal()?;
        }
        Ok(self.ahead.as_mut().and_then(|ahead| ahead.sealed.pop_front()))
    }

    /// Prepares all sealed writes for a commit to the engine. No earlier such commit may be in progress.
    pub(crate) fn freeze(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        assert!(ahead.frozen.is_none(), "older writes would hide newer ones");
        ahead.frozen = Some((Arc::new(std::mem::take(&mut ahead.recent)), ahead.next - 1));
    }

    /// The writes that are being committed to the engine, and their last record.
    pub(crate) fn frozen(&self) -> Option<(Arc<MemTable>, u64)> {
        self.ahead.as_ref()?.frozen.clone()
    }

    /// Forgets the frozen writes, which the engine now has. Returns them, because freeing them takes long.
    pub(crate) fn take_flushed(&mut self) -> Result<Option<Arc<MemTable>>, EngineError> {
        self.reader = self.engine.reader()?;
        Ok(self.ahead.as_mut().and_then(|ahead| ahead.frozen.take()).map(|(table, _)| table))
    }
}

/// The writes of a table, for the engine.
pub(crate) fn writes_of(table: &MemTable) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    table.iter().map(|(key, newer)| (key.as_slice(), newer.value.as_deref()))
}

type Change<'a> = (&'a [u8], Option<&'a [u8]>);

enum Layer<'a> {
    Writes(btree_map::Range<'a, Vec<u8>, Option<Vec<u8>>>, u64),
    MemTable(btree_map::Range<'a, Vec<u8>, MemEntry>),
}

impl<'a> Iterator for Layer<'a> {
    type Item = (Change<'a>, u64);

    fn next(&mut self) -> Option<(Change<'a>, u64)> {
        cost::entries(1);
        match self {
            Layer::Writes(range, record) => {
                range.next().map(|(key, value)| ((key.as_slice(), value.as_deref()), *record))
            }
            Layer::MemTable(range) => {
                range.next().map(|(key, newer)| ((key.as_slice(), newer.value.as_deref()), newer.record))
            }
        }
    }
}

/// The newest write of each key in a range, without the engine's, in the order of the keys.
struct Layers<'a> {
    /// The newest first.
    layers: Vec<Peekable<Layer<'a>>>,
    newest: u64,
}

impl<'a> Layers<'a> {
    fn new(store: &'a Store, own: &'a Writes, from: &[u8], to: &[u8]) -> Layers<'a> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let next = store.ahead.as_ref().map_or(0, |ahead| ahead.next);
        let mut layers = vec![
            Layer::Writes(own.range::<[u8], _>(bounds), 0),
            Layer::Writes(store.gathered.range::<[u8], _>(bounds), next),
        ];
        if let Some(ahead) = &store.ahead {
            layers.push(Layer::MemTable(ahead.recent.range::<[u8], _>(bounds)));
            let frozen = ahead.frozen.as_ref();
            layers.extend(frozen.map(|(table, _)| Layer::MemTable(table.range::<[u8], _>(bounds))));
        }
        Layers { layers: layers.into_iter().map(Iterator::peekable).collect(), newest: 0 }
    }

    fn first_key(&mut self) -> Option<&'a [u8]> {
        self.layers.iter_mut().filter_map(|layer| layer.peek().map(|((key, _), _)| *key)).min()
    }

    fn next_up_to(&mut self, end: &[u8]) -> Option<Change<'a>> {
        self.first_key().filter(|key| *key <= end)?;
        self.next()
    }

    fn next(&mut self) -> Option<Change<'a>> {
        let key = self.first_key()?;
        let mut found = None;
        for layer in &mut self.layers {
            if let Some((change, record)) = layer.next_if(|((at, _), _)| *at == key)
                && found.is_none()
            {
                self.newest = self.newest.max(record);
                found = Some(change);
            }
        }
        found
    }
}
