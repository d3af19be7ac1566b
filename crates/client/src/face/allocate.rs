//! `fallocate`: a file grows without bytes, and ranges of it become zeros again.
//!
//! A range without bytes reads as zeros and takes no space, so allocation writes nothing: it can never lie over what others
//! write. The metadata service decides the size, and it takes the greater one. Space is not reserved. But a range for which the
//! volume has no room now is refused.

use std::ops::Range;

use types::Refusal;
use types::limits::FILE_SIZE_MAX;

use crate::error::ClientError;
use crate::face::session::Session;
use crate::paths::size_reports::ReportOutcome;
use crate::state::open_file::OpenFile;
use crate::state::open_files::Handle;

impl Session {
    /// Makes a file at least as long as the end of `range`; what is new reads as zeros. Returns when the size is durable. With
    /// `keeps_size`, this only says whether there is room.
    ///
    /// # Errors
    /// `FileTooLarge` beyond [`FILE_SIZE_MAX`]; `NoSpace` if the volume has less room than the file would grow by. Also reports
    /// errors of earlier writes to this file.
    pub async fn allocate(
        &self,
        handle: u64,
        range: Range<u64>,
        keeps_size: bool,
    ) -> Result<(), ClientError> {
        let handle = self.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        if range.end > FILE_SIZE_MAX {
            return Err(ClientError::Refused(Refusal::FileTooLarge));
        }
        let lost = handle.error_cursor.before_write(&handle.file.lock().wb_errors)?;
        self.check_room(&handle.file, &range).await?;
        if keeps_size {
            return Ok(());
        }
        // If another client truncates the shared file meanwhile, the file grows after the truncation.
        while self.grow_once(&handle, range.end, lost).await? == ReportOutcome::Truncated {}
        Ok(())
    }

    /// Refuses a range that is longer beyond the end of the file than what is free.
    async fn check_room(&self, file: &OpenFile, range: &Range<u64>) -> Result<(), ClientError> {
        if let Some(size) = self.link.routes.disk() {
            return if range.end > size { Err(ClientError::Refused(Refusal::NoSpace)) } else { Ok(()) };
        }
        let size = file.lock().size;
        let wanted = range.end.saturating_sub(range.start.max(size));
        if wanted > 0 && wanted > self.statfs().await?.free {
            return Err(ClientError::Refused(Refusal::NoSpace));
        }
        Ok(())
    }

    /// One attempt to make a file at least `end` bytes long.
    async fn grow_once(&self, handle: &Handle, end: u64, lost: u64) -> Result<ReportOutcome, ClientError> {
        let file = &handle.file;
        let io = loop {
            self.io.until_end_is_known(file).await?;
            match self.modes.begin_write(file, end).await? {
                Some(io) => break io,
                None => self.cuts.zero_stale(file).await?,
            }
        };
        {
            let mut state = file.lock();
            if end <= state.size {
                return Ok(ReportOutcome::Accepted);
            }
            // Cached bytes may end where the file ends.
            state.invalidate();
            if !self.link.routes.options.keeps_times {
                state.mtime = self.link.world.wall();
                (state.mtime_reported, state.mtime_durable) = (false, false);
            }
        }
        // A durable size must not cover bytes that are not stable.
        let told = self.write_through(handle, end, io.truncate_seq, lost).await?;
        let mut state = file.lock();
        if told == ReportOutcome::Accepted && state.truncate_seq == io.truncate_seq {
            state.size = state.size.max(end);
        }
        Ok(told)
    }
}
