//! Writes to an open file, and waiting until they are stable.

use std::sync::Arc;

use futures_util::future::join;
use types::Refusal;
use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::Mode;

use crate::error::ClientError;
use crate::face::session::Session;
use crate::paths::size_reports::ReportOutcome;
use crate::paths::write::WriteStage;
use crate::state::counters::Counter;
use crate::state::open_file::OpenFile;
use crate::state::open_files::Handle;
use crate::state::settings::Settings;
use crate::state::slow_requests::Asked;
use crate::translators::{Until, Write};
use crate::unstable::Unstable;

/// While it lives, the background does not report the file's size, because the caller of `fsync` will.
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
    /// Also reports errors of earlier writes to this file.
    pub async fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Result<usize, ClientError> {
        let handle = self.handle(handle)?;
        let asked = Asked { op: "write", inode: handle.file.inode, offset, len: bytes.len() as u64 };
        self.link.traced(asked, || self.write_open(&handle, offset, bytes), Result::is_err).await
    }

    async fn write_open(&self, handle: &Handle, offset: u64, bytes: &[u8]) -> Result<usize, ClientError> {
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.error_cursor.before_write(&file.lock().wb_errors)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        // As usual for files, the bytes that still fit are written.
        let room = FILE_SIZE_MAX.saturating_sub(offset);
        if room == 0 {
            return Err(ClientError::Refused(Refusal::FileTooLarge));
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let end = offset + bytes.len() as u64;
        if self.link.routes.disk().is_some_and(|size| end > size) {
            return Err(ClientError::Refused(Refusal::NoSpace));
        }
        // If the file is truncated meanwhile, the write is repeated after the truncation.
        while self.write_once(handle, offset, bytes, lost).await? == ReportOutcome::Truncated {}
        self.link.routes.counts.count(Counter::WrittenBytes, bytes.len() as u64);
        Ok(bytes.len())
    }

    /// One attempt to write bytes within the limits of the file.
    async fn write_once(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &[u8],
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let end = offset + bytes.len() as u64;
        self.io.until_end_is_known(file).await?;
        let io = loop {
            match self.modes.begin_write(file, end).await? {
                Some(io) => break io,
                None => self.cuts.zero_stale(file).await?,
            }
        };
        let written = self.stack.write(Write { file, offset, bytes, settings: Settings::UNSETTLED }).await;
        if written == Err(ClientError::Refused(Refusal::Busy)) && file.lock().truncate_seq != io.truncate_seq
        {
            // This mount itself has truncated the file, and has left stale bytes.
            return Ok(ReportOutcome::Truncated);
        }
        if written.is_err() {
            // The next write need not report a loss that this one reports.
            handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        }
        written?;
        tracing::debug!(stage = %WriteStage::Gathered, inode = %file.inode, offset, len = bytes.len(), "written");
        if file.lock().may_buffer() {
            Ok(ReportOutcome::Accepted)
        } else {
            self.write_through(handle, end, io.truncate_seq, lost).await
        }
    }

    /// Makes everything written so far stable, and then reports that the file has at least `end` bytes, unless the
    /// service knows. Other clients may change the size too, so this mount's own size is not used. `truncate_seq` and
    /// `lost` are the file's counts of truncations and lost writes when the write began.
    pub(crate) async fn write_through(
        &self,
        handle: &Handle,
        end: u64,
        truncate_seq: u64,
        lost: u64,
    ) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        self.stack.flush(file, Until::Stable).await?;
        handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        let told = self.io.report_end(file, end, truncate_seq).await?;
        self.mount.unstable.flow.queue_report(file);
        Ok(told)
    }

    /// Called at every `close`, and when a program with the file open starts another one. Returns when the primaries
    /// have accepted everything and the service shows the size. For a shared file this was already done before each
    /// write returned.
    pub async fn flush(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        let asked = Asked { op: "flush", inode: handle.file.inode, offset: 0, len: 0 };
        self.link.traced(asked, || self.flush_open(&handle), Result::is_err).await
    }

    async fn flush_open(&self, handle: &Handle) -> Result<(), ClientError> {
        let file = &handle.file;
        if !handle.write {
            return Ok(());
        }
        if file.lock().mode() != Mode::Alone {
            return handle.error_cursor.at_close(&mut file.lock().wb_errors);
        }
        self.stack.flush(file, Until::Accepted).await?;
        // Report the size even if some writes were lost.
        let told = self.io.report_size(file, None).await;
        handle.error_cursor.at_close(&mut file.lock().wb_errors).and(told)
    }

    /// Returns when everything written to the file so far is stable, with its size.
    pub async fn fsync(&self, handle: u64) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        let asked = Asked { op: "fsync", inode: handle.file.inode, offset: 0, len: 0 };
        self.link.traced(asked, || self.fsync_open(&handle), Result::is_err).await
    }

    async fn fsync_open(&self, handle: &Handle) -> Result<(), ClientError> {
        let file = &handle.file;
        let lost = file.lock().wb_errors.count();
        let _fsync = FsyncGuard::begin(&self.mount.unstable, file);
        // A note with the bricks makes the size durable; that others see it is for the service.
        let may_note = file.lock().waits_for_one_write();
        let show = async {
            if may_note && let Err(error) = self.io.report_size(file, None).await {
                tracing::debug!(inode = %file.inode, %error, "a size is not shown yet");
            }
        };
        let (mark, ()) = join(self.stack.flush(file, Until::Stable), show).await;
        let told = self.io.report_fsync(file, mark?).await;
        handle.error_cursor.at_fsync(&mut file.lock().wb_errors, lost).and(told)
    }
}
