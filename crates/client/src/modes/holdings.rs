//! The state that is lost with the lease.

use std::sync::Arc;

use types::messages::cluster::OpenInode;
use types::{InodeId, Refusal};

use crate::error::ClientError;
use crate::modes::{ModeState, Recalled};
use crate::routes::Above;
use crate::routes::route::MapView;
use crate::state::open_file::OpenFile;
use crate::state::open_files::OpenFiles;
use crate::state::tunings::Tunings;
use crate::unstable::Unstable;

/// The open files and their unstable bytes, which are lost with the lease, and the settings that the map has. For calls
/// from `routes/`.
pub(crate) struct Holdings {
    pub(crate) files: Arc<OpenFiles>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) modes: Arc<ModeState>,
    pub(crate) tunings: Arc<Tunings>,
}

impl Above for Holdings {
    fn map_changed(&self, map: &MapView) {
        if let Some(size) = map.block {
            self.files.disk_has(size);
        }
        if let Some(tuning) = map.tuning {
            self.tunings.set_volume(tuning);
        }
        self.unstable.resend_old_epochs();
    }

    fn open_inodes(&self) -> Vec<OpenInode> {
        let opened = |file: &Arc<OpenFile>| file.lock().open_inode(file.inode);
        self.files.files().iter().map(opened).filter(|o| o.readers + o.writers > 0).collect()
    }

    fn end_was_lost(&self, inode: InodeId) {
        self.modes.call_hook(inode, Recalled::EndLost);
    }

    fn lose_everything(&self) {
        for file in self.files.forget_files() {
            let mut state = file.lock();
            tracing::debug!(inode = %file.inode, stable = state.is_stable(), "fenced");
            (state.fenced, state.loss) = (true, None);
            state.wb_errors.add(ClientError::Refused(Refusal::Fenced));
            state.releases.clear();
            self.unstable.drop_unstable(&mut state);
            drop(state);
            file.changed.notify();
            self.modes.call_hook(file.inode, Recalled::Lost);
        }
        self.unstable.flow.forget_notes();
    }
}
