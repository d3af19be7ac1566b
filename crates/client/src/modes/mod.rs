//! What other clients allow this one to do: modes that are recalled, reads and writes that stop for a cut, and what is
//! lost with the lease.

pub(crate) mod inflight_opens;
pub(crate) mod lease;
pub(crate) mod quiesce;

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use types::messages::cluster::{Mode, OpenInode};
use types::{InodeId, Refusal};

use crate::error::ClientError;
use crate::modes::inflight_opens::InflightOpens;
use crate::paths::Io;
use crate::routes::Above;
use crate::routes::link::Link;
use crate::routes::route::MapView;
use crate::state::atime::PendingAtimes;
use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::open_files::OpenFiles;
use crate::unstable::Unstable;

/// Why what is cached of a file no longer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// The service has asked for this mode; it is confirmed when the hook returns.
    To(Mode),
    /// The lease has run out and others were let in: what is open fails from now on.
    Lost,
}

/// Told of a file of which nothing that is cached counts any more, before anybody else may change the file, or before
/// this client has a lease again.
pub type RecallHook = Box<dyn Fn(InodeId, Recalled) + Send + Sync>;

/// What all threads of a mount know of recalls and stops.
#[derive(Default)]
pub(crate) struct ModeState {
    inflight_opens: Mutex<InflightOpens>,
    hook: Mutex<Option<Arc<RecallHook>>>,
    /// How many stops of reads and writes there are now (`quiesce.rs`).
    active_quiesces: AtomicUsize,
}

impl ModeState {
    pub(crate) fn inflight_opens(&self) -> MutexGuard<'_, InflightOpens> {
        lock(&self.inflight_opens)
    }

    /// Sets who is told that nothing cached of a file counts any more.
    pub(crate) fn set_hook(&self, hook: RecallHook) {
        *lock(&self.hook) = Some(Arc::new(hook));
    }

    pub(crate) fn call_hook(&self, inode: InodeId, recalled: Recalled) {
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook {
            hook(inode, recalled);
        }
    }

    /// Reads and writes of some file wait until it has been cut.
    pub(crate) fn has_quiesced_files(&self) -> bool {
        self.active_quiesces.load(Ordering::Acquire) > 0
    }
}

/// A thread's own part in that.
pub(crate) struct Modes {
    pub(crate) link: Rc<Link>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    pub(crate) io: Rc<Io>,
    pub(crate) state: Arc<ModeState>,
}

/// What the routes tell of and ask for: the files and their unstable bytes live and die with the lease.
pub(crate) struct Holdings {
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) modes: Arc<ModeState>,
}

impl Above for Holdings {
    fn map_changed(&self, map: &MapView) {
        if let Some(size) = map.block {
            self.files.disk_has(size);
        }
        self.unstable.resend_old_epochs();
    }

    fn open_inodes(&self) -> Vec<OpenInode> {
        let opened = |file: &Arc<OpenFile>| file.lock().open_inode(file.inode);
        self.files.files().iter().map(opened).filter(|o| o.readers + o.writers > 0).collect()
    }

    fn lose_everything(&self) {
        for file in self.files.forget_files() {
            let mut state = file.lock();
            tracing::debug!(inode = %file.inode, stable = state.is_stable(), "fenced");
            state.fenced = true;
            state.wb_errors.add(ClientError::Refused(Refusal::Fenced));
            state.releases.clear();
            self.unstable.drop_unstable(&mut state);
            drop(state);
            file.changed.notify();
            self.modes.call_hook(file.inode, Recalled::Lost);
        }
    }
}
