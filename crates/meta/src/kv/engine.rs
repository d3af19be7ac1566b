//! The engines behind one door.

use std::collections::BTreeMap;
use std::path::Path;

use super::memory::{MemoryEngine, MemoryReader};
use super::redb::{RedbEngine, RedbReader};

/// Changes to commit together, in the order of their keys; `None` removes.
pub(crate) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A key and its value.
pub(crate) type KeyValue = (Vec<u8>, Vec<u8>);

/// Why an engine could not do its work. After one of these the engine's contents are in doubt until it is opened again.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The database could not be opened.
    #[error("the metadata store cannot be opened: {0}")]
    Open(#[source] Box<::redb::DatabaseError>),
    /// Another process has the database open.
    #[error("the metadata store is in use by another process")]
    InUse,
    /// The journal beside the database could not be named.
    #[error("the path of the metadata store is no UTF-8 text")]
    Path,
    /// The database failed.
    #[error("the metadata store failed: {0}")]
    Failed(#[source] Box<::redb::Error>),
    /// A change is larger than a record of the journal can be.
    #[error("a change of the metadata is too large for the journal")]
    TooLarge,
    /// The journal failed.
    #[error("the metadata journal failed: {0}")]
    Journal(#[source] std::io::Error),
    /// The memory engine was told to fail.
    #[error("the metadata store was told to fail")]
    InjectedFault,
}

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
    /// go the way that real ones go.
    pub fn memory_with_journal(journal: &str) -> Engine {
        Engine::Memory(MemoryEngine::with_journal(journal))
    }

    /// Whether the contents end with the process.
    pub fn is_memory(&self) -> bool {
        matches!(self, Engine::Memory(_))
    }

    /// A view of what is committed now.
    pub(crate) fn reader(&self) -> Result<Reader, EngineError> {
        match self {
            Engine::Redb(engine) => engine.reader().map(Reader::Redb),
            Engine::Memory(engine) => Ok(Reader::Memory(engine.reader())),
        }
    }

    /// Where its journal lies: the path of a file, or of a simulated disk. `None` if it has none.
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
}

/// A view of committed state.
pub(crate) enum Reader {
    Redb(RedbReader),
    Memory(MemoryReader),
}

impl Reader {
    /// What `f` makes of the value of `key`.
    pub(crate) fn get<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        match self {
            Reader::Redb(reader) => reader.get(key, f),
            Reader::Memory(reader) => Ok(reader.get(key, f)),
        }
    }

    /// Shows `f` the pairs of `from..to` in order until it returns false.
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
}
