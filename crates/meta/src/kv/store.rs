//! The engine, and in front of it the newer writes that it does not have yet.
//!
//! ```text
//! reads and changes look in: gathered -> sealed -> recent -> frozen -> engine
//!                                           |         |        |
//!                      records of the journal,   chosen   the half is full: on its way into the engine, by another
//!                      not chosen yet                     thread; then forgotten here
//! ```
//!
//! Without a journal there is only `gathered`, and the engine makes it durable at once. A record is chosen when it will not
//! be replaced any more: when the journal has it, or, of several metadata servers, a majority. Only the first sealed record is
//! on its way there.

use std::collections::VecDeque;
use std::collections::btree_map::{self, BTreeMap};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use types::{Buf, cost};
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

/// A record, and what it writes.
struct Sealed {
    record: EncodedRecord,
    writes: Writes,
}

/// The writes between the changes and the engine, if there is a journal.
struct Ahead {
    salt: Salt,
    /// The number of the record that will have the gathered writes.
    next: u64,
    /// Records that wait for the journal, or to be chosen.
    sealed: VecDeque<Sealed>,
    /// What each record has besides: the term of its leader.
    stamp: Option<(Vec<u8>, Vec<u8>)>,
    /// The last record that is chosen.
    chosen: u64,
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
        let (stamp, chosen, frozen) = (None, next - 1, None);
        let ahead = Ahead { salt, next, sealed, stamp, chosen, recent, frozen, work, seal_bytes };
        self.ahead = Some(Box::new(ahead));
    }

    /// From now on all records have this write, too, the one that is not chosen yet included.
    pub(crate) fn stamp(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), EngineError> {
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        for sealed in &mut ahead.sealed {
            sealed.writes.insert(key.clone(), Some(value.clone()));
            sealed.record = record::seal(&ahead.salt, sealed.record.number, &sealed.writes)
                .ok_or(EngineError::TooLarge)?;
        }
        ahead.stamp = Some((key, value));
        Ok(())
    }

    /// Replaces the record that is not chosen yet by this one, which has the next number. Returns it for the journal.
    pub(crate) fn replace_unchosen(&mut self, writes: Writes) -> Result<EncodedRecord, EngineError> {
        let ahead = self.ahead.as_mut().expect("copies are kept with a journal");
        let number = ahead.chosen + 1;
        let record = record::seal(&ahead.salt, number, &writes).ok_or(EngineError::TooLarge)?;
        ahead.sealed.clear();
        ahead.sealed.push_back(Sealed { record: record.clone(), writes });
        ahead.next = number + 1;
        Ok(record)
    }

    /// The next records, as they lie in the journal together.
    pub(crate) fn batch(&self, records: &[&Buf]) -> Result<Buf, EngineError> {
        let ahead = self.ahead.as_ref().expect("copies are kept with a journal");
        record::seal_batch(&ahead.salt, ahead.chosen + 1, records).ok_or(EngineError::TooLarge)
    }

    /// The engine has another server's store, with all records up to this one. The record after it stays, if there was one.
    pub(crate) fn replaced(&mut self, number: u64) -> Result<(), EngineError> {
        self.reader = self.engine.reader()?;
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        assert!(ahead.frozen.is_none() && number >= ahead.chosen, "a store is replaced by a newer one");
        ahead.sealed.retain(|sealed| sealed.record.number == number + 1);
        ahead.recent.clear();
        ahead.chosen = number;
        ahead.next = number + 1 + ahead.sealed.len() as u64;
        Ok(())
    }

    /// The first record is chosen.
    pub(crate) fn first_is_chosen(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        let Some(Sealed { record, writes }) = ahead.sealed.pop_front() else { return };
        let record = record.number;
        assert!(record == ahead.chosen + 1, "records are chosen in order");
        ahead.chosen = record;
        cost::entries(writes.len());
        ahead.recent.extend(writes.into_iter().map(|(key, value)| (key, MemEntry { record, value })));
    }

    /// The last record that is chosen; 0 without a journal.
    pub(crate) fn chosen(&self) -> u64 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.chosen)
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
        for sealed in ahead.sealed.iter().rev() {
            if let Some(value) = sealed.writes.get(key) {
                return Ok((value.as_deref().map(f), sealed.record.number));
            }
        }
        let older = || ahead.frozen.as_ref().and_then(|(table, _)| table.get(key));
        match ahead.recent.get(key).or_else(older) {
            Some(newer) => Ok((newer.value.as_deref().map(f), newer.record)),
            None => Ok((self.reader.get(key, f)?, 0)),
        }
    }

    /// As [`Store::get`], as far as all is chosen.
    pub(crate) fn get_chosen<T>(
        &self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, EngineError> {
        let Some(ahead) = &self.ahead else { return self.reader.get(key, f) };
        let older = || ahead.frozen.as_ref().and_then(|(table, _)| table.get(key));
        match ahead.recent.get(key).or_else(older) {
            Some(newer) => Ok(newer.value.as_deref().map(f)),
            None => self.reader.get(key, f),
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
        let mut writes = std::mem::take(&mut self.gathered);
        self.gathered_bytes = 0;
        writes.extend(ahead.stamp.clone().map(|(key, value)| (key, Some(value))));
        let record = record::seal(&ahead.salt, ahead.next, &writes).ok_or(EngineError::TooLarge)?;
        ahead.sealed.push_back(Sealed { record, writes });
        ahead.next += 1;
        Ok(())
    }

    /// Whether there is something to write to the journal.
    pub(crate) fn has_records(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.sealed.is_empty() || !self.gathered.is_empty())
    }

    /// The next record to write to the journal. It stays the next one until it is [chosen](Store::first_is_chosen).
    pub(crate) fn next_record(&mut self) -> Result<Option<EncodedRecord>, EngineError> {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.sealed.is_empty()) {
            self.seal()?;
        }
        Ok(self.ahead.as_ref().and_then(|ahead| ahead.sealed.front()).map(|sealed| sealed.record.clone()))
    }

    /// Prepares all chosen writes for a commit to the engine. No earlier such commit may be in progress.
    pub(crate) fn freeze(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        assert!(ahead.frozen.is_none(), "older writes would hide newer ones");
        ahead.frozen = Some((Arc::new(std::mem::take(&mut ahead.recent)), ahead.chosen));
    }

    /// The writes that are being committed to the engine, and their last record.
    pub(crate) fn frozen(&self) -> Option<(Arc<MemTable>, u64)> {
        self.ahead.as_ref()?.frozen.clone()
    }

    /// Forgets the frozen writes, which the engine now has, if they are still these. Returns them, because freeing them
    /// takes long.
    pub(crate) fn take_flushed(
        &mut self,
        committed: &Arc<MemTable>,
    ) -> Result<Option<Arc<MemTable>>, EngineError> {
        self.reader = self.engine.reader()?;
        let frozen = self.ahead.as_mut().map(|ahead| &mut ahead.frozen);
        let flushed = frozen.and_then(|frozen| frozen.take_if(|(table, _)| Arc::ptr_eq(table, committed)));
        Ok(flushed.map(|(table, _)| table))
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
            let sealed = ahead.sealed.iter().rev();
            layers.extend(
                sealed.map(|sealed| {
                    Layer::Writes(sealed.writes.range::<[u8], _>(bounds), sealed.record.number)
                }),
            );
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
