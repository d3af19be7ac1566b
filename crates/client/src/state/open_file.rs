//! An open file as the whole mount sees it: its attributes, its mode, its unstable bytes, what the service is owed.
//!
//! There is one [`OpenFile`] per inode, however often it is open. It stays in the mount's table until nobody has it
//! open, all its bytes are stable, and the metadata service knows its size and that it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::messages::cluster::{Mode, OpenInode};
use types::messages::names::{Attr, SizeUpdate};
use types::{Epoch, Geometry, InodeId, ObjectId, StripeKey};
use world::Notify;

use crate::state::gather::{Change, StripeWrites};
use crate::state::wb_errors::WritebackErrors;
use crate::state::zeroing_state::Zeroing;

/// A file that is open, or still owes something to the service.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeId,
    state: Mutex<FileState>,
    /// Given whenever a piece is accepted, stable or lost, and when claims and growth end.
    pub(crate) changed: Notify,
    /// Held by whoever truncates, or zeroes what lies beyond the end.
    pub(crate) turn: async_lock::Mutex<()>,
}

/// How far a file had come when somebody began to wait for its stability.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mark {
    /// Its last piece.
    pub(crate) upto: u64,
    /// Its size.
    end: u64,
    /// How often it had been cut.
    truncate_seq: u64,
}

/// What the lock of an [`OpenFile`] protects.
pub(crate) struct FileState {
    pub(crate) object: ObjectId,
    /// Bytes of the file as this mount sees it.
    pub(crate) size: u64,
    /// The size that the service shows to others.
    pub(crate) reported_size: u64,
    /// The size that the service keeps for good.
    pub(crate) durable_size: u64,
    /// End of what was written alone and could not be told before others were let in: it is told once it is stable.
    owed_end: u64,
    /// End of what the bricks may hold beyond `size` and must be zeroed before the file grows.
    pub(crate) stale_end: u64,
    /// End of everything that was ever sent.
    pub(crate) sent_end: u64,
    /// How often the service has cut it: a size from before says nothing.
    pub(crate) truncate_seq: u64,
    /// Last change of the contents.
    pub(crate) mtime: i64,
    /// Last access, and last change of anything, as far as is known: what they are for, see `atime.rs`.
    pub(crate) atime: i64,
    pub(crate) ctime: i64,
    /// The service has heard of `mtime`.
    pub(crate) mtime_reported: bool,
    /// The service keeps `mtime` for good.
    pub(crate) mtime_durable: bool,
    /// `mtime` was set by the mount's user and counts whatever the service knows.
    pub(crate) mtime_set: bool,
    pub(crate) mode: Mode,
    /// Number of the newest recall that has not been followed yet.
    pub(crate) recalled: Option<u64>,
    /// An open was answered with less than [`Mode::Alone`]; what was written under that is on its way.
    pub(crate) yielding: bool,
    /// How often the service counts it as open for reading only.
    pub(crate) readers: u32,
    /// How often the service counts it as open for writing.
    pub(crate) writers: u32,
    /// Handles, and opens in progress.
    pub(crate) users: u32,
    /// Closed handles that the service has not been told of: were they open for writing?
    pub(crate) releases: Vec<bool>,
    pub(crate) stripes: BTreeMap<u64, StripeWrites>,
    /// The last number given to a piece.
    pub(crate) order: u64,
    /// Pieces that no primary has accepted yet.
    pub(crate) unanswered: BTreeSet<u64>,
    /// Pieces that are not stable yet.
    pub(crate) unstable: BTreeSet<u64>,
    /// Somebody waits for the stability of every piece up to here, and few are unsent.
    pub(crate) wanted_stable: u64,
    /// Stripes that somebody is sending.
    pub(crate) claims: u32,
    /// Reports of growth on their way.
    pub(crate) growing: u32,
    /// Callers of `fsync`: they tell the service of the size themselves.
    pub(crate) fsyncs: u32,
    /// Nothing may be sent or reported.
    pub(crate) writeback_paused: bool,
    /// Reads and writes between their look at the attributes and their end.
    pub(crate) inflight_io: u32,
    /// Cuts for which no read or write may begin.
    pub(crate) quiesced: u32,
    /// How often they have been stopped.
    pub(crate) quiesce_seq: u64,
    /// The cut of somebody else for which they are stopped, or about to be.
    pub(crate) quiesce_asked: Option<u64>,
    pub(crate) zeroing: Zeroing,
    pub(crate) wb_errors: WritebackErrors,
    /// The service has let others in: nothing can be done with this any more.
    pub(crate) fenced: bool,
    /// Handles that may write.
    pub(crate) write_handles: u32,
}

impl OpenFile {
    pub(crate) fn new(inode: InodeId) -> OpenFile {
        let state = FileState {
            object: ObjectId::default(),
            size: 0,
            reported_size: 0,
            durable_size: 0,
            owed_end: 0,
            stale_end: 0,
            sent_end: 0,
            truncate_seq: 0,
            mtime: 0,
            atime: 0,
            ctime: 0,
            mtime_reported: true,
            mtime_durable: true,
            mtime_set: false,
            mode: Mode::Shared,
            recalled: None,
            yielding: false,
            readers: 0,
            writers: 0,
            users: 0,
            releases: Vec::new(),
            stripes: BTreeMap::new(),
            order: 0,
            unanswered: BTreeSet::new(),
            unstable: BTreeSet::new(),
            wanted_stable: 0,
            claims: 0,
            growing: 0,
            fsyncs: 0,
            writeback_paused: false,
            inflight_io: 0,
            quiesced: 0,
            quiesce_seq: 0,
            quiesce_asked: None,
            zeroing: Zeroing::default(),
            wb_errors: WritebackErrors::default(),
            fenced: false,
            write_handles: 0,
        };
        OpenFile { inode, state: Mutex::new(state), changed: Notify::new(), turn: async_lock::Mutex::new(()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileState {
    /// Every byte is stable.
    pub(crate) fn is_stable(&self) -> bool {
        self.unstable.is_empty() && self.stripes.values().all(|s| !s.is_gathering())
    }

    /// The service knows everything and no bytes are left.
    pub(crate) fn is_clean(&self) -> bool {
        self.may_close() && self.releases.is_empty()
    }

    /// The service may be told that a writer has closed it.
    pub(crate) fn may_close(&self) -> bool {
        self.is_stable() && self.is_reported() && !self.zeroing.runs
    }

    /// The service knows the size and the time for good, as far as they are this mount's to tell.
    pub(crate) fn is_reported(&self) -> bool {
        self.mtime_durable && self.own_end() <= self.durable_size
    }

    /// Whether the background has something to do for the service's sake: to tell, to close, to forget. May be true for
    /// nothing, never false for something.
    pub(crate) fn has_unreported(&self) -> bool {
        let told_elsewhere = self.fsyncs > 0;
        self.users == 0 || !self.releases.is_empty() || !(told_elsewhere || self.is_reported())
    }

    /// End of what this mount, and nobody else, has to tell of.
    fn own_end(&self) -> u64 {
        if self.mode == Mode::Alone { self.size.max(self.owed_end) } else { self.owed_end }
    }

    /// Others are let in although not everything is stable and told.
    pub(crate) fn keep_owed_end(&mut self) {
        if self.mode == Mode::Alone && self.size > self.durable_size {
            self.owed_end = self.size;
        }
    }

    /// The service has cut the file so often.
    pub(crate) fn set_truncate_seq(&mut self, truncate_seq: u64) {
        if truncate_seq != self.truncate_seq {
            self.owed_end = 0;
        }
        self.truncate_seq = truncate_seq;
    }

    /// Writes may stay here for a while.
    pub(crate) fn may_buffer(&self) -> bool {
        self.mode == Mode::Alone && self.recalled.is_none() && !self.yielding
    }

    /// Takes the attributes over that the service gave.
    pub(crate) fn adopt(&mut self, attr: &Attr) {
        (self.atime, self.ctime) = (attr.atime, attr.ctime);
        if self.mode == Mode::Alone {
            // What is here is newer; nobody else may write meanwhile.
            return;
        }
        if attr.truncate_seq < self.truncate_seq {
            // The answer was overtaken by that of a cut.
            return;
        }
        if attr.object != self.object {
            self.object = attr.object;
            self.sent_end = 0;
        }
        self.size = attr.size;
        self.reported_size = attr.size;
        self.durable_size = attr.size;
        self.stale_end = attr.stale_end;
        self.set_truncate_seq(attr.truncate_seq);
        if self.mtime_durable {
            self.mtime = attr.mtime;
        }
    }

    /// The attributes as this mount sees them.
    pub(crate) fn view(&self, mut attr: Attr) -> Attr {
        if attr.object != self.object {
            return attr;
        }
        if self.mode == Mode::Alone {
            attr.size = self.size;
        } else if self.size > self.durable_size {
            attr.size = attr.size.max(self.size);
        }
        if !self.mtime_durable {
            attr.mtime = self.mtime;
        }
        attr
    }

    /// The stripe has something that may be sent now to the primary of `epoch`.
    pub(crate) fn is_sendable(&self, stripe: u64, epoch: Epoch) -> bool {
        !self.writeback_paused && self.stripes.get(&stripe).is_some_and(|s| !s.backing_off && s.is_due(epoch))
    }

    /// The place of a stripe.
    pub(crate) fn key(&self, stripe: u64) -> StripeKey {
        StripeKey { object: self.object, stripe }
    }

    /// Makes pieces of what a stripe has gathered.
    pub(crate) fn seal(&mut self, stripe: u64) -> Change {
        let Some(writes) = self.stripes.get_mut(&stripe) else { return Change::default() };
        let before = self.order;
        let change = writes.seal(&mut self.order);
        self.number(before);
        change
    }

    /// Puts zeros behind everything that a stripe has.
    pub(crate) fn lay_zeros(&mut self, stripe: u64, offset: usize, len: usize) -> Change {
        let before = self.order;
        let writes = self.stripes.entry(stripe).or_default();
        let mut change = writes.seal(&mut self.order);
        change += writes.lay_zeros(offset, len, &mut self.order);
        self.number(before);
        change
    }

    /// The pieces made since `before` are neither accepted nor stable.
    fn number(&mut self, before: u64) {
        self.unanswered.extend(before + 1..=self.order);
        self.unstable.extend(before + 1..=self.order);
    }

    /// Everything written so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark { upto: self.order, end: self.size, truncate_seq: self.truncate_seq }
    }

    /// A size that may be told to the service: the durable one if `stable`. `None` if there is nothing to tell. All pieces
    /// up to the mark are stable: what was written over them since takes no byte of theirs away.
    pub(crate) fn growth(
        &self,
        geometry: &Geometry,
        stable: Option<Mark>,
        inode: InodeId,
    ) -> Option<SizeUpdate> {
        if self.writeback_paused || self.fenced {
            return None;
        }
        let (truncate_seq, mtime, set_time) = (self.truncate_seq, self.mtime, self.mtime_set);
        let tell = |size| Some(SizeUpdate { inode, truncate_seq, size, mtime, set_time });
        if self.mode != Mode::Alone && (stable.is_none() || self.owed_end <= self.durable_size) {
            // Somebody else may have cut the file since: every write has told its own end (write-through).
            return if self.mtime_durable || !self.is_stable() { None } else { tell(0) };
        }
        let Some(mark) = stable else {
            return if self.size > self.reported_size || !self.mtime_reported {
                tell(self.size.max(self.reported_size))
            } else {
                None
            };
        };
        let stripe = geometry.stripe() as u64;
        let first = |(number, s): (&u64, &StripeWrites)| s.first_byte().map(|b| number * stripe + b as u64);
        let unstable = self.stripes.iter().filter_map(first).min();
        let marked = if mark.truncate_seq == self.truncate_seq { mark.end } else { 0 };
        let own = self.own_end();
        let end = unstable.map_or(own, |first| first.max(marked).min(own));
        let only_time = !self.mtime_durable && unstable.is_none();
        if end > self.durable_size || only_time { tell(end.max(self.durable_size)) } else { None }
    }

    /// The time of the last change is `mtime`, says the mount's user; the service is told with the next report.
    pub(crate) fn set_mtime(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_reported = false;
        self.mtime_durable = false;
        self.mtime_set = true;
    }

    /// The service keeps this time.
    pub(crate) fn set_durable_mtime(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_reported = true;
        self.mtime_durable = true;
        self.mtime_set = false;
    }

    /// The service has taken a report.
    pub(crate) fn has_grown(&mut self, update: &SizeUpdate, stable: bool) {
        if update.truncate_seq != self.truncate_seq {
            return;
        }
        self.reported_size = self.reported_size.max(update.size);
        self.mtime_reported |= update.mtime == self.mtime;
        if stable {
            self.durable_size = self.durable_size.max(update.size);
            self.mtime_durable |= update.mtime == self.mtime;
            self.mtime_set &= !self.mtime_durable;
        }
    }

    /// The service has not taken a report: the file, with these attributes now, was cut after what the report tells of.
    /// What is left to be told is told anew.
    pub(crate) fn was_truncated(&mut self, attr: &Attr) {
        self.adopt(attr);
        // A file that is this mount's alone is cut by nobody else; whatever it is, the next report must count.
        self.set_truncate_seq(self.truncate_seq.max(attr.truncate_seq));
    }

    /// What the service must hear of when this client comes back to it.
    pub(crate) fn open_inode(&mut self, inode: InodeId) -> OpenInode {
        self.zeroing.reclaimed = true;
        let zeroing = self.zeroing.number;
        OpenInode { inode, readers: self.readers, writers: self.writers, zeroing }
    }

    /// The service counts one more open.
    pub(crate) fn count_open(&mut self, write: bool) {
        if write { self.writers += 1 } else { self.readers += 1 }
    }

    /// The service counts one open less.
    pub(crate) fn count_release(&mut self, write: bool) {
        let count = if write { &mut self.writers } else { &mut self.readers };
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::messages::names::FileKind;

    fn attr(size: u64, truncate_seq: u64) -> Attr {
        let (inode, kind, object) = (InodeId(5), FileKind::File, ObjectId(truncate_seq));
        let (mode, links, uid, gid, rdev) = (0o644, 1, 0, 0, 0);
        let (atime, mtime, ctime, stale_end, changes) = (0, 0, 0, 0, 0);
        Attr {
            inode,
            kind,
            mode,
            links,
            uid,
            gid,
            rdev,
            size,
            atime,
            mtime,
            ctime,
            object,
            stale_end,
            truncate_seq,
            changes,
        }
    }

    fn geometry() -> Geometry {
        Geometry::new("2+1".parse().expect("a code"), 4096, 2).expect("a geometry")
    }

    /// Who is not woken by [`FileState::has_unreported`] has nothing to tell.
    #[test]
    fn whatever_can_be_told_is_owed() {
        let geometry = geometry();
        for bits in 0u32..64 {
            let is = |bit: u32| bits & 1 << bit != 0;
            let file = OpenFile::new(InodeId(5));
            let mut state = file.lock();
            state.users = 1;
            state.mode = if is(0) { Mode::Alone } else { Mode::Shared };
            (state.size, state.reported_size, state.durable_size) = (70, 70, if is(1) { 70 } else { 30 });
            (state.mtime_durable, state.owed_end) = (is(2), if is(3) { 50 } else { 0 });
            state.fsyncs = u32::from(is(4));
            if is(5) {
                state.stripes.entry(0).or_default().lay(40, &[1], geometry.stripe());
            }
            let mark = Some(Mark::default());
            let tells = !is(4) && state.growth(&geometry, mark, InodeId(5)).is_some();
            assert!(state.has_unreported() || !tells, "{bits:06b}");
        }
    }

    #[test]
    fn a_file_of_which_all_is_told_wakes_nobody() {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        (state.mode, state.users, state.size, state.durable_size) = (Mode::Alone, 1, 70, 70);
        assert!(!state.has_unreported());
        state.mtime_durable = false;
        assert!(state.has_unreported());
        state.fsyncs = 1;
        assert!(!state.has_unreported(), "fsync tells");
        state.releases.push(true);
        assert!(state.has_unreported(), "a close");
    }

    /// A file of 70 bytes written alone, none of them told of, that others have open now.
    fn let_in_too_early() -> OpenFile {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        (state.mode, state.size, state.mtime_durable) = (Mode::Alone, 70, true);
        state.keep_owed_end();
        state.mode = Mode::Shared;
        drop(state);
        file
    }

    #[test]
    fn attributes_from_before_a_cut_are_not_taken_over() {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        state.adopt(&attr(100, 1));
        state.adopt(&attr(10, 2));
        state.adopt(&attr(100, 1));
        assert_eq!((state.size, state.object, state.truncate_seq), (10, ObjectId(2), 2));
        state.adopt(&attr(20, 2));
        assert_eq!(state.size, 20);
    }

    /// The report of a file that is this mount's alone is made again for the new number, and is not lost.
    #[test]
    fn a_report_that_was_not_taken_is_made_again() {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        state.adopt(&attr(0, 0));
        (state.mode, state.size) = (Mode::Alone, 70);
        let update = state.growth(&geometry(), Some(Mark::default()), InodeId(5)).expect("it has grown");
        assert_eq!((update.size, update.truncate_seq), (70, 0));
        state.was_truncated(&attr(10, 1));
        state.has_grown(&update, true);
        let again = state.growth(&geometry(), Some(Mark::default()), InodeId(5)).expect("not told yet");
        assert_eq!((again.size, again.truncate_seq), (70, 1));
        state.has_grown(&again, true);
        assert_eq!(state.growth(&geometry(), Some(Mark::default()), InodeId(5)), None);
    }

    /// Bricks were away for so long that others were let in before what was written alone was stable.
    #[test]
    fn what_is_stable_only_after_others_were_let_in_is_told() {
        let file = let_in_too_early();
        let mut state = file.lock();
        state.adopt(&attr(10, 0));
        assert!(!state.is_reported());
        let mark = state.mark();
        let update = state.growth(&geometry(), Some(mark), InodeId(5)).expect("it is owed");
        assert_eq!((update.size, update.truncate_seq), (70, 0));
        state.has_grown(&update, true);
        assert!(state.is_reported());
        assert_eq!(state.growth(&geometry(), Some(mark), InodeId(5)), None);
    }

    #[test]
    fn what_others_have_cut_is_owed_no_more() {
        let file = let_in_too_early();
        let mut state = file.lock();
        state.adopt(&attr(10, 1));
        assert!(state.is_reported());
        assert_eq!(state.growth(&geometry(), Some(Mark::default()), InodeId(5)), None);
    }
}
