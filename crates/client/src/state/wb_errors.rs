//! Writes of a file that were lost, and to which handles the errors were reported.
//!
//! A write returns before its bytes are on the bricks, so its error is reported later: by the next write, and also by
//! `fsync` and `close`, even if a write has reported it. (If the kernel has split a write, the program sees a short
//! write and not the error.) A call that waits for bytes reports the errors since it began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ClientError;

/// The lost writes of a file.
#[derive(Default)]
pub(crate) struct WritebackErrors {
    /// Number of lost writes.
    count: u64,
    /// Number of them that an `fsync` or a `close` has reported.
    reported: u64,
    /// The error of the first unreported one, or else of the last one.
    error: Option<ClientError>,
}

impl WritebackErrors {
    pub(crate) fn add(&mut self, error: ClientError) {
        if self.count == self.reported {
            self.error = Some(error);
        }
        self.count += 1;
    }

    /// Number of lost writes so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Fails if there are more than `count`.
    pub(crate) fn since(&self, count: u64) -> Result<(), ClientError> {
        match self.error {
            Some(error) if self.count > count => Err(error),
            _ => Ok(()),
        }
    }

    /// Fails if there are errors that no `fsync` or `close` has reported.
    pub(crate) fn unreported(&self) -> Result<(), ClientError> {
        self.since(self.reported)
    }

    fn tell(&mut self, count: u64) -> Result<(), ClientError> {
        self.reported = self.count;
        self.since(count)
    }
}

/// The errors that were reported through a handle.
pub(crate) struct ErrorCursor {
    by_write: AtomicU64,
    by_fsync: AtomicU64,
}

impl ErrorCursor {
    /// For a new handle: it will report the errors that were not reported yet.
    pub(crate) fn begin(wb_errors: &WritebackErrors) -> ErrorCursor {
        ErrorCursor {
            by_write: AtomicU64::new(wb_errors.reported),
            by_fsync: AtomicU64::new(wb_errors.reported),
        }
    }

    /// Fails once for the losses so far. Returns the number of losses when the write began.
    pub(crate) fn before_write(&self, wb_errors: &WritebackErrors) -> Result<u64, ClientError> {
        wb_errors.since(self.by_write.swap(wb_errors.count, Ordering::Relaxed))?;
        Ok(wb_errors.count)
    }

    /// For a write that waits for its bytes: fails if a write was lost since it began. The next write does not report
    /// this again.
    pub(crate) fn after_write(&self, wb_errors: &WritebackErrors, began: u64) -> Result<(), ClientError> {
        self.by_write.fetch_max(wb_errors.count, Ordering::Relaxed);
        wb_errors.since(began)
    }

    /// Fails if a write was lost since the last `fsync` ended, or since this one began: concurrent calls of `fsync`
    /// all report it.
    pub(crate) fn at_fsync(&self, wb_errors: &mut WritebackErrors, began: u64) -> Result<(), ClientError> {
        self.by_write.store(wb_errors.count, Ordering::Relaxed);
        wb_errors.tell(self.by_fsync.swap(wb_errors.count, Ordering::Relaxed).min(began))
    }

    /// Fails if a write was lost since the last `fsync`. If several descriptors share the handle, each close fails.
    pub(crate) fn at_close(&self, wb_errors: &mut WritebackErrors) -> Result<(), ClientError> {
        self.by_write.store(wb_errors.count, Ordering::Relaxed);
        wb_errors.tell(self.by_fsync.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Refusal;

    const FULL: ClientError = ClientError::Refused(Refusal::NoSpace);

    fn fsync(error_cursor: &ErrorCursor, wb_errors: &mut WritebackErrors) -> Result<(), ClientError> {
        let began = wb_errors.count();
        error_cursor.at_fsync(wb_errors, began)
    }

    #[test]
    fn an_error_that_a_write_has_told_is_told_by_fsync_and_close_too() {
        let mut wb_errors = WritebackErrors::default();
        let error_cursor = ErrorCursor::begin(&wb_errors);
        assert_eq!(error_cursor.before_write(&wb_errors), Ok(0));
        wb_errors.add(FULL);
        wb_errors.add(ClientError::Unreachable);
        assert_eq!(error_cursor.before_write(&wb_errors), Err(FULL), "what came first");
        assert_eq!(error_cursor.before_write(&wb_errors), Ok(2), "the program may go on");
        assert_eq!(wb_errors.unreported(), Err(FULL), "the kernel may have kept it to itself");
        assert_eq!(
            [error_cursor.at_close(&mut wb_errors), error_cursor.at_close(&mut wb_errors)],
            [Err(FULL); 2]
        );
        assert_eq!(fsync(&error_cursor, &mut wb_errors), Err(FULL));
        assert_eq!(
            [
                fsync(&error_cursor, &mut wb_errors),
                error_cursor.at_close(&mut wb_errors),
                wb_errors.unreported()
            ],
            [Ok(()); 3]
        );
    }

    #[test]
    fn every_handle_hears_of_a_loss() {
        let mut wb_errors = WritebackErrors::default();
        let (one, other) = (ErrorCursor::begin(&wb_errors), ErrorCursor::begin(&wb_errors));
        wb_errors.add(FULL);
        assert_eq!([fsync(&one, &mut wb_errors), fsync(&other, &mut wb_errors)], [Err(FULL); 2]);
        assert_eq!(
            fsync(&ErrorCursor::begin(&wb_errors), &mut wb_errors),
            Ok(()),
            "opened when it had been told"
        );
        wb_errors.add(FULL);
        assert_eq!(fsync(&ErrorCursor::begin(&wb_errors), &mut wb_errors), Err(FULL), "it had not");
    }

    #[test]
    fn who_waits_for_its_own_bytes_goes_by_what_was_lost_meanwhile() {
        let mut wb_errors = WritebackErrors::default();
        wb_errors.add(FULL);
        let error_cursor = ErrorCursor::begin(&wb_errors);
        assert_eq!(fsync(&error_cursor, &mut wb_errors), Err(FULL));
        let began = error_cursor.before_write(&wb_errors).expect("an fsync has told it");
        assert_eq!(error_cursor.after_write(&wb_errors, began), Ok(()));
        wb_errors.add(ClientError::Unreachable);
        let both =
            [error_cursor.at_fsync(&mut wb_errors, began), error_cursor.at_fsync(&mut wb_errors, began)];
        assert_eq!(both, [Err(ClientError::Unreachable); 2], "two that wait at the same time");
        assert_eq!(error_cursor.after_write(&wb_errors, began), Err(ClientError::Unreachable));
        assert_eq!(error_cursor.before_write(&wb_errors), Ok(2), "a write has told it");
    }
}
