//! Write-behind: the call returns when the bytes are in a buffer of this mount; they leave later.
//!
//! Whole stripes leave at once. Partial ones leave when their file is closed or synced, one second after they began,
//! or when they take half of the budget; the latter two wait while many pieces are on their way (flow.rs). Flushing is
//! self-clocked: each worker takes the next stripe when its last one is accepted. Errors are kept with the file and
//! come out at its next write, and at fsync and close (wb_errors.rs).

use std::sync::Arc;

use futures_util::future::join_all;
use types::Refusal;
use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::Mode;

use crate::error::ClientError;
use crate::paths::size_reports::ReportOutcome;
use crate::paths::write::{FLIGHT_MAX, WriteStage};
use crate::session::Session;
use crate::state::counters::Counter;
use crate::state::gather::StripeWrites;
use crate::state::open_file::{FileState, OpenFile};
use crate::state::open_files::Handle;
use crate::unstable::Unstable;

/// Longest time between two looks at the timers: nobody is woken just because a timer begins, in microseconds.
const LOOK_US: u64 = 200_000;

/// Keeps the background from telling the service of a file's size: the caller of `fsync` is about to.
struct FsyncGuard<'a> {
    unstable: &'a Unstable,
    file: &'a Arc<OpenFile>,
}

impl<'a> FsyncGuard<'a> {
    fn begin(unstable: &'a Unstable, file: &'a Arc<OpenFile>) -> FsyncGuard<'a> {
        file.lock().fsyncs += 1;
        FsyncGuard { unstable, file }
    }
}

impl Drop for FsyncGuard<'_> {
    fn drop(&mut self) {
        self.file.lock().fsyncs -= 1;
        self.unstable.flow.queue_report(self.file);
    }
}

impl Session {
    /// Writes `bytes` at `offset`. Returns when they are buffered, or, if the file is shared, when they are stable.
    ///
    /// # Errors
    /// Also those of earlier writes of this file that failed since.
    pub async fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Result<usize, ClientError> {
        let handle = self.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.error_cursor.before_write(&file.lock().wb_errors)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        // As of any file: what still fits is written.
        let room = FILE_SIZE_MAX.saturating_sub(offset);
        if room == 0 {
            return Err(ClientError::Refused(Refusal::FileTooLarge));
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let end = offset + bytes.len() as u64;
        if self.link.routes.disk().is_some_and(|size| end > size) {
            return Err(ClientError::Refused(Refusal::NoSpace));
        }
        // Where somebody cuts a shared file meanwhile, the write comes after that.
        while self.write_once(&handle, offset, bytes, lost).await? == ReportOutcome::Truncated {}
        self.link.routes.counts.count(Counter::WrittenBytes, bytes.len() as u64);
        Ok(bytes.len())
    }

    /// Writes bytes within the limits of a file.
    async fn write_once(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let end = offset + bytes.len() as u64;
        let io = loop {
            match self.begin_write(file, end).await? {
                Some(io) => break io,
                None => self.zero_stale(file).await?,
            }
        };
        let mut rest = bytes;
        for (stripe, within, take) in self.link.routes.geometry().split(offset, bytes.len()) {
            let (part, others) = rest.split_at(take);
            self.lay(file, stripe, within, part).await?;
            rest = others;
        }
        tracing::debug!(stage = %WriteStage::Gathered, inode = %file.inode, offset, len = bytes.len(), "written");
        if file.lock().may_buffer() {
            Ok(ReportOutcome::Accepted)
        } else {
            self.write_through(handle, end, io.truncate_seq, lost).await
        }
    }

    /// Copies bytes into a stripe's buffer when the budget has room for them.
    async fn lay(
        &self,
        file: &Arc<OpenFile>,
        stripe: u64,
        at: usize,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let length = self.link.routes.stripe_bytes();
        let mut room = None;
        loop {
            let grown = {
                let mut state = file.lock();
                let grown = state.stripes.get(&stripe).map(|s| s.growth(at, bytes.len(), length));
                let grown = grown.unwrap_or_else(|| StripeWrites::default().growth(at, bytes.len(), length));
                if self.unstable.flow.gather(room.as_ref(), grown) {
                    self.lay_in(file, &mut state, stripe, at, bytes);
                    break;
                }
                grown
            };
            drop(room.take());
            room = Some(self.unstable.flow.reserve(grown).await?);
        }
        if self.unstable.flow.is_overfull() {
            self.unstable.shed(self.link.world.now());
        }
        Ok(())
    }

    /// Copies bytes for which there is room.
    fn lay_in(&self, file: &Arc<OpenFile>, state: &mut FileState, stripe: u64, at: usize, bytes: &[u8]) {
        let (length, now) = (self.link.routes.stripe_bytes(), self.link.world.now());
        let writes = state.stripes.entry(stripe).or_default();
        let began = !writes.is_gathering();
        writes.lay(at, bytes, length);
        let whole = writes.is_whole(length);
        if began {
            writes.since = now;
        }
        state.size = state.size.max(stripe * length as u64 + (at + bytes.len()) as u64);
        self.touch(state);
        if whole {
            self.unstable.flow.change(state.seal(stripe));
            self.unstable.enqueue_due(file, state, stripe);
        } else if began {
            self.unstable.flow.age(now, file, stripe);
        }
    }

    /// The contents change now.
    pub(crate) fn touch(&self, state: &mut FileState) {
        if !self.link.routes.options.keeps_times {
            state.mtime = self.link.world.wall();
            state.mtime_reported = false;
            state.mtime_durable = false;
        }
    }

    /// Makes everything written so far stable, and tells the service if the file has at least `end` bytes now and it
    /// does not know. Others may change the size too, so this mount's idea of it does not count. What is there was written
    /// when the file had been cut `truncate_seq` times and `lost` of its writes had been lost.
    pub(crate) async fn write_through(
        &self,
        handle: &Handle,
        end: u64,
        truncate_seq: u64,
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let mark = self.unstable.seal_all(file);
        self.io.make_stable(file, mark.upto).await?;
        handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        let told = self.io.report_end(file, end, truncate_seq).await?;
        self.unstable.flow.queue_report(file);
        Ok(told)
    }

    /// Called at every `close`, and when a program with the file open starts another one: returns when the primaries
    /// hold everything and the service shows the size. Of a file that others write too all that is so before each write
    /// returns, and nobody is asked.
    pub async fn flush(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        let file = &handle.file;
        if !handle.write {
            return Ok(());
        }
        if file.lock().mode != Mode::Alone {
            return handle.error_cursor.at_close(&mut file.lock().wb_errors);
        }
        let mark = self.unstable.seal_all(file);
        self.io.make_answered(file, mark.upto).await;
        // What was not lost counts all the same.
        let told = self.io.report_size(file, None).await;
        handle.error_cursor.at_close(&mut file.lock().wb_errors).and(told)
    }

    /// Returns when everything written to the file so far is stable, with its size.
    pub async fn fsync(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        let file = &handle.file;
        let lost = file.lock().wb_errors.count();
        let _fsync = FsyncGuard::begin(&self.unstable, file);
        let mark = self.unstable.seal_all(file);
        self.io.make_stable(file, mark.upto).await?;
        let told = self.io.report_size(file, Some(mark)).await;
        handle.error_cursor.at_fsync(&mut file.lock().wb_errors, lost).and(told)
    }

    /// Sends stripes as they come into the queue, until the mount ends.
    pub(crate) async fn flush_queue(&self) {
        let worker = || async {
            while let Some((file, stripe)) = self.unstable.flow.next().await {
                self.io.send_stripe(&file, stripe).await;
            }
        };
        join_all((0..FLIGHT_MAX).map(|_| worker())).await;
    }

    /// Looks after timers and limits, until the mount ends: has old partial stripes sent, and accepted bytes made
    /// stable.
    pub(crate) async fn run_timers(&self) {
        while !self.link.routes.lease.has_left() {
            let woken = self.unstable.flow.timers.wait();
            self.unstable.flow.looks_at(u64::MAX);
            let now = self.link.world.now();
            let next = self.unstable.wake_stripes(now).min(self.io.sync_what_is_due(now));
            let pause = next.saturating_sub(now).clamp(1, LOOK_US);
            self.unstable.flow.looks_at(now + pause);
            self.link.world.timeout(pause, woken).await;
        }
    }
}
