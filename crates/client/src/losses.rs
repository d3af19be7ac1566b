//! What was lost of what was written to a file, and who has been told.
//!
//! A write is answered before its bytes are on the bricks, so its failure is told later: by the next write, and by
//! `fsync` and `close` whether or not a write has told it, for the kernel shows a program no error of a write's second
//! half, but that it was short. Whoever waits for the bytes of one write goes by what was lost since that began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ClientError;

/// The losses of a file.
#[derive(Default)]
pub(crate) struct Losses {
    /// How many there were.
    count: u64,
    /// So many somebody has been told of.
    told: u64,
    /// Why the last one was.
    error: Option<ClientError>,
}

impl Losses {
    pub(crate) fn add(&mut self, error: ClientError) {
        self.count += 1;
        self.error = Some(error);
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

    /// As [`Losses::since`], and whoever asks is told.
    pub(crate) fn tell(&mut self, count: u64) -> Result<(), ClientError> {
        self.told = self.count;
        self.since(count)
    }

    /// Fails if nobody has been told of the last one.
    pub(crate) fn untold(&self) -> Result<(), ClientError> {
        self.since(self.told)
    }
}

/// The losses that the user of a handle has been told of.
pub(crate) struct Heard {
    by_write: AtomicU64,
    by_fsync: AtomicU64,
}

impl Heard {
    /// For a handle that is opened now: what nobody has been told of is its user's to hear.
    pub(crate) fn begin(losses: &Losses) -> Heard {
        Heard { by_write: AtomicU64::new(losses.told), by_fsync: AtomicU64::new(losses.told) }
    }

    /// Fails once for what was lost, before a write.
    pub(crate) fn write(&self, losses: &mut Losses) -> Result<(), ClientError> {
        losses.tell(self.by_write.swap(losses.count, Ordering::Relaxed))
    }

    /// Fails for what was lost since there were `count`, during a write that waits for its bytes; the next one need not.
    pub(crate) fn write_through(&self, losses: &mut Losses, count: u64) -> Result<(), ClientError> {
        self.by_write.store(losses.count, Ordering::Relaxed);
        losses.tell(count)
    }

    /// Fails once for what was lost, when an `fsync` ends.
    pub(crate) fn fsync(&self, losses: &mut Losses) -> Result<(), ClientError> {
        self.by_write.store(losses.count, Ordering::Relaxed);
        losses.tell(self.by_fsync.swap(losses.count, Ordering::Relaxed))
    }

    /// Fails for what was lost since the last `fsync`, at each close of a handle that several descriptors share.
    pub(crate) fn close(&self, losses: &mut Losses) -> Result<(), ClientError> {
        losses.tell(self.by_fsync.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Refusal;

    const FULL: ClientError = ClientError::Refused(Refusal::NoSpace);

    #[test]
    fn an_error_that_a_write_has_told_is_told_by_fsync_and_close_too() {
        let mut losses = Losses::default();
        let heard = Heard::begin(&losses);
        assert_eq!(heard.write(&mut losses), Ok(()));
        losses.add(FULL);
        assert_eq!(heard.write(&mut losses), Err(FULL));
        assert_eq!(heard.write(&mut losses), Ok(()), "the program may go on");
        assert_eq!([heard.close(&mut losses), heard.close(&mut losses)], [Err(FULL); 2]);
        assert_eq!(heard.fsync(&mut losses), Err(FULL));
        assert_eq!([heard.fsync(&mut losses), heard.close(&mut losses)], [Ok(()); 2]);
    }

    #[test]
    fn every_handle_hears_of_a_loss() {
        let mut losses = Losses::default();
        let (one, other) = (Heard::begin(&losses), Heard::begin(&losses));
        losses.add(FULL);
        assert_eq!([one.fsync(&mut losses), other.fsync(&mut losses)], [Err(FULL); 2]);
        assert_eq!(Heard::begin(&losses).fsync(&mut losses), Ok(()), "opened when somebody had been told");
        losses.add(FULL);
        assert_eq!(losses.untold(), Err(FULL));
        assert_eq!(Heard::begin(&losses).fsync(&mut losses), Err(FULL), "nobody had");
        assert_eq!(losses.untold(), Ok(()));
    }

    #[test]
    fn who_waits_for_its_own_bytes_goes_by_what_was_lost_meanwhile() {
        let mut losses = Losses::default();
        losses.add(FULL);
        let before = losses.count();
        assert_eq!(losses.since(before), Ok(()));
        let heard = Heard::begin(&losses);
        losses.add(ClientError::Unreachable);
        assert_eq!(losses.since(before), Err(ClientError::Unreachable));
        assert_eq!(heard.write_through(&mut losses, before), Err(ClientError::Unreachable));
        assert_eq!(heard.write(&mut losses), Ok(()), "a write has told it");
    }
}
