//! The state of recalls and quiesces that all threads of a mount share, and its use by one thread.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use types::InodeId;
use types::messages::cluster::Mode;

use crate::modes::inflight_opens::InflightOpens;
use crate::paths::Io;
use crate::routes::link::Link;
use crate::state::atime::PendingAtimes;
use crate::state::lock;
use crate::state::open_files::OpenFiles;
use crate::unstable::Unstable;

/// Why cached bytes and attributes of a file are no longer valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// The service has recalled the file's mode to this one. The client confirms it when the hook returns.
    To(Mode),
    /// The lease has run out and other clients were let in: open handles fail from now on.
    Lost,
    /// Bytes at the end of the file were lost before any brick had them: the file is shorter. The mode is what it was.
    EndLost,
}

/// Called when nothing cached of a file is valid any more: before another client may change the file, or before this
/// client gets a new lease.
pub type RecallHook = Box<dyn Fn(InodeId, Recalled) + Send + Sync>;

/// The state of recalls and quiesces that all threads of a mount share.
#[derive(Default)]
pub(crate) struct ModeState {
    inflight_opens: Mutex<InflightOpens>,
    hook: Mutex<Option<Arc<RecallHook>>>,
    /// Number of quiesces in progress (`quiesce.rs`).
    pub(super) active_quiesces: AtomicUsize,
}

impl ModeState {
    pub(crate) fn inflight_opens(&self) -> MutexGuard<'_, InflightOpens> {
        lock(&self.inflight_opens)
    }

    /// Sets the hook that is called when nothing cached of a file is valid any more.
    pub(crate) fn set_hook(&self, hook: RecallHook) {
        *lock(&self.hook) = Some(Arc::new(hook));
    }

    pub(crate) fn call_hook(&self, inode: InodeId, recalled: Recalled) {
        let hook = lock(&self.hook).clone();
        if let Some(hook) = hook {
            hook(inode, recalled);
        }
    }

    /// Whether reads and writes of some file wait for a truncation.
    pub(crate) fn has_quiesced_files(&self) -> bool {
        self.active_quiesces.load(Ordering::Acquire) > 0
    }
}

/// Recalls and quiesces, served by one thread.
pub(crate) struct Modes {
    pub(crate) link: Rc<Link>,
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) atimes: Arc<PendingAtimes>,
    pub(crate) io: Rc<Io>,
    pub(crate) state: Arc<ModeState>,
}
