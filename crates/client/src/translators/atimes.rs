//! Records accesses and reports them to the metadata service later (the rule is in state/atime.rs).

use std::rc::Rc;
use std::sync::Arc;

use types::limits::ACCESSES_MAX;
use types::messages::names::{AccessTime, Accessed, Attr, FileKind};

use crate::routes::link::Link;
use crate::state::atime::{PendingAtimes, is_due};
use crate::state::open_file::OpenFile;

/// How long accesses are gathered, in microseconds.
const GATHER_US: u64 = 1_000_000;

/// Records and reports the accesses of one thread.
pub(crate) struct Atimes {
    pub(crate) link: Rc<Link>,
    pub(crate) pending: Arc<PendingAtimes>,
}

impl Atimes {
    fn updates_atime(&self, kind: FileKind) -> bool {
        self.link.routes.options.updates_atime && self.pending.filter().is_none_or(|filter| filter(kind))
    }

    /// Whether an access to an inode with these attributes would be recorded.
    pub(crate) fn is_due(&self, attr: &Attr) -> bool {
        let known = self.pending.with_access(attr.clone());
        is_due(known.atime, known.mtime, known.ctime, self.link.world.wall())
            && self.updates_atime(known.kind)
    }

    /// Records an access to an inode with these attributes, if it counts. Returns whether it was recorded.
    pub(crate) fn note(&self, attr: &Attr) -> bool {
        let atime = self.link.world.wall();
        let note = || AccessTime { inode: attr.inode, known: attr.atime, atime };
        self.is_due(attr) && self.pending.note(note())
    }

    /// Records a read of an open file, if it counts.
    pub(crate) fn note_read(&self, file: &Arc<OpenFile>) {
        let now = self.link.world.wall();
        let time = {
            let state = file.lock();
            if !is_due(state.atime, state.mtime, state.ctime, now) {
                return;
            }
            AccessTime { inode: file.inode, known: state.atime, atime: now }
        };
        // Set it even if the filter rejects it, so that the next read need not check again.
        if !self.updates_atime(FileKind::File) || self.pending.note(time) {
            file.lock().atime = now;
        }
    }

    /// Reports accesses until the mount ends.
    pub(crate) async fn run_reports(&self) {
        loop {
            let (begun, flush_now) = (self.pending.begun.wait(), self.pending.flush_now.wait());
            if self.link.routes.lease.has_left() {
                return;
            }
            let waiting = self.pending.waiting();
            if waiting == 0 {
                futures_util::future::select(std::pin::pin!(begun), std::pin::pin!(flush_now)).await;
                continue;
            }
            if waiting < ACCESSES_MAX {
                self.link.world.timeout(GATHER_US, flush_now).await;
            }
            self.report_some().await;
        }
    }

    /// Reports waiting accesses. Those that the service does not accept are lost.
    pub(crate) async fn report_some(&self) {
        let times = self.pending.first();
        if times.is_empty() {
            return;
        }
        let (client, volume) = (self.link.routes.lease.client(), self.link.routes.volume);
        if let Err(error) = self.link.ask(&Accessed { client, volume, times: times.clone() }).await {
            tracing::debug!(files = times.len(), %error, "access times could not be reported");
        }
        self.pending.told(&times);
    }
}
