//! Reads and writes in progress, and how they are quiesced while a client truncates the file.
//!
//! A read or write of a shared file first gets the file's attributes, and relies on them until it ends. So a file may
//! be truncated only while no read or write is in progress. The service asks all clients to quiesce the file, and
//! truncates it when all have answered. The client that truncates quiesces its own reads and writes itself.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::messages::cluster::{self, Mode, Quiesce};
use types::messages::names::{AttrReply, GetAttr};
use types::{InodeId, Refusal};

use crate::error::ClientError;
use crate::modes::{ModeState, Modes};
use crate::routes::retry::RetryBudget;
use crate::state::open_file::OpenFile;
use crate::unstable::flow::AGE_MAX_US;

/// A read or write in progress, from its check of the file's attributes on. While this lives and the lease is valid,
/// no client truncates a shared file. In mode Alone, this mount itself may truncate the file meanwhile.
pub(crate) struct InflightIo<'a> {
    file: &'a Arc<OpenFile>,
    /// The file's `truncate_seq` at the start.
    pub(crate) truncate_seq: u64,
}

impl Drop for InflightIo<'_> {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        state.inflight_io -= 1;
        if state.quiesced > 0 {
            drop(state);
            self.file.changed.notify();
        }
    }
}

/// While this lives, no read or write of a file begins.
pub(crate) struct QuiesceGuard<'a> {
    modes: &'a ModeState,
    file: &'a Arc<OpenFile>,
}

impl<'a> QuiesceGuard<'a> {
    fn begin(modes: &'a ModeState, file: &'a Arc<OpenFile>) -> QuiesceGuard<'a> {
        modes.active_quiesces.fetch_add(1, Ordering::AcqRel);
        let mut state = file.lock();
        state.quiesced += 1;
        state.quiesce_seq += 1;
        state.invalidate();
        drop(state);
        QuiesceGuard { modes, file }
    }
}

impl Drop for QuiesceGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        state.quiesced -= 1;
        state.invalidate();
        drop(state);
        self.modes.active_quiesces.fetch_sub(1, Ordering::AcqRel);
        self.file.changed.notify();
    }
}

impl Modes {
    /// Begins a read or write with the newest attributes. Writes that may make the file longer use
    /// [`Modes::begin_write`].
    pub(crate) async fn begin_io<'a>(&self, file: &'a Arc<OpenFile>) -> Result<InflightIo<'a>, ClientError> {
        loop {
            let quiesce_seq = self.until_not_quiesced(file).await?;
            self.revalidate_if_shared(file).await?;
            let mut state = file.lock();
            if state.fenced {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            // Attributes from before a truncation are not valid after it.
            if state.quiesce_seq == quiesce_seq {
                state.inflight_io += 1;
                let truncate_seq = state.truncate_seq;
                drop(state);
                return Ok(InflightIo { file, truncate_seq });
            }
        }
    }

    /// Begins a write that ends at `end`. `None` if stale bytes must be zeroed before the file may grow.
    pub(crate) async fn begin_write<'a>(
        &self,
        file: &'a Arc<OpenFile>,
        end: u64,
    ) -> Result<Option<InflightIo<'a>>, ClientError> {
        let io = self.begin_io(file).await?;
        let state = file.lock();
        let is_stale = end > state.size && state.stale_end > state.size;
        drop(state);
        Ok((!is_stale).then_some(io))
    }

    /// Waits until reads and writes may begin. Returns how often they have been quiesced.
    async fn until_not_quiesced(&self, file: &Arc<OpenFile>) -> Result<u64, ClientError> {
        let may_begin = || {
            let state = file.lock();
            (state.quiesced == 0 || state.fenced).then_some(state.quiesce_seq)
        };
        if let Some(quiesce_seq) = may_begin() {
            return Ok(quiesce_seq);
        }
        // Seldom, and large: not in every read's future.
        Box::pin(self.until_may_begin(file, may_begin)).await
    }

    async fn until_may_begin(
        &self,
        file: &Arc<OpenFile>,
        may_begin: impl Fn() -> Option<u64>,
    ) -> Result<u64, ClientError> {
        let budget = RetryBudget::new(&self.link.world);
        loop {
            let changed = file.changed.wait();
            if let Some(quiesce_seq) = may_begin() {
                return Ok(quiesce_seq);
            }
            self.link.world.timeout(AGE_MAX_US, changed).await;
            budget.check()?;
        }
    }

    /// Quiesces reads and writes of a file. Returns when none is in progress and everything written is stable.
    pub(crate) async fn quiesce<'a>(
        &'a self,
        file: &'a Arc<OpenFile>,
    ) -> Result<QuiesceGuard<'a>, ClientError> {
        let guard = QuiesceGuard::begin(&self.state, file);
        self.until_quiet(file).await?;
        Ok(guard)
    }

    /// Waits until no read or write is in progress and everything is stable.
    async fn until_quiet(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let budget = RetryBudget::new(&self.link.world);
        loop {
            let changed = file.changed.wait();
            if file.lock().inflight_io == 0 {
                break;
            }
            self.link.world.timeout(AGE_MAX_US, changed).await;
            budget.check()?;
        }
        let mark = self.unstable.seal_all(file);
        self.io.make_stable(file, mark.upto).await
    }

    /// Another client is about to truncate a file: quiesces it in the background.
    pub(super) fn begin_quiesce(self: &Rc<Self>, asked: Quiesce) {
        // Even for an unknown file: this mount may have created it, and the answer may still be in flight.
        let (file, _) = self.files.get_file(asked.inode);
        let is_copy = file.lock().quiesce_asked.replace(asked.number) == Some(asked.number);
        let modes = self.clone();
        self.link.world.spawn("quiesce", async move {
            if !is_copy {
                modes.serve_quiesce(&file, asked.number).await;
            }
            modes.files.put_file(&file);
        });
    }

    /// Quiesces reads and writes of a file until the truncation is done.
    async fn serve_quiesce(&self, file: &Arc<OpenFile>, number: u64) {
        let guard = QuiesceGuard::begin(&self.state, file);
        // Writes in flight could arrive after the truncation, so it must wait for them, however long they take.
        while let Err(error) = self.until_quiet(file).await {
            tracing::debug!(inode = %file.inode, %error, "cannot quiesce a file yet");
            if self.is_over(file) {
                return;
            }
        }
        self.send_quiesced(file.inode, number).await;
        drop(guard);
        file.lock().quiesce_asked.take_if(|asked| *asked == number);
    }

    /// Tells the service that the file is quiesced, and waits until the truncation is done.
    async fn send_quiesced(&self, inode: InodeId, number: u64) {
        let quiesced = cluster::Quiesced { client: self.link.routes.lease.client(), inode, number };
        loop {
            match self.link.ask(&quiesced).await {
                Err(ClientError::Unreachable) => {}
                Err(error) => {
                    tracing::debug!(%inode, %error, "the service could not be told that a file is quiesced");
                    return;
                }
                Ok(_) => return,
            }
        }
    }

    /// Gets the newest attributes if other clients may change the file. Fails if the file is gone.
    pub(crate) async fn revalidate_if_shared(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        self.link.wait_for_lease().await?;
        if file.lock().mode() != Mode::Shared {
            return Ok(());
        }
        Box::pin(self.revalidate(file)).await
    }

    async fn revalidate(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let AttrReply { attr } =
            self.link.ask(&GetAttr { volume: self.link.routes.volume, inode: file.inode }).await?;
        self.link.learn_tier_of(attr.object).await?;
        let attr = self.atimes.with_access(attr);
        file.lock().adopt(&attr);
        Ok(())
    }

    /// Whether nothing more can be done with an open file.
    pub(crate) fn is_over(&self, file: &Arc<OpenFile>) -> bool {
        self.link.routes.lease.has_left() || self.link.routes.lease.is_lost() || file.lock().fenced
    }
}
