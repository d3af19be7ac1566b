//! What an engine does when its disk is full.
//!
//! A service waits: a write for which there is no room is tried again and again, in the thread of the commit, and the database
//! never learns of it. An error would end its use until it is opened again, for reads too. A command that opens a store for a
//! moment gets the error.

use std::io;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::{BackendError, StorageBackend};

/// Pause before a write is tried again for which there was no room.
const AGAIN: Duration = Duration::from_millis(100);

/// Whether an error says that there is no room, of the disk or of a quota.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[derive(Debug, Default)]
struct Waits {
    /// Writes may wait for room.
    is_patient: bool,
    /// A write waits.
    is_full: bool,
}

/// Whether an engine's disk is full, and what a write does then.
#[derive(Debug, Default)]
pub(crate) struct DiskSpace {
    waits: Mutex<Waits>,
    changed: Condvar,
}

impl DiskSpace {
    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on writes wait for room; or those that wait, and later ones, fail.
    pub(crate) fn set_patient(&self, is_patient: bool) {
        self.lock().is_patient = is_patient;
        self.changed.notify_all();
    }

    /// Whether a write waits for room.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// Does something until it does not fail for want of room.
    fn patiently(&self, mut write: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        loop {
            let error = match write() {
                Err(error) if is_no_space(&error) => error,
                other => {
                    self.lock().is_full = false;
                    return other;
                }
            };
            let mut waits = self.lock();
            if !waits.is_patient {
                return Err(error);
            }
            waits.is_full = true;
            drop(self.changed.wait_timeout(waits, AGAIN));
        }
    }
}

/// The file of a database. Its writes wait for room, if they may.
#[derive(Debug)]
pub(super) struct PatientFile<F> {
    pub(super) file: F,
    pub(super) space: Arc<DiskSpace>,
}

impl<F: StorageBackend> StorageBackend for PatientFile<F> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.space.patiently(|| self.file.set_len(len))
    }

    /// Not tried again: after an error of the system nobody knows which bytes it has dropped.
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.space.patiently(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase, TableDefinition};

    use super::*;

    const TABLE: TableDefinition<'static, u64, &'static [u8]> = TableDefinition::new("t");

    /// A file on a disk that has room for so many more writes.
    #[derive(Debug)]
    struct Small {
        file: InMemoryBackend,
        room: Arc<AtomicU64>,
    }

    impl StorageBackend for Small {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let took = self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            took.map_err(|_| io::Error::from(io::ErrorKind::StorageFull))?;
            self.file.write(offset, data)
        }
    }

    fn put(database: &Database, from: u64) -> Result<(), redb::Error> {
        let txn = database.begin_write()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for key in from..from + 2000 {
                table.insert(key, &[7; 100][..])?;
            }
        }
        Ok(txn.commit()?)
    }

    fn made() -> (Database, Arc<DiskSpace>, Arc<AtomicU64>) {
        let (space, room) = (Arc::<DiskSpace>::default(), Arc::new(AtomicU64::new(u64::MAX)));
        let small = Small { file: InMemoryBackend::new(), room: Arc::clone(&room) };
        let file = PatientFile { file: small, space: Arc::clone(&space) };
        let database = Database::builder().set_cache_size(1 << 20).create_with_backend(file).expect("new");
        put(&database, 0).expect("there is room");
        (database, space, room)
    }

    fn has(database: &Database, key: u64) -> bool {
        let table = database.begin_read().expect("readable").open_table(TABLE).expect("there");
        table.get(key).expect("readable").is_some()
    }

    #[test]
    fn a_commit_waits_for_room_and_reads_go_on() {
        let (database, space, room) = made();
        space.set_patient(true);
        room.store(3, Ordering::SeqCst);
        thread::scope(|scope| {
            let commit = scope.spawn(|| put(&database, 10_000));
            while !space.is_full() {
                thread::yield_now();
            }
            assert!(has(&database, 1999) && !has(&database, 10_000) && !commit.is_finished());
            room.store(u64::MAX, Ordering::SeqCst);
            commit.join().expect("no panic").expect("there is room again");
        });
        assert!(!space.is_full());
        assert!(has(&database, 1999) && has(&database, 11_999));
        put(&database, 20_000).expect("the database goes on");
    }

    #[test]
    fn a_commit_that_waits_fails_when_the_service_ends() {
        let (database, space, room) = made();
        space.set_patient(true);
        room.store(0, Ordering::SeqCst);
        thread::scope(|scope| {
            let commit = scope.spawn(|| put(&database, 10_000));
            while !space.is_full() {
                thread::yield_now();
            }
            space.set_patient(false);
            assert!(commit.join().expect("no panic").is_err());
        });
    }

    #[test]
    fn without_patience_a_full_disk_is_an_error_at_once() {
        let (database, _, room) = made();
        room.store(0, Ordering::SeqCst);
        assert!(put(&database, 10_000).is_err());
    }
}
