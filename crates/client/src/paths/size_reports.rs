//! What the metadata service is owed after the bytes: sizes, times, closes.
//!
//! A size is told for good only up to the first byte that is not stable: after a crash no size points past durable
//! bytes. A file opened for writing counts as open, and keeps its mode, until all that is done.

use std::sync::Arc;

use futures_util::future::join_all;
use types::Refusal;
use types::messages::cluster::Mode;
use types::messages::names::{Release, SizeUpdate, UpdateSizes, UpdateSizesReply};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::write::WriteStage;
use crate::state::open_file::{Mark, OpenFile};

/// Files that are told of in one message at most.
const BATCH_MAX: usize = 512;
/// Closes on their way at most.
const RELEASES_MAX: usize = 16;

/// What came of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReportOutcome {
    /// The service knows.
    Accepted,
    /// A file was cut after what its report tells of: that counts no more, and the file's attributes are new.
    Truncated,
}

/// Keeps a file from being truncated, and its time from being set, while the service is being told of it.
struct Growing<'a>(&'a Arc<OpenFile>);

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.lock().growing -= 1;
        self.0.changed.notify();
    }
}

impl Io {
    /// Tells the service of a file's size and time: for good if `stable`, the mark up to which everything is, and then only
    /// as far as they are.
    pub(crate) async fn report_size(
        &self,
        file: &Arc<OpenFile>,
        stable: Option<Mark>,
    ) -> Result<(), ClientError> {
        // After a cut there may be less to tell, or nothing.
        loop {
            self.until_writeback_resumes(file).await;
            let Some((_growing, update)) = self.begin_growth(file, stable) else { return Ok(()) };
            if self.grow(&[(file.clone(), update)], stable.is_some()).await? == ReportOutcome::Accepted {
                return Ok(());
            }
        }
    }

    /// Waits until reports of a file may leave.
    async fn until_writeback_resumes(&self, file: &Arc<OpenFile>) {
        loop {
            let changed = file.changed.wait();
            let writeback_paused = file.lock().writeback_paused;
            if !writeback_paused {
                return;
            }
            changed.await;
        }
    }

    /// Tells the service for good that a file has at least `end` bytes, if it does not know. They were written when it had
    /// been cut `truncate_seq` times.
    pub(crate) async fn report_end(
        &self,
        file: &Arc<OpenFile>,
        end: u64,
        truncate_seq: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let (_growing, update) = {
            let mut state = file.lock();
            if end <= state.durable_size {
                return Ok(ReportOutcome::Accepted);
            }
            state.growing += 1;
            let (inode, mtime) = (file.inode, state.mtime);
            (Growing(file), SizeUpdate { inode, truncate_seq, size: end, mtime, set_time: false })
        };
        self.grow(&[(file.clone(), update)], true).await
    }

    /// What is to be told of a file, if anything; nothing else changes its size meanwhile.
    fn begin_growth<'a>(
        &self,
        file: &'a Arc<OpenFile>,
        stable: Option<Mark>,
    ) -> Option<(Growing<'a>, SizeUpdate)> {
        let mut state = file.lock();
        let update = state.growth(&self.link.routes.geometry(), stable, file.inode)?;
        state.growing += 1;
        Some((Growing(file), update))
    }

    pub(crate) async fn grow(
        &self,
        updates: &[(Arc<OpenFile>, SizeUpdate)],
        stable: bool,
    ) -> Result<ReportOutcome, ClientError> {
        let (client, volume) = (self.link.routes.lease.client(), self.link.routes.volume);
        let sizes = updates.iter().map(|(_, update)| update.clone()).collect();
        let outcome = self.link.ask(&UpdateSizes { client, volume, sizes, stable }).await;
        let UpdateSizesReply { cut } = match outcome {
            Ok(grown) => grown,
            // A file that is gone has no size to be kept.
            Err(ClientError::Refused(Refusal::Stale | Refusal::NotFound)) if updates.len() == 1 => {
                UpdateSizesReply { cut: Vec::new() }
            }
            Err(error) => return Err(error),
        };
        for (file, update) in updates {
            let (inode, size) = (file.inode, update.size);
            if let Some(attr) = cut.iter().find(|attr| attr.inode == inode) {
                tracing::debug!(%inode, size, truncate_seq = attr.truncate_seq, "cut before it was told");
                file.lock().was_truncated(attr);
            } else {
                tracing::debug!(stage = %WriteStage::SizeReported, %inode, size, stable, "grown");
                file.lock().has_grown(update, stable);
            }
        }
        Ok(if cut.is_empty() { ReportOutcome::Accepted } else { ReportOutcome::Truncated })
    }

    /// Tells the service what it is owed, as it comes, until the mount ends.
    pub(crate) async fn run_reports(&self) {
        while !self.link.routes.lease.has_left() {
            let woken = self.unstable.flow.report_wanted.wait();
            let files = self.unstable.flow.take_to_report(BATCH_MAX);
            if files.is_empty() {
                woken.await;
                continue;
            }
            self.report_batch(&files).await;
        }
    }

    /// Tells the service everything that may be told of these files.
    pub(crate) async fn report_batch(&self, files: &[Arc<OpenFile>]) {
        let mut updates = Vec::new();
        let mut growing = Vec::new();
        for file in files {
            // Whoever makes it stable tells of it, and has this looked at again.
            let is_told_elsewhere = file.lock().fsyncs > 0;
            if !is_told_elsewhere
                && let Some((guard, update)) = self.begin_growth(file, Some(Mark::default()))
            {
                growing.push(guard);
                updates.push((file.clone(), update));
            }
        }
        if !updates.is_empty() {
            self.grow_for_good(&updates).await;
        }
        drop(growing);
        for some in files.chunks(RELEASES_MAX) {
            join_all(some.iter().map(|file| self.settle_releases(file))).await;
        }
    }

    /// Tells the service durable sizes; tries again later what could not be told.
    async fn grow_for_good(&self, updates: &[(Arc<OpenFile>, SizeUpdate)]) {
        let error = match self.grow(updates, true).await {
            Ok(ReportOutcome::Accepted) => return,
            Ok(ReportOutcome::Truncated) => {
                updates.iter().for_each(|(file, _)| self.unstable.flow.queue_report(file));
                return;
            }
            Err(error) => error,
        };
        for one in updates.chunks(1) {
            // One of them may be the reason: the others must not suffer.
            let refused = matches!(error, ClientError::Refused(_));
            match if refused { self.grow(one, true).await } else { Err(error) } {
                Ok(ReportOutcome::Accepted) => {}
                Ok(ReportOutcome::Truncated) => self.unstable.flow.queue_report(&one[0].0),
                // A service that cannot store it ends, and the one that is started after it may.
                Err(ClientError::Unreachable | ClientError::Refused(Refusal::MetaFailed)) => {
                    self.unstable.flow.queue_report(&one[0].0);
                }
                Err(error) => {
                    tracing::warn!(inode = %one[0].1.inode, %error, "a size is not taken");
                    let mut state = one[0].0.lock();
                    state.has_grown(&one[0].1, true);
                    state.wb_errors.add(error);
                }
            }
        }
    }

    /// Tells the service of closes: those of writers when everything written is stable and told.
    async fn settle_releases(&self, file: &Arc<OpenFile>) {
        loop {
            let write = {
                let mut state = file.lock();
                let told = state.may_close();
                let Some(next) = state.releases.iter().position(|write| told || !write) else { break };
                let write = state.releases.swap_remove(next);
                if state.users == 0 && state.releases.is_empty() {
                    // Whatever the mode allowed ends with the last close.
                    state.mode = Mode::Shared;
                }
                write
            };
            let (volume, inode) = (self.link.routes.volume, file.inode);
            let released = self.link.change(|caller| Release { caller, volume, inode, write }).await;
            if let Err(error) = released {
                tracing::debug!(%inode, %error, "a close could not be told");
            }
            file.lock().count_release(write);
        }
        self.files.forget_if_clean(file);
    }
}
