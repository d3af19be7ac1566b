//! Bytes at the end of a file that no brick took.
//!
//! A write that is lost leaves no bytes, so the file must not be as long as it would have been with them. In mode Alone the file
//! ends at once, here, where the first lost byte was; what was written beyond is dropped with it. So the file is what it was with
//! the first bytes of what was written since. Until the metadata service knows this end too (`paths/retract.rs`), nothing is
//! written beyond it, and no size is reported.
//!
//! What the service has stored, and what a note with the bricks says, was stable once: the file never ends before that. A lost
//! write to these bytes leaves the older ones.

use std::ops::Range;

use types::Refusal;
use types::messages::cluster::Mode;

use crate::error::ClientError;
use crate::state::open_file::FileState;
use crate::state::piece::Piece;

/// The end of a file was lost, and the service does not know it yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Why.
    pub(crate) error: ClientError,
    /// A task tells the service.
    pub(crate) runs: bool,
}

impl FileState {
    /// Up to where the file is long whatever is lost.
    fn kept_end(&self) -> u64 {
        let noted = self.stable_note().map_or(0, |noted| noted.note.size);
        self.durable_size.max(noted)
    }

    /// Where the bytes of a piece begin that only it has; its stripe begins at `start`.
    pub(crate) fn first_lost(&self, piece: &Piece, start: u64) -> Option<u64> {
        let kept = self.kept_end();
        let lost = piece.written().find(|bytes| start + bytes.end as u64 > kept)?;
        Some(kept.max(start + lost.start as u64)).filter(|at| *at < self.size)
    }

    /// The end of all bytes before `at`, without a hole that only a lost write would have made. Stripes have `stripe` bytes.
    fn end_before(&self, at: u64, stripe: u64) -> u64 {
        let mut stripes = self.stripes.range(..=at / stripe).rev();
        let here = stripes.find_map(|(number, writes)| {
            let start = number * stripe;
            let end = writes.end_before(usize::try_from(at - start).unwrap_or(usize::MAX))?;
            Some(start + end as u64)
        });
        here.unwrap_or(0).max(self.stable_end.min(at)).max(self.kept_end())
    }

    /// The bytes from `at` on are lost, and this is not known yet. Returns where the file ends from now on, if bytes beyond must
    /// be dropped: other clients may have made a file longer that this one does not have alone, and each write reports its own
    /// end.
    pub(crate) fn ends_before(&mut self, at: u64, stripe: u64, error: ClientError) -> Option<u64> {
        if self.mode() != Mode::Alone {
            self.owed_end = self.owed_end.min(at);
            self.size = self.size.min(self.kept_end());
            return None;
        }
        let end = self.end_before(at, stripe);
        // Whatever was ever written may have been sent.
        self.sent_end = self.sent_end.max(self.size);
        self.size = end;
        self.stable_end = self.stable_end.min(end);
        self.loss.get_or_insert(Loss { error, runs: false });
        Some(end)
    }

    /// Fails if `bytes` may not be written now, because they are beyond an end of the file that was lost.
    ///
    /// While no `fsync` or `close` has reported the loss, bytes that begin beyond the end fail with its error: the kernel may have kept
    /// an earlier error to itself, and its program believes that the bytes before these are there. They would be zeros.
    ///
    /// Fails with `Busy` if a truncation of this mount has left stale bytes since the write began: they are zeroed first.
    pub(crate) fn check_end(&self, bytes: Range<u64>) -> Result<(), ClientError> {
        match self.loss {
            _ if bytes.end <= self.size => Ok(()),
            Some(loss) => Err(loss.error),
            // Other clients may make a shared file longer, and may zero it. The service refuses to let it grow over stale bytes.
            None if self.mode() != Mode::Alone => Ok(()),
            None if bytes.start > self.size && self.wb_errors.unreported().is_err() => {
                self.wb_errors.unreported()
            }
            None if self.stale_end > self.size => Err(ClientError::Refused(Refusal::Busy)),
            None => Ok(()),
        }
    }
}
