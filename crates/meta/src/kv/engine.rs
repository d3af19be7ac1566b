//! One interface to the engines.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;

use futures_util::future::{Either, select};
use world::World;

use super::error::EngineError;
use super::memory::{MemoryEngine, MemoryReader};
use super::redb::{RedbEngine, RedbReader};
use crate::records::from_value;

/// Pause between two looks whether a commit waits for room on its disk, in microseconds.
const FULL_US: u64 = 100_000;

/// Changes to commit together, in the order of their keys; `None` removes.
pub(crate) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The number in a value; 0 if it has none.
pub(super) fn number(value: &[u8]) -> u64 {
    from_value(value).unwrap_or(0)
}

/// A key and its value.
pub type KeyValue = (Vec<u8>, Vec<u8>);

/// Where committed state lies. Clones share it.
#[derive(Clone)]
pub enum Engine {
    /// A file on disk.
    Redb(RedbEngine),
    /// Memory of this process: for tests and simulated clusters, where a clone is what a restart finds.
    Memory(MemoryEngine),
}

impl Engine {
    /// Opens or makes the database at `path`, its journal beside it, with the default memory budget.
    pub fn open_redb(path: impl AsRef<Path>) -> Result<Engine, EngineError> {
        Engine::open_redb_within(path, crate::MEMORY_BUDGET_DEFAULT)
    }

    /// Opens or makes the database at `path`; its cache takes half of `memory_budget` bytes.
    pub fn open_redb_within(path: impl AsRef<Path>, memory_budget: u64) -> Result<Engine, EngineError> {
        RedbEngine::open(path.as_ref(), memory_budget / 2).map(Engine::Redb)
    }

    /// An empty store in memory.
    pub fn memory() -> Engine {
        Engine::Memory(MemoryEngine::default())
    }

    /// An empty store in memory with a journal on the disk `journal` of the service's node, so that simulated clusters
    /// run the same code as real ones.
    pub fn memory_with_journal(journal: &str) -> Engine {
        Engine::Memory(MemoryEngine::with_journal(journal))
    }

    /// Whether the contents end with the process.
    pub fn is_memory(&self) -> bool {
        matches!(self, Engine::Memory(_))
    }

    /// A view of the state that is committed now.
    pub(crate) fn reader(&self) -> Result<Reader, EngineError> {
        match self {
            Engine::Redb(engine) => engine.reader().map(Reader::Redb),
            Engine::Memory(engine) => Ok(Reader::Memory(engine.reader())),
        }
    }

    /// The path of its journal, a file or a simulated disk; `None` if it has none.
    pub(crate) fn journal(&self) -> Option<&str> {
        match self {
            Engine::Redb(engine) => engine.journal(),
            Engine::Memory(engine) => engine.journal(),
        }
    }

    /// Makes writes durable, all or none.
    pub(crate) fn commit<'a>(
        &self,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.commit(writes),
            Engine::Memory(engine) => engine.commit(writes),
        }
    }

    /// As [`Engine::commit`], with the number of the last record in `key`, unless a later one is there: of commits that were
    /// begun by different lives of the service, an older one may come last.
    pub(crate) fn advance<'a>(
        &self,
        key: &[u8],
        last: u64,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.advance(key, last, writes),
            Engine::Memory(engine) => engine.advance(key, last, writes),
        }
    }

    /// Commits off the thread, for a service. While the disk is full it waits, and calls `full` again and again.
    pub(crate) async fn patiently(
        &self,
        world: &World,
        commit: impl Fn(&Engine) -> Result<(), EngineError> + Clone + Send + 'static,
        full: impl Fn(),
    ) -> Result<(), EngineError> {
        loop {
            let (engine, commit) = (self.clone(), commit.clone());
            let mut commit = pin!(world.off_thread(move || commit(&engine)));
            let committed = loop {
                match select(commit.as_mut(), pin!(world.sleep(FULL_US))).await {
                    Either::Left((committed, _)) => break committed,
                    Either::Right(_) if self.is_full() => full(),
                    Either::Right(_) => {}
                }
            };
            match committed {
                Err(EngineError::Full) => {
                    full();
                    world.sleep(FULL_US).await;
                }
                committed => return committed,
            }
        }
    }

    /// From now on a commit waits for room on a full disk; or it fails, also one that waits.
    pub(crate) fn set_patient(&self, is_patient: bool) {
        if let Engine::Redb(engine) = self {
            engine.space().set_patient(is_patient);
        }
    }

    /// Whether a commit waits for room.
    fn is_full(&self) -> bool {
        matches!(self, Engine::Redb(engine) if engine.space().is_full())
    }

    /// Removes everything, and puts these in its place, at once.
    pub(crate) fn replace_all(&self, pairs: &[KeyValue]) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.replace_all(pairs),
            Engine::Memory(engine) => engine.replace_all(pairs),
        }
    }

    /// Begins to gather another store beside this one. What was gathered before is forgotten.
    pub(crate) fn begin_staging(&self) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.begin_staging(),
            Engine::Memory(engine) => {
                engine.begin_staging();
                Ok(())
            }
        }
    }

    /// Adds pairs to the other store.
    pub(crate) fn stage(&self, pairs: &Writes) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.stage(pairs),
            Engine::Memory(engine) => {
                engine.stage(pairs);
                Ok(())
            }
        }
    }

    /// Adds pairs that are a part of the other store, up to the key `upto` (to the end, if there is none), and what was written
    /// there since. What was written to keys of later parts is kept until these are there.
    pub(crate) fn stage_part(
        &self,
        pairs: &Writes,
        upto: Option<&[u8]>,
        since: &Writes,
    ) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.stage_part(pairs, upto, since),
            Engine::Memory(engine) => {
                engine.stage_part(pairs, upto, since);
                Ok(())
            }
        }
    }

    /// Puts the other store, with these pairs, in the place of this one, at once.
    pub(crate) fn replace_by_staged(&self, pairs: &Writes) -> Result<(), EngineError> {
        match self {
            Engine::Redb(engine) => engine.replace_by_staged(pairs),
            Engine::Memory(engine) => {
                engine.replace_by_staged(pairs);
                Ok(())
            }
        }
    }

    /// All keys and values, for tests.
    pub fn pairs(&self) -> Result<Vec<KeyValue>, EngineError> {
        let mut pairs = Vec::new();
        self.reader()?.range(&[], &[0xff], &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(pairs)
    }

    /// Damages a store that no server has open, for tests: replaces values, or removes them, behind everybody's back.
    pub fn damage(&self, writes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), EngineError> {
        self.commit(writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref())))
    }

    /// A view that later commits do not change.
    pub(crate) fn snapshot(&self) -> Result<Reader, EngineError> {
        match self {
            Engine::Redb(engine) => engine.reader().map(Reader::Redb),
            Engine::Memory(engine) => Ok(Reader::Memory(engine.snapshot())),
        }
    }
}

/// A view of committed state.
pub(crate) enum Reader {
    Redb(RedbReader),
    Memory(MemoryReader),
}

impl Reader {
    /// Applies `f` to the value of `key`.
    pub(crate) fn get<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        match self {
            Reader::Redb(reader) => reader.get(key, f),
            Reader::Memory(reader) => Ok(reader.get(key, f)),
        }
    }

    /// Calls `f` with the pairs of `from..to` in order until it returns false.
    pub(crate) fn range(
        &self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        match self {
            Reader::Redb(reader) => reader.range(from, to, f),
            Reader::Memory(reader) => {
                reader.range(from, to, f);
                Ok(())
            }
        }
    }

    /// The pairs from a key on, about so many bytes of them, and whether these are all.
    pub(crate) fn part(&self, from: &[u8], bytes: usize) -> Result<(Writes, bool), EngineError> {
        let (mut pairs, mut size, mut is_whole) = (Writes::new(), 0, true);
        self.range(from, &[0xff], &mut |key, value| {
            size += key.len() + value.len();
            pairs.insert(key.to_vec(), Some(value.to_vec()));
            is_whole = size < bytes;
            is_whole
        })?;
        Ok((pairs, is_whole))
    }
}
