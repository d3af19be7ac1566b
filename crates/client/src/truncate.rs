//! Shortening and lengthening a file.
//!
//! Truncation to size 0 gives the file a new object. Any other truncation leaves bytes beyond the end on the bricks.
//! The service records how far they may reach (`stale_end`), and a client that makes the file longer zeroes them
//! first (zeroing.rs). While a shared file is truncated, no client reads or writes it (quiesce.rs).

use std::sync::Arc;

use types::Refusal;
use types::messages::cluster::Mode;
use types::messages::names::Attr;

use crate::error::ClientError;
use crate::gather::{Change, Piece};
use crate::mount::Mount;
use crate::names::SetAttrs;
use crate::open_file::{FileState, OpenFile};
use crate::retry::{RETRY_BUDGET_US, RetryBudget};
use crate::session::Session;

/// While this lives, no bytes or reports of the file are sent.
pub(crate) struct WritebackPause<'a> {
    mount: &'a Mount,
    file: &'a Arc<OpenFile>,
}

impl Drop for WritebackPause<'_> {
    fn drop(&mut self) {
        self.file.lock().writeback_paused = false;
        self.mount.enqueue_all(self.file);
        // Bytes that became stable meanwhile were not reported.
        self.mount.flow.queue_report(self.file);
        self.file.changed.notify();
    }
}

impl Session {
    /// Pauses write-back of a file, and waits for sends and reports in flight.
    pub(crate) async fn pause_writeback<'a>(&'a self, file: &'a Arc<OpenFile>) -> WritebackPause<'a> {
        file.lock().writeback_paused = true;
        let writeback_paused = WritebackPause { mount: &self.mount, file };
        loop {
            let changed = file.changed.wait();
            {
                let state = file.lock();
                if state.claims == 0 && state.growing == 0 {
                    return writeback_paused;
                }
            }
            changed.await;
        }
    }

    /// Sets the size of a file that is open for writing, and other attributes.
    pub(crate) async fn truncate(
        &self,
        file: &Arc<OpenFile>,
        size: u64,
        changes: &SetAttrs,
    ) -> Result<Attr, ClientError> {
        let mut budget = RetryBudget::new(&self.world);
        loop {
            self.revalidate_if_shared(file).await?;
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

    /// One attempt of [`Session::truncate`], after stale bytes below the new size were zeroed.
    async fn truncate_once(&self, file: &Arc<OpenFile>, changes: &SetAttrs) -> Result<Attr, ClientError> {
        let turn = self.world.timeout(RETRY_BUDGET_US, file.turn.lock()).await;
        let _turn = turn.ok_or(ClientError::Unreachable)?;
        let alone = file.lock().mode == Mode::Alone;
        let _quiesced = if alone { None } else { Some(self.quiesce(file).await?) };
        let _paused = self.pause_writeback(file).await;
        // The service may have lost earlier reports of sent bytes in a restart.
        let sent_end = file.lock().sent_end;
        let attr = self.change_attr(file.inode, changes, sent_end).await?;
        tracing::debug!(inode = %file.inode, size = attr.size, sent_end, stale_end = attr.stale_end, "truncated");
        let mut state = file.lock();
        self.mount.apply_truncation(&mut state, &attr);
        Ok(state.view(attr))
    }
}

impl Mount {
    /// Applies a truncation: drops bytes beyond the new end, and adopts the new attributes.
    fn apply_truncation(&self, state: &mut FileState, attr: &Attr) {
        if attr.object != state.object {
            self.drop_unstable(state);
            state.object = attr.object;
        } else {
            self.drop_beyond(state, attr.size);
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

    /// Drops unsent bytes beyond `size`.
    fn drop_beyond(&self, state: &mut FileState, size: u64) {
        let geometry = self.geometry();
        let (first, within) = geometry.locate(size);
        let stripes: Vec<u64> = state.stripes.range(first..).map(|(stripe, _)| *stripe).collect();
        for stripe in stripes {
            let Some(writes) = state.stripes.get_mut(&stripe) else { continue };
            let (dropped, change) = writes.cut(if stripe == first { within } else { 0 });
            self.forget(state, &dropped, change);
        }
        state.stripes.retain(|_, s| !s.is_empty() || s.claimed);
    }

    /// Drops every unstable byte of a file.
    pub(crate) fn drop_unstable(&self, state: &mut FileState) {
        let mut dropped = Vec::new();
        let mut change = Change::default();
        for writes in state.stripes.values_mut() {
            let (pieces, cleared) = writes.clear();
            dropped.extend(pieces);
            change += cleared;
        }
        self.forget(state, &dropped, change);
        state.stripes.retain(|_, s| s.claimed);
    }

    fn forget(&self, state: &mut FileState, dropped: &[Piece], change: Change) {
        dropped.iter().for_each(|piece| self.finish_piece(state, piece));
        self.flow.change(change);
    }
}
