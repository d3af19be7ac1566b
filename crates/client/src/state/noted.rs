//! Sizes that bricks keep with a write (`docs/decisions/0042-sizes-noted-by-bricks.md`).
//!
//! An `fsync` that waits for one write only, and that finds everything else of the file stable, lets this write say how long the
//! file is with it. Then the bricks alone make the size durable, and the metadata service is told within about a second. The
//! service must have stored before that it has to ask the bricks if this mount is lost.

use types::messages::cluster::Mode;
use types::messages::names::SizeUpdate;
use types::messages::notes::SizeNote;
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

/// What the service shows to others, or has stored.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// After how many truncations.
    truncate_seq: u64,
    size: u64,
    mtime: i64,
    /// How often the mount had begun to join again before it told this.
    rejoins: u64,
}

/// What a mount may note about a file, and has noted.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    /// The service has stored that it must ask the bricks.
    pub(crate) granted: bool,
    /// The file was synced before: the next `fsync` asks for the right. A file that is synced once does not need it.
    pub(crate) is_synced: bool,
    /// The newest note that is stable and of which the service does not know.
    stable: Option<Noted>,
    /// What the service was told last.
    shown: Shown,
    /// The service must be told now.
    is_due: bool,
}

impl FileState {
    /// Whether an `fsync` that begins now may have to wait for one write only, which may say the size.
    pub(crate) fn waits_for_one_write(&self) -> bool {
        let unsealed = self.stripes.values().filter(|stripe| stripe.is_gathering()).take(2).count();
        self.noting.granted && self.unstable.len() + unsealed == 1
    }

    /// Whether the piece with this number may say the size: an `fsync` waits for it, and all else is stable.
    pub(crate) fn may_note(&self, order: u64) -> bool {
        self.fsyncs > 0
            && self.noting.granted
            && order <= self.wanted_stable
            && self.may_buffer()
            && !self.fenced
            && !self.writeback_paused
            && !self.mtime_set
            && !self.zeroing.runs
            && self.loss.is_none()
            && self.quiesced == 0
            && self.unstable.len() == 1
            && self.unstable.contains(&order)
            && !self.stripes.values().any(|stripe| stripe.is_gathering())
    }

    /// What the piece with this number says, as its write `seq`. Nobody needs notes up to `told`.
    pub(crate) fn make_note(&self, inode: InodeId, order: u64, seq: ClientSeq, told: ClientSeq) -> Noted {
        let (truncate_seq, size, mtime) = (self.truncate_seq, self.size, self.mtime);
        Noted { seq, order, note: SizeNote { inode, truncate_seq, size, mtime, told } }
    }

    /// A piece with a note is stable.
    pub(crate) fn keep_stable_note(&mut self, noted: Noted) {
        if self.noting.stable.as_ref().is_none_or(|known| known.seq < noted.seq) {
            self.noting.stable = Some(noted);
        }
    }

    /// The note that is stable and says what the service has not stored.
    pub(crate) fn stable_note(&self) -> Option<&Noted> {
        self.noting.stable.as_ref().filter(|noted| noted.note.truncate_seq == self.truncate_seq)
    }

    /// Whether a note makes everything up to the mark durable.
    fn is_covered_by_note(&self, mark: &Mark) -> bool {
        let covers = |noted: &Noted| mark.truncate_seq == self.truncate_seq && noted.order >= mark.upto;
        self.mode == Mode::Alone && !self.fenced && !self.mtime_set && self.stable_note().is_some_and(covers)
    }

    /// Whether an `fsync` up to the mark need not wait for the service to store anything: a note covers it, and the service to
    /// which this mount has joined last shows what the note says.
    pub(crate) fn is_synced_by_note(&self, mark: &Mark, rejoins: u64) -> bool {
        let Some(Noted { note, .. }) = self.stable_note() else { return false };
        let Shown { truncate_seq, size, mtime, rejoins: told } = self.noting.shown;
        let is_present = told == rejoins && truncate_seq == self.truncate_seq;
        let shows_size = note.size <= self.durable_size || is_present && note.size <= size;
        let shows_time = self.mtime_durable || is_present && note.mtime <= mtime;
        shows_size && shows_time && self.is_covered_by_note(mark)
    }

    /// The service has taken a report that was made after the mount had begun to join again so many times.
    pub(crate) fn was_shown(&mut self, update: &SizeUpdate, rejoins: u64) {
        let truncate_seq = self.truncate_seq;
        if update.truncate_seq != truncate_seq {
            return;
        }
        let shown = &mut self.noting.shown;
        if (shown.rejoins, shown.truncate_seq) != (rejoins, truncate_seq) {
            *shown = Shown { rejoins, truncate_seq, ..Shown::default() };
        }
        shown.size = shown.size.max(update.size);
        shown.mtime = shown.mtime.max(update.mtime);
    }

    /// Whether the service need not be told yet, because a note makes everything durable. The background tells it later.
    pub(crate) fn rests_on_note(&self) -> bool {
        !self.noting.is_due && self.is_stable() && self.is_covered_by_note(&self.mark())
    }

    /// The service is told of what was noted as soon as possible.
    pub(crate) fn note_is_due(&mut self) {
        self.noting.is_due = true;
    }

    /// Whether the background tells it, although an `fsync` runs.
    pub(crate) fn is_note_due(&self) -> bool {
        self.noting.is_due && self.noting.stable.is_some()
    }

    /// The service has stored a report with this time. Takes the note out if the service knows now what it says, or has
    /// truncated the file since.
    pub(crate) fn take_told(&mut self, mtime: i64) -> Option<Noted> {
        self.noting.is_due = false;
        let FileState { truncate_seq, durable_size, mtime_durable, .. } = *self;
        self.noting.stable.take_if(|Noted { note, .. }| {
            let knows = note.size <= durable_size && (mtime_durable || note.mtime <= mtime);
            note.truncate_seq != truncate_seq || knows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::open_file::OpenFile;

    const INODE: InodeId = InodeId(5);

    /// A file that was synced, with one piece of 100 bytes that an `fsync` waits for.
    fn with_a_piece() -> OpenFile {
        let file = OpenFile::new(INODE, 0);
        let mut state = file.lock();
        (state.mode, state.users, state.fsyncs, state.size, state.mtime) = (Mode::Alone, 1, 1, 100, 9);
        (state.mtime_durable, state.mtime_reported) = (false, false);
        state.noting.granted = true;
        state.stripes.entry(0).or_default().lay(0, &[1; 100], 4096);
        state.seal(0);
        state.wanted_stable = 1;
        drop(state);
        file
    }

    fn stable(state: &mut FileState, seq: u64) {
        let noted = state.make_note(INODE, 1, ClientSeq(seq), ClientSeq(0));
        state.stripes.clear();
        state.unstable.clear();
        state.keep_stable_note(noted);
    }

    fn update(state: &FileState) -> SizeUpdate {
        let (truncate_seq, size, mtime) = (state.truncate_seq, state.size, state.mtime);
        SizeUpdate { inode: INODE, truncate_seq, size, mtime, set_time: false }
    }

    #[test]
    fn only_the_one_write_that_an_fsync_waits_for_says_the_size() {
        let file = with_a_piece();
        assert!(file.lock().may_note(1) && file.lock().waits_for_one_write());
        file.lock().stripes.entry(1).or_default().lay(0, &[1], 4096);
        assert!(!file.lock().waits_for_one_write());
        let refuses = |change: fn(&mut FileState)| {
            let file = with_a_piece();
            let mut state = file.lock();
            change(&mut state);
            !state.may_note(1)
        };
        assert!(refuses(|state| state.fsyncs = 0));
        assert!(refuses(|state| state.wanted_stable = 0), "nobody waits for this piece");
        assert!(refuses(|state| state.set_mode(Mode::Shared)));
        assert!(refuses(|state| {
            state.set_mode(Mode::Shared);
            state.set_mode(Mode::Alone);
        }));
        assert!(refuses(|state| state.recalled = Some(1)));
        assert!(refuses(|state| state.fenced = true));
        assert!(refuses(|state| state.set_mtime(3)));
        assert!(refuses(|state| state.writeback_paused = true));
        assert!(refuses(|state| state.quiesced = 1));
        assert!(refuses(|state| {
            state.unstable.insert(2);
        }));
        assert!(
            refuses(|state| {
                state.stripes.entry(1).or_default().lay(0, &[1], 4096);
            }),
            "bytes that are not sealed yet are counted in the size"
        );
    }

    #[test]
    fn a_sync_rests_on_a_note_only_if_the_present_service_shows_what_it_says() {
        let file = with_a_piece();
        let mut state = file.lock();
        let mark = state.mark();
        assert!(!state.is_synced_by_note(&mark, 0));
        stable(&mut state, 4);
        assert!(!state.is_synced_by_note(&mark, 0), "nobody was told");
        let told = update(&state);
        state.was_shown(&told, 0);
        assert!(state.is_synced_by_note(&mark, 0) && state.rests_on_note());
        assert!(!state.is_synced_by_note(&mark, 1), "the service has restarted since");
        state.was_shown(&told, 1);
        assert!(state.is_synced_by_note(&mark, 1));
        state.order = 2;
        let later = state.mark();
        assert!(!state.is_synced_by_note(&later, 1), "more was written since");
        state.order = 1;
        state.set_truncate_seq(1);
        let cut = state.mark();
        assert!(!state.is_synced_by_note(&cut, 1) && state.stable_note().is_none());
        // What was shown before a cut is shown no more, however long the file is then.
        stable(&mut state, 5);
        assert!(!state.is_synced_by_note(&cut, 1));
        state.was_shown(&told, 1);
        assert!(!state.is_synced_by_note(&cut, 1), "an answer from before the cut");
        let told = update(&state);
        state.was_shown(&told, 1);
        assert!(state.is_synced_by_note(&cut, 1));
    }

    #[test]
    fn a_note_is_kept_until_the_service_has_stored_what_it_says() {
        let file = with_a_piece();
        let mut state = file.lock();
        stable(&mut state, 4);
        assert!(state.take_told(8).is_none(), "an earlier report");
        state.durable_size = 100;
        assert!(state.take_told(8).is_none(), "the size without the time");
        assert_eq!(state.take_told(9).map(|noted| noted.seq), Some(ClientSeq(4)));
        stable(&mut state, 6);
        state.set_truncate_seq(1);
        assert!(state.take_told(0).is_some(), "it says nothing any more");
    }
}
