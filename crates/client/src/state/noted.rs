//! Sizes that bricks keep with a write (`docs/decisions/0042-sizes-noted-by-bricks.md`).
//!
//! An `fsync` that waits for one write only, and that finds everything else of the file stable, lets this write say how long the
//! file is with it. Then the bricks alone make the size durable, and the metadata service is told within about a second. The
//! service must have stored before that it has to ask the bricks if this mount is lost.

use types::messages::brick::SizeNote;
use types::messages::cluster::Mode;
use types::{ClientSeq, InodeId};

use crate::state::open_file::{FileState, Mark};

/// What a write says about its file.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    /// The number of the write.
    pub(crate) seq: ClientSeq,
    /// The piece's number in its file: whatever was written up to it is covered.
    order: u64,
    pub(crate) note: SizeNote,
}

/// What a mount may note about a file, and has noted.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    /// The service has stored that it must ask the bricks.
    pub(crate) granted: bool,
    /// The file was synced before: the next `fsync` asks for the right. A file that is synced once does not need it.
    pub(crate) is_synced: bool,
    /// The newest note that is stable and of which the service does not know.
    noted: Option<Noted>,
    /// The service must be told now.
    is_due: bool,
}

impl FileState {
    /// Whether the piece with this number may note the size: an `fsync` waits for it, and all else is stable.
    pub(crate) fn may_note(&self, order: u64) -> bool {
        self.fsyncs > 0 && self.would_note() && self.unstable.contains(&order)
    }

    /// Whether a write that is sent now may note the size, once what is gathered is sealed.
    pub(crate) fn would_note(&self) -> bool {
        self.noting.granted
            && self.may_buffer()
            && !self.fenced
            && !self.writeback_paused
            && !self.mtime_set
            && !self.zeroing.runs
            && self.quiesced == 0
            && self.unstable.len() == 1
            && !self.stripes.values().any(|stripe| stripe.is_gathering())
    }

    /// What the piece with this number says, as its write `seq`. Nobody needs notes up to `told`.
    pub(crate) fn note(&self, inode: InodeId, order: u64, seq: ClientSeq, told: ClientSeq) -> Noted {
        let (truncate_seq, size, mtime) = (self.truncate_seq, self.size, self.mtime);
        Noted { seq, order, note: SizeNote { inode, truncate_seq, size, mtime, told } }
    }

    /// A piece with a note is stable.
    pub(crate) fn has_noted(&mut self, noted: Noted) {
        if self.noting.noted.as_ref().is_none_or(|known| known.seq < noted.seq) {
            self.noting.noted = Some(noted);
        }
    }

    /// The note that is stable and says what the service does not know.
    pub(crate) fn noted(&self) -> Option<&Noted> {
        self.noting.noted.as_ref().filter(|noted| noted.note.truncate_seq == self.truncate_seq)
    }

    /// Whether a note makes everything up to the mark durable.
    pub(crate) fn is_noted(&self, mark: &Mark) -> bool {
        let covers = |noted: &Noted| mark.truncate_seq == self.truncate_seq && noted.order >= mark.upto;
        self.mode == Mode::Alone && !self.fenced && !self.mtime_set && self.noted().is_some_and(covers)
    }

    /// Whether the service need not be told yet, because a note makes everything durable.
    pub(crate) fn rests_on_note(&self) -> bool {
        !self.noting.is_due && self.is_stable() && self.is_noted(&self.mark())
    }

    /// The service is told of what was noted as soon as possible.
    pub(crate) fn note_is_due(&mut self) {
        self.noting.is_due = true;
    }

    /// Whether the background tells it, although an `fsync` runs.
    pub(crate) fn is_note_due(&self) -> bool {
        self.noting.is_due && self.noting.noted.is_some()
    }

    /// The service has stored a report with this time. Takes the note out if the service knows now what it says, or has
    /// truncated the file since.
    pub(crate) fn take_told(&mut self, mtime: i64) -> Option<Noted> {
        self.noting.is_due = false;
        let FileState { truncate_seq, durable_size, mtime_durable, .. } = *self;
        self.noting.noted.take_if(|Noted { note, .. }| {
            let knows = note.size <= durable_size && (mtime_durable || note.mtime <= mtime);
            note.truncate_seq != truncate_seq || knows
        })
    }
}
