//! What was lost of what was written to a file, and who has been told.
//!
//! A write is answered before its bytes are on the bricks, so its failure is told later: by the next write, and by
//! `fsync` and `close` whether or not a write has told it, because where the kernel has cut a write up, the program sees
//! how much went before the error, and nobody the error. Whoever waits for bytes goes by what was lost since that began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ClientError;

/// The losses of a file.
#[derive(Default)]
pub(crate) struct WritebackErrors {
    /// How many there were.
    count: u64,
    /// So many of them an `fsync` or a `close` has told.
    reported: u64,
    /// Why: the first one that had not been told, or the last one.
    error: Option<ClientError>,
}

impl WritebackErrors {
    pub(crate) fn add(&mut self, error: ClientError) {
        if self.count == self.reported {
            self.error = Some(error);
        }
        self.count += 1;
    }

    /// How many there have been.
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

    /// Fails if there are some that no `fsync` or `close` has told.
    pub(crate) fn unreported(&self) -> Result<(), ClientError> {
        self.since(self.reported)
    }

    fn tell(&mut self, count: u64) -> Result<(), ClientError> {
        self.reported = self.count;
        self.since(count)
    }
}

/// The losses that the user of a handle has been told of.
pub(crate) struct ErrorCursor {
    by_write: AtomicU64,
    by_fsync: AtomicU64,
}

impl ErrorCursor {
    /// For a handle that is opened now: what has not been told yet is its user's to hear.
    pub(crate) fn begin(wb_errors: &WritebackErrors) -> ErrorCursor {
        ErrorCursor {
            by_write: AtomicU64::new(wb_errors.reported),
            by_fsync: AtomicU64::new(wb_errors.reported),
        }
    }

    /// Fails once for what was lost. Returns how many losses there were when the write began.
    pub(crate) fn before_write(&self, wb_errors: &WritebackErrors) -> Result<u64, ClientError> {
        wb_errors.since(self.by_write.swap(wb_errors.count, Ordering::Relaxed))?;
        Ok(wb_errors.count)
    }

    /// Fails for what was lost since a write began that waits for its bytes; the next one need not.
    pub(crate) fn after_write(&self, wb_errors: &WritebackErrors, began: u64) -> Result<(), ClientError> {
        self.by_write.fetch_max(wb_errors.count, Ordering::Relaxed);
        wb_errors.since(began)
    }

    /// Fails for what was lost since the last `fsync` ended, or since this one began, for others may wait beside it.
    pub(crate) fn at_fsync(&self, wb_errors: &mut WritebackErrors, began: u64) -> Result<(), ClientError> {
        self.by_write.store(wb_errors.count, Ordering::Relaxed);
        wb_errors.tell(self.by_fsync.swap(wb_errors.count, Ordering::Relaxed).min(began))
    }

    /// Fails for what was lost since the last `fsync`, at each close of a handle that several descriptors share.
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
