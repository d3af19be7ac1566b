//! What was lost of what was written to a file, and who has been told.
//!
//! A write is answered before its bytes are on the bricks, so its failure is told later: by the next write, and by
//! `fsync` and `close` whether or not a write has told it, because where the kernel has cut a write up, the program sees
//! how much went before the error, and nobody the error. Whoever waits for bytes goes by what was lost since that began.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::ClientError;

/// The losses of a file.
#[derive(Default)]
pub(crate) struct Losses {
    /// How many there were.
    count: u64,
    /// So many of them an `fsync` or a `close` has told.
    told: u64,
    /// Why: the first one that had not been told, or the last one.
    error: Option<ClientError>,
}

impl Losses {
    pub(crate) fn add(&mut self, error: ClientError) {
        if self.count == self.told {
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
    pub(crate) fn untold(&self) -> Result<(), ClientError> {
        self.since(self.told)
    }

    fn tell(&mut self, count: u64) -> Result<(), ClientError> {
        self.told = self.count;
        self.since(count)
    }
}

/// The losses that the user of a handle has been told of.
pub(crate) struct Heard {
    by_write: AtomicU64,
    by_fsync: AtomicU64,
}

impl Heard {
    /// For a handle that is opened now: what has not been told yet is its user's to hear.
    pub(crate) fn begin(losses: &Losses) -> Heard {
        Heard { by_write: AtomicU64::new(losses.told), by_fsync: AtomicU64::new(losses.told) }
    }

    /// Fails once for what was lost. Returns how many losses there were when the write began.
    pub(crate) fn before_write(&self, losses: &Losses) -> Result<u64, ClientError> {
        losses.since(self.by_write.swap(losses.count, Ordering::Relaxed))?;
        Ok(losses.count)
    }

    /// Fails for what was lost since a write began that waits for its bytes; the next one need not.
    pub(crate) fn after_write(&self, losses: &Losses, began: u64) -> Result<(), ClientError> {
        self.by_write.fetch_max(losses.count, Ordering::Relaxed);
        losses.since(began)
    }

    /// Fails for what was lost since the last `fsync` ended, or since this one began, for others may wait beside it.
    pub(crate) fn at_fsync(&self, losses: &mut Losses, began: u64) -> Result<(), ClientError> {
        self.by_write.store(losses.count, Ordering::Relaxed);
        losses.tell(self.by_fsync.swap(losses.count, Ordering::Relaxed).min(began))
    }

    /// Fails for what was lost since the last `fsync`, at each close of a handle that several descriptors share.
    pub(crate) fn at_close(&self, losses: &mut Losses) -> Result<(), ClientError> {
        self.by_write.store(losses.count, Ordering::Relaxed);
        losses.tell(self.by_fsync.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Refusal;

    const FULL: ClientError = ClientError::Refused(Refusal::NoSpace);

    fn fsync(heard: &Heard, losses: &mut Losses) -> Result<(), ClientError> {
        let began = losses.count();
        heard.at_fsync(losses, began)
    }

    #[test]
    fn an_error_that_a_write_has_told_is_told_by_fsync_and_close_too() {
        let mut losses = Losses::default();
        let heard = Heard::begin(&losses);
        assert_eq!(heard.before_write(&losses), Ok(0));
        losses.add(FULL);
        losses.add(ClientError::Unreachable);
        assert_eq!(heard.before_write(&losses), Err(FULL), "what came first");
        assert_eq!(heard.before_write(&losses), Ok(2), "the program may go on");
        assert_eq!(losses.untold(), Err(FULL), "the kernel may have kept it to itself");
        assert_eq!([heard.at_close(&mut losses), heard.at_close(&mut losses)], [Err(FULL); 2]);
        assert_eq!(fsync(&heard, &mut losses), Err(FULL));
        assert_eq!([fsync(&heard, &mut losses), heard.at_close(&mut losses), losses.untold()], [Ok(()); 3]);
    }

    #[test]
    fn every_handle_hears_of_a_loss() {
        let mut losses = Losses::default();
        let (one, other) = (Heard::begin(&losses), Heard::begin(&losses));
        losses.add(FULL);
        assert_eq!([fsync(&one, &mut losses), fsync(&other, &mut losses)], [Err(FULL); 2]);
        assert_eq!(fsync(&Heard::begin(&losses), &mut losses), Ok(()), "opened when it had been told");
        losses.add(FULL);
        assert_eq!(fsync(&Heard::begin(&losses), &mut losses), Err(FULL), "it had not");
    }

    #[test]
    fn who_waits_for_its_own_bytes_goes_by_what_was_lost_meanwhile() {
        let mut losses = Losses::default();
        losses.add(FULL);
        let heard = Heard::begin(&losses);
        assert_eq!(fsync(&heard, &mut losses), Err(FULL));
        let began = heard.before_write(&losses).expect("an fsync has told it");
        assert_eq!(heard.after_write(&losses, began), Ok(()));
        losses.add(ClientError::Unreachable);
        let both = [heard.at_fsync(&mut losses, began), heard.at_fsync(&mut losses, began)];
        assert_eq!(both, [Err(ClientError::Unreachable); 2], "two that wait at the same time");
        assert_eq!(heard.after_write(&losses, began), Err(ClientError::Unreachable));
        assert_eq!(heard.before_write(&losses), Ok(2), "a write has told it");
    }
}
