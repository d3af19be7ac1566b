//! Reads and writes under way, and how they are stopped while somebody cuts the file.
//!
//! Whoever reads or writes a file that others have open too asks for its attributes first, and goes by them to the end.
//! So a file is cut only while no client is between the two: the service asks everybody to stop, and makes the cut when
//! all have. The client that cuts stops itself.

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

/// A read or write under way, from its look at the file's attributes on. Nobody cuts a shared file while this lives and
/// the lease holds; one that the mount has alone it may cut itself.
pub(crate) struct InflightIo<'a> {
    file: &'a Arc<OpenFile>,
    /// How often the file has been cut.
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

/// No read or write of a file begins while this lives.
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
        drop(state);
        QuiesceGuard { modes, file }
    }
}

impl Drop for QuiesceGuard<'_> {
    fn drop(&mut self) {
        self.file.lock().quiesced -= 1;
        self.modes.active_quiesces.fetch_sub(1, Ordering::AcqRel);
        self.file.changed.notify();
    }
}

impl Modes {
    /// Begins a read or write by the newest attributes. What may make the file longer begins by [`Modes::begin_write`].
    pub(crate) async fn begin_io<'a>(&self, file: &'a Arc<OpenFile>) -> Result<InflightIo<'a>, ClientError> {
        loop {
            let stops = self.until_not_stopped(file).await?;
            self.revalidate_if_shared(file).await?;
            let mut state = file.lock();
            if state.fenced {
                return Err(ClientError::Refused(Refusal::Fenced));
            }
            // Attributes that were asked for before a cut are no good after it.
            if state.quiesce_seq == stops {
                state.inflight_io += 1;
                let truncate_seq = state.truncate_seq;
                drop(state);
                return Ok(InflightIo { file, truncate_seq });
            }
        }
    }

    /// Begins a write that ends at `end`. `None` if what a cut has left must be zeroed before the file grows so far.
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

    /// Waits until reads and writes may begin. Returns how often they have been stopped.
    async fn until_not_stopped(&self, file: &Arc<OpenFile>) -> Result<u64, ClientError> {
        let may_begin = || {
            let state = file.lock();
            (state.quiesced == 0 || state.fenced).then_some(state.quiesce_seq)
        };
        if let Some(stops) = may_begin() {
            return Ok(stops);
        }
        let budget = RetryBudget::new(&self.link.world);
        loop {
            let changed = file.changed.wait();
            if let Some(stops) = may_begin() {
                return Ok(stops);
            }
            self.link.world.timeout(AGE_MAX_US, changed).await;
            budget.check()?;
        }
    }

    /// Stops reads and writes of a file: returns when none is under way and everything that was written is stable.
    pub(crate) async fn quiesce<'a>(
        &'a self,
        file: &'a Arc<OpenFile>,
    ) -> Result<QuiesceGuard<'a>, ClientError> {
        let stopped = QuiesceGuard::begin(&self.state, file);
        self.until_quiet(file).await?;
        Ok(stopped)
    }

    /// Waits until nothing is under way and everything is stable.
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

    /// Somebody is about to cut a file.
    pub(super) fn begin_quiesce(self: &Rc<Self>, stop: Quiesce) {
        // Also if nothing is known of it: it may have been made here, and the answer to that be on its way.
        let (file, _) = self.files.get_file(stop.inode);
        let is_copy = file.lock().quiesce_asked.replace(stop.number) == Some(stop.number);
        let modes = self.clone();
        self.link.world.spawn("stop", async move {
            if !is_copy {
                modes.serve_quiesce(&file, stop.number).await;
            }
            modes.files.put_file(&file);
        });
    }

    /// Stops reads and writes of a file until the cut has been made.
    async fn serve_quiesce(&self, file: &Arc<OpenFile>, number: u64) {
        let stopped = QuiesceGuard::begin(&self.state, file);
        // What is on its way could arrive after the cut: however long it takes, the cut waits.
        while let Err(error) = self.until_quiet(file).await {
            tracing::debug!(inode = %file.inode, %error, "cannot stop yet");
            if self.is_over(file) {
                return;
            }
        }
        self.tell_stopped(file.inode, number).await;
        drop(stopped);
        file.lock().quiesce_asked.take_if(|asked| *asked == number);
    }

    /// Says that nothing is under way here, and waits for the cut.
    async fn tell_stopped(&self, inode: InodeId, number: u64) {
        let stopped = cluster::Quiesced { client: self.link.routes.lease.client(), inode, number };
        loop {
            match self.link.ask(&stopped).await {
                Err(ClientError::Unreachable) => {}
                Err(error) => {
                    tracing::debug!(%inode, %error, "a stop could not be told");
                    return;
                }
                Ok(_) => return,
            }
        }
    }

    /// Takes the newest attributes over if others may change the file, or fails if it is gone.
    pub(crate) async fn revalidate_if_shared(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        self.link.wait_for_lease().await?;
        if file.lock().mode != Mode::Shared {
            return Ok(());
        }
        let AttrReply { attr } =
            self.link.ask(&GetAttr { volume: self.link.routes.volume, inode: file.inode }).await?;
        let attr = self.atimes.with_access(attr);
        file.lock().adopt(&attr);
        Ok(())
    }

    /// Nothing more can be done with an open file.
    pub(crate) fn is_over(&self, file: &Arc<OpenFile>) -> bool {
        self.link.routes.lease.has_left() || self.link.routes.lease.is_lost() || file.lock().fenced
    }
}
