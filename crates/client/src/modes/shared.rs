//! What all threads of a mount know of recalls and stops, and what one thread needs to follow them.

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
    pub(super) active_quiesces: AtomicUsize,
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
