//! The table of open files and their handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use types::limits::OPEN_FILES_MAX;
use types::{InodeId, Refusal, Tuning};

use crate::error::ClientError;
use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::wb_errors::ErrorCursor;

/// A handle: the result of one `open`.
pub(crate) struct Handle {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) write: bool,
    pub(crate) error_cursor: ErrorCursor,
    /// Reads through it do not update access times.
    pub(crate) noatime: AtomicBool,
    /// The kernel caches what is read through it, and reads ahead.
    pub(crate) in_kernel: AtomicBool,
}

/// The files of a mount that are open or have something to send or report, and their handles.
#[derive(Default)]
pub(crate) struct OpenFiles {
    files: Mutex<BTreeMap<InodeId, Arc<OpenFile>>>,
    handles: Mutex<BTreeMap<u64, Arc<Handle>>>,
    last_handle: AtomicU64,
    last_file: AtomicU64,
    /// The first lost write that no handle had reported when its file was removed from the table.
    unreported: Mutex<Option<ClientError>>,
}

impl OpenFiles {
    /// Fails with the first lost write that was not reported before its file was removed.
    pub(crate) fn unreported(&self) -> Result<(), ClientError> {
        lock(&self.unreported).map_or(Ok(()), Err)
    }

    /// What a handle stands for.
    pub(crate) fn handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        let handle = lock(&self.handles).get(&handle).cloned().ok_or(ClientError::BadHandle)?;
        let fenced = handle.file.lock().fenced;
        if fenced { Err(ClientError::Refused(Refusal::Fenced)) } else { Ok(handle) }
    }

    /// Makes a handle of a file that its caller already counts as a user of.
    pub(crate) fn add_handle(&self, handle: Handle) -> u64 {
        let number = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.handles).insert(number, Arc::new(handle));
        number
    }

    pub(crate) fn take_handle(&self, handle: u64) -> Result<Arc<Handle>, ClientError> {
        lock(&self.handles).remove(&handle).ok_or(ClientError::BadHandle)
    }

    /// The file of an inode, if it is open or owes something.
    pub(crate) fn file(&self, inode: InodeId) -> Option<Arc<OpenFile>> {
        lock(&self.files).get(&inode).cloned()
    }

    pub(crate) fn files(&self) -> Vec<Arc<OpenFile>> {
        lock(&self.files).values().cloned().collect()
    }

    /// Takes every file out of the table.
    pub(crate) fn forget_files(&self) -> Vec<Arc<OpenFile>> {
        std::mem::take(&mut *lock(&self.files)).into_values().collect()
    }

    /// Refuses another open file if the service could not be told of all of them after a restart.
    pub(crate) fn check_open_files(&self, inode: Option<InodeId>) -> Result<(), ClientError> {
        let files = lock(&self.files);
        let known = inode.is_some_and(|inode| files.contains_key(&inode));
        if known || files.len() < OPEN_FILES_MAX {
            Ok(())
        } else {
            Err(ClientError::Refused(Refusal::TooMany))
        }
    }

    /// Becomes a user of an inode's file. Also returns whether its entry is new.
    pub(crate) fn get_file(&self, inode: InodeId) -> (Arc<OpenFile>, bool) {
        let mut files = lock(&self.files);
        let mut fresh = false;
        let file = files.entry(inode).or_insert_with(|| {
            fresh = true;
            Arc::new(OpenFile::new(inode, self.last_file.fetch_add(1, Ordering::Relaxed)))
        });
        file.lock().users += 1;
        (file.clone(), fresh)
    }

    /// Stops being a user.
    pub(crate) fn put_file(&self, file: &Arc<OpenFile>) {
        let mut state = file.lock();
        state.users = state.users.checked_sub(1).expect("put_file follows get_file");
        if state.users == 0 {
            // Its own settings last while it is open, and no longer until everything is reported.
            state.tuning = Tuning::default();
        }
        drop(state);
        self.forget_if_clean(file);
    }

    /// Removes a file from the table if it has no users and nothing left to report.
    pub(crate) fn forget_if_clean(&self, file: &Arc<OpenFile>) {
        let mut files = lock(&self.files);
        let state = file.lock();
        let known = files.get(&file.inode).is_some_and(|known| Arc::ptr_eq(known, file));
        if known && state.users == 0 && state.is_clean() && state.readers + state.writers == 0 {
            if let Err(error) = state.wb_errors.unreported() {
                lock(&self.unreported).get_or_insert(error);
            }
            drop(state);
            files.remove(&file.inode);
        }
    }

    /// Takes the size of a block volume's disk from the cluster map: it has at least `size` bytes.
    pub(crate) fn disk_has(&self, size: u64) {
        for file in self.files() {
            let mut state = file.lock();
            state.size = state.size.max(size);
            state.reported_size = state.reported_size.max(size);
            state.durable_size = state.durable_size.max(size);
        }
    }
}
