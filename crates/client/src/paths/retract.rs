//! Tells the metadata service that the end of a file was lost (`state/loss.rs`).
//!
//! First everything that is left becomes stable or is lost too, so that the end does not move any more. Then the service takes the
//! end over, forgets a longer size that it showed, and remembers how far the bricks may hold bytes beyond it. Whoever makes the file
//! longer zeroes those first.

use std::rc::Rc;
use std::sync::Arc;

use types::Refusal;
use types::messages::cluster::Mode;
use types::messages::names::{AttrReply, Retract};

use crate::error::ClientError;
use crate::paths::Io;
use crate::routes::retry::{RETRY_BUDGET_US, RetryBudget, backoff_us};
use crate::state::open_file::OpenFile;
use crate::unstable::flow::AGE_MAX_US;

/// Number of tries after which the pause is the longest.
const MANY: u32 = 8;

impl Io {
    /// Waits until the service knows where the file ends, if its end was lost.
    pub(crate) async fn until_end_is_known(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        if file.lock().loss.is_none() {
            return Ok(());
        }
        // Seldom, and large: not in every write's future.
        Box::pin(self.wait_for_end(file)).await
    }

    async fn wait_for_end(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let budget = RetryBudget::new(&self.link.world);
        loop {
            let changed = file.changed.wait();
            if file.lock().loss.is_none() {
                return Ok(());
            }
            if self.link.routes.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            self.unstable.flow.queue_report(file);
            self.link.world.timeout(AGE_MAX_US, changed).await;
            budget.check()?;
        }
    }

    /// Lets a task tell the service where the file ends, if its end was lost and no task does so yet.
    pub(super) fn begin_retract(self: &Rc<Self>, file: &Arc<OpenFile>) {
        let begins = file.lock().loss.as_mut().is_some_and(|loss| !std::mem::replace(&mut loss.runs, true));
        if begins {
            let (io, file) = (self.clone(), file.clone());
            self.link.world.spawn("retract", async move { io.retract_until_done(&file).await });
        }
    }

    async fn retract_until_done(&self, file: &Arc<OpenFile>) {
        let mut tries = 0;
        while !self.link.routes.lease.has_left() {
            match self.retract(file).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::debug!(inode = %file.inode, %error, "the end of a file is not taken back yet")
                }
            }
            tries += 1;
            self.link.world.sleep(backoff_us(tries.min(MANY), self.link.world.random())).await;
        }
        self.unstable.enqueue_all(file);
        self.unstable.flow.queue_report(file);
        file.changed.notify();
        self.link.above.end_was_lost(file.inode);
    }

    /// One attempt. Returns when the service knows the end, or it is not for this mount to say.
    async fn retract(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let mark = self.unstable.seal_all(file);
        self.make_stable(file, mark.upto).await?;
        let turn = self.link.world.timeout(RETRY_BUDGET_US, file.turn.lock()).await;
        let _turn = turn.ok_or(ClientError::Unreachable)?;
        let _paused = self.pause_writeback(file).await;
        let (client, volume, inode) = (self.link.routes.lease.client(), self.link.routes.volume, file.inode);
        let request = {
            let mut state = file.lock();
            if state.mode() != Mode::Alone || state.fenced {
                state.loss = None;
            }
            if state.loss.is_none() {
                return Ok(());
            }
            if !state.is_stable() {
                return Err(ClientError::Refused(Refusal::Busy));
            }
            // A report that was under way may have been stored since.
            state.size = state.size.max(state.durable_size);
            // Stale bytes between the stored end and a longer one would become visible: the service refuses that end for ever.
            if state.stale_end > state.durable_size {
                state.size = state.durable_size;
            }
            let (truncate_seq, size, sent_end) = (state.truncate_seq, state.size, state.sent_end);
            Retract { client, volume, inode, truncate_seq, size, sent_end, now: self.link.world.wall() }
        };
        let answer = self.link.ask(&request).await;
        let mut state = file.lock();
        match answer {
            Ok(AttrReply { attr }) => {
                tracing::debug!(%inode, attr.size, attr.stale_end, "the end of a file was lost");
                self.unstable.apply_truncation(&mut state, &attr);
                Ok(())
            }
            // The file is gone.
            Err(ClientError::Refused(Refusal::Stale | Refusal::NotFound | Refusal::Fenced)) => {
                state.loss = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
