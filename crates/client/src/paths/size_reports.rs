//! Reports to the metadata service after the bytes are written: sizes, times, closes.
//!
//! A durable size never exceeds the first byte that is not stable, so after a crash no size covers missing bytes. A
//! file opened for writing counts as open, and keeps its mode, until all its reports are done.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use types::Refusal;
use types::code_probe::{CodeProbe, hit};
use types::messages::cluster::Mode;
use types::messages::names::{Release, SizeUpdate, UpdateSizes, UpdateSizesReply};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::write::WriteStage;
use crate::state::counters::Counter;
use crate::state::open_file::{Mark, OpenFile};
use crate::state::reports::SizeReport;

/// Most files in one report.
const BATCH_MAX: usize = 512;
/// Most reports of closes in flight.
const RELEASES_MAX: usize = 16;

/// The result of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReportOutcome {
    /// The service has taken it.
    Accepted,
    /// A file was truncated after its report was made. The service ignored this report, and the file has new
    /// attributes.
    Truncated,
}

/// What the service does with a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// Others see the size; it is forgotten in a restart.
    Shown,
    /// The size is stored.
    Durable,
    /// The size of one file is stored, and that later ones may be noted with the bricks.
    DurableAndNoting,
}

/// While a report of a file is in flight, the file is not truncated and its time is not set.
struct Growing<'a>(&'a Arc<OpenFile>);

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.0.lock().growing -= 1;
        self.0.changed.notify();
    }
}

impl Io {
    /// Reports a file's size and time. With `stable`, the mark up to which everything is stable, the report is
    /// durable, and its size does not exceed the stable bytes.
    pub(crate) async fn report_size(
        &self,
        file: &Arc<OpenFile>,
        stable: Option<Mark>,
    ) -> Result<(), ClientError> {
        let kind = if stable.is_some() { Report::Durable } else { Report::Shown };
        self.report_as(file, stable, kind).await
    }

    async fn report_as(
        &self,
        file: &Arc<OpenFile>,
        stable: Option<Mark>,
        kind: Report,
    ) -> Result<(), ClientError> {
        // After a truncation there may be less to report, or nothing.
        loop {
            self.until_end_is_known(file).await?;
            self.until_writeback_resumes(file).await;
            let Some((_growing, update)) = self.begin_growth(file, stable) else { return Ok(()) };
            if self.grow(&[(file.clone(), update)], kind).await? == ReportOutcome::Accepted {
                return Ok(());
            }
        }
    }

    /// The end of an `fsync`: everything up to the mark is stable. If a note says so, and the present service shows the size,
    /// it is told later to store it.
    pub(crate) async fn report_fsync(&self, file: &Arc<OpenFile>, mark: Mark) -> Result<(), ClientError> {
        let kind = {
            let mut state = file.lock();
            if state.is_synced_by_note(&mark, self.link.routes.lease.rejoins()) {
                self.link.routes.counts.count(Counter::NotedSyncs, 1);
                hit(CodeProbe::SyncNoted);
                return Ok(());
            }
            let asks = state.noting.is_synced && !state.noting.granted && state.may_buffer();
            state.noting.is_synced = true;
            if asks { Report::DurableAndNoting } else { Report::Durable }
        };
        self.report_as(file, Some(mark), kind).await
    }

    /// Waits until reports of a file may be sent.
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

    /// Reports durably that a file has at least `end` bytes, unless the service knows. `truncate_seq` is that of the
    /// file when the bytes were written.
    pub(crate) async fn report_end(
        &self,
        file: &Arc<OpenFile>,
        end: u64,
        truncate_seq: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let (_growing, update) = loop {
            self.until_end_is_known(file).await?;
            self.until_writeback_resumes(file).await;
            let mut state = file.lock();
            if end <= state.durable_size {
                return Ok(ReportOutcome::Accepted);
            }
            if state.loss.is_some() || state.writeback_paused {
                continue;
            }
            state.growing += 1;
            let (inode, mtime) = (file.inode, state.mtime);
            let update = SizeUpdate { inode, truncate_seq, size: end, mtime, set_time: false };
            // Other writes may not be stable.
            break (Growing(file), SizeReport { update, changed: 0 });
        };
        self.grow(&[(file.clone(), update)], Report::Durable).await
    }

    /// The next report of a file, if there is one. While it is in flight, nothing else changes the file's size.
    fn begin_growth<'a>(
        &self,
        file: &'a Arc<OpenFile>,
        stable: Option<Mark>,
    ) -> Option<(Growing<'a>, SizeReport)> {
        let mut state = file.lock();
        let geometry = self.link.routes.geometry_of(state.object);
        let report = state.growth(&geometry, stable, file.inode)?;
        state.growing += 1;
        Some((Growing(file), report))
    }

    pub(crate) async fn grow(
        &self,
        updates: &[(Arc<OpenFile>, SizeReport)],
        kind: Report,
    ) -> Result<ReportOutcome, ClientError> {
        let (stable, noting) = (kind != Report::Shown, kind == Report::DurableAndNoting);
        let rejoins = self.link.routes.lease.rejoins();
        let generation = updates.first().filter(|_| noting).map(|(file, _)| file.lock().generation());
        let (client, volume) = (self.link.routes.lease.client(), self.link.routes.volume);
        let sizes = updates.iter().map(|(_, report)| report.update.clone()).collect();
        let outcome = self.link.ask(&UpdateSizes { client, volume, sizes, stable, noting }).await;
        let UpdateSizesReply { noting, cut } = match outcome {
            Ok(grown) => grown,
            // The file is gone, so its size does not matter.
            Err(ClientError::Refused(Refusal::Stale | Refusal::NotFound)) if updates.len() == 1 => {
                UpdateSizesReply { noting: false, cut: Vec::new() }
            }
            Err(error) => return Err(error),
        };
        for attr in &cut {
            self.link.learn_tier_of(attr.object).await?;
        }
        for (file, report) in updates {
            let (inode, size) = (file.inode, report.update.size);
            if let Some(attr) = cut.iter().find(|attr| attr.inode == inode) {
                tracing::debug!(%inode, size, truncate_seq = attr.truncate_seq, "a size report came after a truncation");
                file.lock().was_truncated(attr);
            } else {
                tracing::debug!(stage = %WriteStage::SizeReported, %inode, size, stable, "grown");
                let mut state = file.lock();
                // What only the service before showed is to be shown again.
                if stable || self.link.routes.lease.rejoins() == rejoins {
                    state.has_grown(report, stable);
                }
                state.was_shown(&report.update, rejoins);
                // If the mode was lost meanwhile, the service may have forgotten the right since.
                state.noting.granted |=
                    noting && generation == Some(state.generation()) && state.may_buffer();
                if !stable {
                    continue;
                }
                if let Some(told) = state.take_told(report.update.mtime) {
                    self.unstable.flow.lock().notes.remove(inode, told.seq);
                } else if state.stable_note().is_some() {
                    // A newer one.
                    self.unstable.flow.report_later(self.link.world.now(), file);
                }
            }
        }
        Ok(if cut.is_empty() { ReportOutcome::Accepted } else { ReportOutcome::Truncated })
    }

    /// Sends reports as they become due, until the mount ends.
    pub(crate) async fn run_reports(self: &Rc<Self>) {
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

    /// Sends all reports that may be sent now for these files.
    pub(crate) async fn report_batch(self: &Rc<Self>, files: &[Arc<OpenFile>]) {
        let mut updates = Vec::new();
        let mut growing = Vec::new();
        for file in files {
            self.begin_retract(file);
            // A call of `fsync` is about to report this file, and queues it again at its end.
            let is_told_elsewhere = {
                let state = file.lock();
                state.fsyncs > 0 && !state.is_note_due()
            };
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

    /// Reports durable sizes; queues the files again whose report failed.
    async fn grow_for_good(&self, updates: &[(Arc<OpenFile>, SizeReport)]) {
        let error = match self.grow(updates, Report::Durable).await {
            Ok(ReportOutcome::Accepted) => return,
            Ok(ReportOutcome::Truncated) => {
                updates.iter().for_each(|(file, _)| self.unstable.flow.queue_report(file));
                return;
            }
            Err(error) => error,
        };
        for one in updates.chunks(1) {
            // If the service refused, one file may be the reason: report each file alone.
            let refused = matches!(error, ClientError::Refused(_));
            match if refused { self.grow(one, Report::Durable).await } else { Err(error) } {
                Ok(ReportOutcome::Accepted) => {}
                Ok(ReportOutcome::Truncated) => self.unstable.flow.queue_report(&one[0].0),
                // A service that cannot store the change ends. Try again after its restart.
                Err(ClientError::Unreachable | ClientError::Refused(Refusal::MetaFailed)) => {
                    self.unstable.flow.queue_report(&one[0].0);
                }
                Err(error) => {
                    let (file, report) = &one[0];
                    tracing::warn!(inode = %file.inode, %error, "the service refuses a file's size: its last writes are lost");
                    let mut state = file.lock();
                    state.was_refused(report);
                    if let Some(told) = state.take_told(i64::MAX) {
                        self.unstable.flow.lock().notes.remove(file.inode, told.seq);
                    }
                    state.wb_errors.add(error);
                    drop(state);
                    self.unstable.flow.queue_report(file);
                }
            }
        }
    }

    /// Reports closes. Those of writers wait until everything written is stable and reported.
    async fn settle_releases(&self, file: &Arc<OpenFile>) {
        loop {
            let write = {
                let mut state = file.lock();
                let told = state.may_close();
                let Some(next) = state.releases.iter().position(|write| told || !write) else { break };
                let write = state.releases.swap_remove(next);
                state.releasing += 1;
                if state.readers + state.writers <= state.releasing {
                    // The rights of the mode end with the last close that the service knows. An open that is on its way may come
                    // there later than this close, and the file may have other bytes, or another object, by then.
                    state.set_mode(Mode::Shared);
                }
                write
            };
            let (volume, inode) = (self.link.routes.volume, file.inode);
            let released = self.link.change(|caller| Release { caller, volume, inode, write }).await;
            if let Err(error) = released {
                tracing::debug!(%inode, %error, "a close could not be reported");
            }
            let mut state = file.lock();
            state.releasing -= 1;
            state.count_release(write);
            drop(state);
        }
        self.files.forget_if_clean(file);
    }
}
