//! Shortening and lengthening a file.
//!
//! Truncation to size 0 gives the file a new object. Any other truncation leaves bytes beyond the end on the bricks.
//! The service records how far they may reach (`stale_end`), and a client that makes the file longer zeroes them
//! first (zeroing.rs). While a shared file is truncated, no client reads or writes it (quiesce.rs).

use std::sync::Arc;

use types::Refusal;
use types::messages::cluster::Mode;
use types::messages::names::Attr;

use crate::cuts::Cuts;
use crate::error::ClientError;
use crate::paths::attrs::SetAttrs;
use crate::routes::retry::{RETRY_BUDGET_US, RetryBudget};
use crate::state::open_file::{FileState, OpenFile};

impl Cuts {
    /// Sets the size of a file that is open for writing, and other attributes.
    pub(crate) async fn truncate(
        &self,
        file: &Arc<OpenFile>,
        size: u64,
        changes: &SetAttrs,
    ) -> Result<Attr, ClientError> {
        let mut budget = RetryBudget::new(&self.link.world);
        loop {
            self.modes.revalidate_if_shared(file).await?;
            if size > file.lock().size {
                self.zero_stale(file).await?;
            }
            match self.truncate_once(file, changes).await {
                // Another client has truncated it since.
                Err(ClientError::Refused(Refusal::Busy)) => budget.backoff().await?,
                outcome => return outcome,
            }
        }
    }

    /// One attempt of [`Cuts::truncate`], after stale bytes below the new size were zeroed.
    async fn truncate_once(&self, file: &Arc<OpenFile>, changes: &SetAttrs) -> Result<Attr, ClientError> {
        let turn = self.link.world.timeout(RETRY_BUDGET_US, file.turn.lock()).await;
        let _turn = turn.ok_or(ClientError::Unreachable)?;
        let alone = file.lock().mode() == Mode::Alone;
        let _quiesced = if alone { None } else { Some(self.modes.quiesce(file).await?) };
        let _paused = self.io.pause_writeback(file).await;
        // The service may have lost earlier reports of sent bytes in a restart.
        let sent_end = file.lock().sent_end;
        let attr = self.io.change_attr(file.inode, changes, sent_end).await?;
        tracing::debug!(inode = %file.inode, size = attr.size, sent_end, stale_end = attr.stale_end, "truncated");
        let mut state = file.lock();
        self.apply_truncation(&mut state, &attr);
        Ok(state.view(attr))
    }
}

impl Cuts {
    /// Applies a truncation: drops bytes beyond the new end, and adopts the new attributes.
    fn apply_truncation(&self, state: &mut FileState, attr: &Attr) {
        if attr.object != state.object {
            self.unstable.drop_unstable(state);
            state.object = attr.object;
        } else {
            self.unstable.drop_beyond(state, attr.size);
        }
        // From now on the service's `stale_end` covers bytes sent beyond the end.
        state.sent_end = state.sent_end.min(attr.size);
        state.set_truncate_seq(attr.truncate_seq);
        state.size = attr.size;
        state.reported_size = attr.size;
        state.durable_size = attr.size;
        state.stale_end = attr.stale_end;
        state.set_durable_mtime(attr.mtime);
    }
}
