//! The engine on disk: one table of a redb database.
//!
//! There is one table, because a commit's cost grows with the number of trees that it touches. A commit is durable when
//! it returns (two fdatasyncs). A crash leaves the last commit or the one before it, never a mixture. Each commit also
//! stores the list of free pages, so opening after a crash does not have to read the whole file.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use redb::{
    Builder, Database, DatabaseError, ReadOnlyTable, ReadableDatabase, ReadableTable, StorageBackend,
    StorageError, Table, TableDefinition, WriteTransaction,
};
use world::file_lock::FileLock;
use world::private_files;

use super::disk_space::{DiskSpace, PatientFile};
use super::engine::{KeyValue, Writes, number};
use super::error::EngineError;
use crate::records::to_value;

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("shoal");

/// Another server's store, while it comes.
const STAGED: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("staged");

/// Written to that store since, to keys that have not come yet: 1 and the value, or 0 if it was removed.
const KEPT: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("kept");

/// A redb database. Clones share it; another process cannot open it meanwhile.
#[derive(Clone)]
pub struct RedbEngine {
    database: Arc<Database>,
    journal: Option<Arc<str>>,
    space: Arc<DiskSpace>,
}

/// Longest file that is read whole when it is opened, in bytes: about a second of a slow disk. Of a longer one, a damaged page is
/// found when it is reached.
const CHECKED_MAX: u64 = 128 << 20;

fn failed(error: impl Into<redb::Error>) -> EngineError {
    match error.into() {
        redb::Error::Corrupted(what) => EngineError::Damaged(what),
        error => EngineError::Failed(Box::new(error)),
    }
}

fn not_opened(error: DatabaseError) -> EngineError {
    let damaged = match &error {
        DatabaseError::Storage(StorageError::Corrupted(what)) => Some(what.clone()),
        // Not a database, or one that ends too early.
        DatabaseError::Storage(StorageError::Io(io)) => {
            let is_damage = matches!(io.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
            is_damage.then(|| io.to_string())
        }
        DatabaseError::UpgradeRequired(version) => Some(format!("its pages are of version {version}")),
        _ => None,
    };
    damaged.map_or_else(|| EngineError::Open(Box::new(error)), EngineError::Damaged)
}

/// Whether a source file is of the library that reads stores. It may panic, instead of returning an error, when it comes to a
/// page that has been changed behind its back.
pub fn reads_stores(source: &str) -> bool {
    source.split('/').any(|part| part == "redb" || part.starts_with("redb-"))
}

/// A store's file: for its owner alone, and locked for this process.
#[derive(Debug)]
struct StoreFile {
    file: File,
    _lock: FileLock,
}

impl StoreFile {
    fn open(path: &Path) -> Result<StoreFile, EngineError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let (file, wide) = private_files::open(path, &mut options).map_err(EngineError::File)?;
        if let Some(wide) = wide {
            tracing::warn!("{wide}");
        }
        let lock = FileLock::take(&file, path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => EngineError::InUse,
            _ => EngineError::File(error),
        })?;
        Ok(StoreFile { file, _lock: lock })
    }
}

impl StorageBackend for StoreFile {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write_all_at(data, offset)
    }
}

impl RedbEngine {
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<RedbEngine, EngineError> {
        let space = Arc::<DiskSpace>::default();
        // Disks are named by text.
        let journal = path.with_extension("journal").to_str().map(Arc::from).ok_or(EngineError::Path)?;
        let file = StoreFile::open(path)?;
        let is_short = file.len().map_err(EngineError::File)? <= CHECKED_MAX;
        let file = PatientFile { file, space: Arc::clone(&space) };
        let mut builder = builder(cache_bytes);
        // Reports what a plain opening would panic at.
        builder.set_check_integrity_on_open(is_short);
        RedbEngine::new(builder.create_with_backend(file).map_err(not_opened)?, Some(journal), space)
    }

    pub(super) fn space(&self) -> &DiskSpace {
        &self.space
    }

    pub(super) fn journal(&self) -> Option<&str> {
        self.journal.as_deref()
    }

    /// A database in memory, for tests: the engine's code without a file.
    pub fn in_memory() -> Result<RedbEngine, EngineError> {
        let database = builder(16 << 20).create_with_backend(redb::backends::InMemoryBackend::new());
        let database = database.map_err(|error| EngineError::Open(Box::new(error)))?;
        RedbEngine::new(database, None, Arc::default())
    }

    fn new(
        database: Database,
        journal: Option<Arc<str>>,
        space: Arc<DiskSpace>,
    ) -> Result<RedbEngine, EngineError> {
        // A store that is there needs no room to be opened.
        let txn = database.begin_read().map_err(failed)?;
        match txn.open_table(TABLE) {
            Ok(_) => {}
            Err(redb::TableError::TableDoesNotExist(_)) => {
                let txn = begin(&database)?;
                txn.open_table(TABLE).map_err(failed)?;
                txn.commit().map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(RedbEngine { database: Arc::new(database), journal, space })
    }

    pub(super) fn reader(&self) -> Result<RedbReader, EngineError> {
        let txn = self.database.begin_read().map_err(failed)?;
        Ok(RedbReader { table: txn.open_table(TABLE).map_err(failed)? })
    }

    pub(super) fn commit<'a>(
        &self,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        let mut table = txn.open_table(TABLE).map_err(failed)?;
        put(&mut table, writes)?;
        drop(table);
        txn.commit().map_err(failed)
    }

    pub(super) fn advance<'a>(
        &self,
        key: &[u8],
        last: u64,
        writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        let mut table = txn.open_table(TABLE).map_err(failed)?;
        let found = ReadableTable::get(&table, key).map_err(failed)?.map_or(0, |value| number(value.value()));
        if found >= last {
            drop(table);
            return txn.abort().map_err(failed);
        }
        put(&mut table, writes)?;
        put(&mut table, [(key, Some(to_value(&last).as_slice()))].into_iter())?;
        drop(table);
        txn.commit().map_err(failed)
    }

    pub(super) fn begin_staging(&self) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        txn.delete_table(STAGED).map_err(failed)?;
        txn.open_table(STAGED).map_err(failed)?;
        txn.delete_table(KEPT).map_err(failed)?;
        txn.commit().map_err(failed)
    }

    pub(super) fn stage_part(
        &self,
        pairs: &Writes,
        upto: Option<&[u8]>,
        since: &Writes,
    ) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        let mut staged = txn.open_table(STAGED).map_err(failed)?;
        put(&mut staged, pairs.iter().map(|(key, value)| (key.as_slice(), value.as_deref())))?;
        let mut kept = txn.open_table(KEPT).map_err(failed)?;
        for (key, value) in since {
            let value = value.as_ref().map_or(vec![0], |value| [&[1], value.as_slice()].concat());
            kept.insert(key.as_slice(), value.as_slice()).map_err(failed)?;
        }
        let end = upto.map_or(Bound::Unbounded, Bound::Included);
        let range = (Bound::<&[u8]>::Unbounded, end);
        for pair in kept.extract_from_if::<&[u8], _>(range, |_, _| true).map_err(failed)? {
            let (key, value) = pair.map_err(failed)?;
            let value = value.value().split_first().and_then(|(kind, value)| (*kind == 1).then_some(value));
            put(&mut staged, [(key.value(), value)].into_iter())?;
        }
        drop((staged, kept));
        txn.commit().map_err(failed)
    }

    pub(super) fn stage(&self, pairs: &Writes) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        let mut table = txn.open_table(STAGED).map_err(failed)?;
        put(&mut table, pairs.iter().map(|(key, value)| (key.as_slice(), value.as_deref())))?;
        drop(table);
        txn.commit().map_err(failed)
    }

    pub(super) fn replace_by_staged(&self, pairs: &Writes) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        let mut table = txn.open_table(STAGED).map_err(failed)?;
        put(&mut table, pairs.iter().map(|(key, value)| (key.as_slice(), value.as_deref())))?;
        drop(table);
        txn.delete_table(KEPT).map_err(failed)?;
        txn.delete_table(TABLE).map_err(failed)?;
        txn.rename_table(STAGED, TABLE).map_err(failed)?;
        txn.commit().map_err(failed)
    }

    pub(super) fn replace_all(&self, pairs: &[KeyValue]) -> Result<(), EngineError> {
        let txn = begin(&self.database)?;
        txn.delete_table(TABLE).map_err(failed)?;
        let mut table = txn.open_table(TABLE).map_err(failed)?;
        put(&mut table, pairs.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))?;
        drop(table);
        txn.commit().map_err(failed)
    }
}

fn put<'a>(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    writes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Result<(), EngineError> {
    for (key, value) in writes {
        match value {
            Some(value) => drop(table.insert(key, value).map_err(failed)?),
            None => drop(table.remove(key).map_err(failed)?),
        }
    }
    Ok(())
}

/// A transaction after which a crash needs no repair.
fn begin(database: &Database) -> Result<WriteTransaction, EngineError> {
    let mut txn = database.begin_write().map_err(failed)?;
    txn.set_quick_repair(true);
    Ok(txn)
}

fn builder(cache_bytes: u64) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(usize::try_from(cache_bytes).unwrap_or(usize::MAX));
    builder
}

/// The table as the last commit left it.
pub(crate) struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl RedbReader {
    pub(super) fn get<T>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, EngineError> {
        let value = ReadableTable::get(&self.table, key).map_err(failed)?;
        Ok(value.map(|value| f(value.value())))
    }

    pub(super) fn range(
        &self,
        from: &[u8],
        to: &[u8],
        f: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        for pair in ReadableTable::range::<&[u8]>(&self.table, from..to).map_err(failed)? {
            let (key, value) = pair.map_err(failed)?;
            if !f(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_staged_store_takes_the_place_of_the_other_at_once() {
        let engine = RedbEngine::in_memory().expect("new");
        let pairs = |names: &[&str]| -> Writes {
            names.iter().map(|name| (name.as_bytes().to_vec(), Some(vec![1]))).collect()
        };
        let names = |engine: &RedbEngine| {
            let mut names = Vec::new();
            let reader = engine.reader().expect("readable");
            reader
                .range(&[], &[0xff], &mut |key, _| {
                    names.push(String::from_utf8_lossy(key).into_owned());
                    true
                })
                .expect("readable");
            names.join(" ")
        };
        let old = pairs(&["a", "b"]);
        engine.commit(old.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))).expect("it works");
        engine.begin_staging().expect("it works");
        engine.stage(&pairs(&["x"])).expect("it works");
        // The first attempt was given up.
        engine.begin_staging().expect("it works");
        engine.stage(&pairs(&["c", "d"])).expect("it works");
        assert_eq!(names(&engine), "a b");
        engine.replace_by_staged(&pairs(&["e"])).expect("it works");
        assert_eq!(names(&engine), "c d e");
        engine.begin_staging().expect("it works");
        engine.replace_by_staged(&pairs(&["f"])).expect("it works");
        assert_eq!(names(&engine), "f");
    }

    /// What is written while a store comes is there in the end, whichever part comes after it.
    #[test]
    fn writes_that_come_between_parts_are_kept() {
        let pair = |key: &str, value: Option<&[u8]>| (key.as_bytes().to_vec(), value.map(<[u8]>::to_vec));
        for engine in crate::fixture::engines() {
            engine.begin_staging().expect("it works");
            let old = Some(&[1][..]);
            let since = [pair("a", None), pair("b", Some(&[2])), pair("x", Some(&[2])), pair("y", None)];
            let first = Writes::from([pair("a", old), pair("b", old), pair("c", old)]);
            engine.stage_part(&first, Some(b"c"), &Writes::from(since)).expect("it works");
            let more = Writes::from([pair("c", Some(&[3])), pair("z", Some(&[3]))]);
            engine.stage_part(&Writes::new(), Some(b"c"), &more).expect("it works");
            let last = Writes::from([pair("x", old), pair("y", old)]);
            engine.stage_part(&last, None, &Writes::new()).expect("it works");
            engine.replace_by_staged(&Writes::new()).expect("it works");
            let pairs = engine.pairs().expect("readable");
            let expected = [("b", 2), ("c", 3), ("x", 2), ("z", 3)];
            assert_eq!(pairs, expected.map(|(key, value)| (key.as_bytes().to_vec(), vec![value])));
        }
    }

    fn key(round: u32, number: u32) -> Vec<u8> {
        [round, number].map(u32::to_be_bytes).concat()
    }

    /// The file as a crash leaves it, on another path, is opened without being read as a whole.
    #[test]
    fn a_crash_leaves_nothing_to_repair() {
        let folder = std::env::temp_dir().join(format!("shoal-meta-crash-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory for tests");
        let (path, copy) = (folder.join("store.redb"), folder.join("copy.redb"));
        let engine = RedbEngine::open(&path, 1 << 20).expect("new");
        for round in 0..3u32 {
            let keys: Vec<Vec<u8>> = (0..2000).map(|number| key(round, number)).collect();
            engine.commit(keys.iter().map(|key| (key.as_slice(), Some(&[7; 100][..])))).expect("it works");
        }
        std::fs::copy(&path, &copy).expect("room");
        let repaired = Rc::new(Cell::new(false));
        let noted = repaired.clone();
        let mut builder = builder(1 << 20);
        builder.set_repair_callback(move |_| noted.set(true));
        let database = builder.open(&copy).expect("whole");
        assert!(!repaired.get(), "the whole file was read");
        let table = database.begin_read().expect("readable").open_table(TABLE);
        let table = table.expect("there");
        let found = ReadableTable::get(&table, key(2, 1999).as_slice()).expect("readable");
        assert_eq!(found.map(|value| value.value().len()), Some(100));
        drop((database, engine));
        std::fs::remove_dir_all(&folder).expect("made above");
    }
}
