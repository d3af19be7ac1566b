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
use crate::state::open_file::OpenFile;

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
            self.io.until_end_is_known(file).await?;
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
        let sent_end = {
            let state = file.lock();
            // The end was lost since. Taking it back must not come after this truncation.
            if state.loss.is_some() {
                return Err(ClientError::Refused(Refusal::Busy));
            }
            state.sent_end
        };
        let attr = self.io.change_attr(file.inode, changes, sent_end).await?;
        tracing::debug!(inode = %file.inode, size = attr.size, sent_end, stale_end = attr.stale_end, "truncated");
        let mut state = file.lock();
        self.unstable.apply_truncation(&mut state, &attr);
        Ok(state.view(attr))
    }
}
