//! The engine, and before it what it lacks so far.
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

use super::engine::{Engine, EngineError, Reader, Writes};
use super::record::{self, EncodedRecord, Salt};

/// What is gathered is sealed when it has grown to about so many bytes, or to a quarter of half the journal: with one more
/// change it must fit into that.
const SEAL_BYTES: usize = 1 << 20;

/// A value newer than the engine's; `None` removes.
pub(crate) struct MemEntry {
    /// The record that holds it.
    record: u64,
    value: Option<Vec<u8>>,
}

/// What the engine lacks.
pub(crate) type MemTable = BTreeMap<Vec<u8>, MemEntry>;

/// What lies between the changes and the engine when there is a journal.
struct Ahead {
    salt: Salt,
    /// The number of the record that is being gathered.
    next: u64,
    /// Records that are to be written to the journal.
    sealed: VecDeque<EncodedRecord>,
    recent: MemTable,
    /// What is on its way into the engine, and its last record.
    frozen: Option<(Arc<MemTable>, u64)>,
    /// Something has been gathered.
    work: Notify,
    /// Bytes of what is gathered from which on it is sealed.
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

    /// From now on changes are durable when a journal, of halves of so many bytes, has their record. The first one is
    /// `next`; `work` is given when there is something to write.
    pub(crate) fn attach_journal(&mut self, salt: Salt, half_len: u64, next: u64, work: Notify) {
        let (sealed, recent) = (VecDeque::new(), MemTable::new());
        let seal_bytes = usize::try_from(half_len / 4).unwrap_or(SEAL_BYTES).min(SEAL_BYTES);
        self.ahead = Some(Box::new(Ahead { salt, next, sealed, recent, frozen: None, work, seal_bytes }));
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The number of the record that makes durable whatever was gathered until now; 0 without a journal.
    pub(crate) fn last(&self) -> u64 {
        let Some(ahead) = &self.ahead else { return 0 };
        if self.gathered.is_empty() { ahead.next - 1 } else { ahead.next }
    }

    /// What `f` makes of the value of `key`, and the record that decided whether there is one.
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

    /// Shows `f` the pairs of `from..to` in order, `own` counting before all others, until it returns false. Returns
    /// the newest record that decided what was shown.
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

    /// Adds writes to what the next commit or record makes durable.
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
        // Not `append`, which builds the whole map anew.
        self.gathered.extend(writes);
        ahead.work.notify();
    }

    /// Ends a batch: without a journal it is durable when this returns, with one it will be with [`Store::last`]. After
    /// an error the store shows what was committed before.
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

    /// Everything sealed is to go into the engine. Nothing may be on its way there.
    pub(crate) fn freeze(&mut self) {
        let Some(ahead) = &mut self.ahead else { return };
        assert!(ahead.frozen.is_none(), "one at a time: a newer one would hide behind an older one");
        ahead.frozen = Some((Arc::new(std::mem::take(&mut ahead.recent)), ahead.next - 1));
    }

    /// What is on its way into the engine, and its last record.
    pub(crate) fn frozen(&self) -> Option<(Arc<MemTable>, u64)> {
        self.ahead.as_ref()?.frozen.clone()
    }

    /// The engine has it. Returns it, for whoever has time to free so much.
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

/// All that is newer than the engine in a range, in the order of the keys; of each key the newest.
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
