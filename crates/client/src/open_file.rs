//! An open file as the whole mount sees it: its attributes, its mode, its unstable bytes, what the service is owed.
//!
//! There is one [`OpenFile`] per inode, however often it is open. It stays in the mount's table until nobody has it
//! open, all its bytes are stable, and the metadata service knows its size and that it is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::messages::cluster::{Mode, OpenInode};
use types::messages::names::{Attr, SizeUpdate};
use types::{Epoch, Geometry, InodeId, ObjectId, StripeKey};
use world::Signal;

use crate::gather::{Change, StripeWrites};
use crate::losses::Losses;
use crate::zeroing::Zeroing;

/// A file that is open, or still owes something to the service.
pub(crate) struct OpenFile {
    pub(crate) inode: InodeId,
    state: Mutex<FileState>,
    /// Given whenever a piece is accepted, stable or lost, and when claims and growth end.
    pub(crate) changed: Signal,
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
    cuts: u64,
}

/// What the lock of an [`OpenFile`] protects.
pub(crate) struct FileState {
    pub(crate) object: ObjectId,
    /// Bytes of the file as this mount sees it.
    pub(crate) size: u64,
    /// The size that the service shows to others.
    pub(crate) told: u64,
    /// The size that the service keeps for good.
    pub(crate) kept: u64,
    /// End of what was written alone and could not be told before others were let in: it is told once it is stable.
    owed_end: u64,
    /// End of what the bricks may hold beyond `size` and must be zeroed before the file grows.
    pub(crate) stale_end: u64,
    /// End of everything that was ever sent.
    pub(crate) sent_end: u64,
    /// How often the service has cut it: a size from before says nothing.
    pub(crate) cuts: u64,
    /// Last change of the contents.
    pub(crate) mtime: i64,
    /// Last access, and last change of anything, as far as is known: what they are for, see `access.rs`.
    pub(crate) atime: i64,
    pub(crate) ctime: i64,
    /// The service has heard of `mtime`.
    pub(crate) mtime_told: bool,
    /// The service keeps `mtime` for good.
    pub(crate) mtime_kept: bool,
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
    pub(crate) held: bool,
    /// Reads and writes between their look at the attributes and their end.
    pub(crate) accesses: u32,
    /// Cuts for which no read or write may begin.
    pub(crate) stopped: u32,
    /// How often they have been stopped.
    pub(crate) stops: u64,
    /// The cut of somebody else for which they are stopped, or about to be.
    pub(crate) stop_asked: Option<u64>,
    pub(crate) zeroing: Zeroing,
    pub(crate) losses: Losses,
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
            told: 0,
            kept: 0,
            owed_end: 0,
            stale_end: 0,
            sent_end: 0,
            cuts: 0,
            mtime: 0,
            atime: 0,
            ctime: 0,
            mtime_told: true,
            mtime_kept: true,
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
            held: false,
            accesses: 0,
            stopped: 0,
            stops: 0,
            stop_asked: None,
            zeroing: Zeroing::default(),
            losses: Losses::default(),
            fenced: false,
            write_handles: 0,
        };
        OpenFile { inode, state: Mutex::new(state), changed: Signal::new(), turn: async_lock::Mutex::new(()) }
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
    pub(crate) fn is_settled(&self) -> bool {
        self.may_close() && self.releases.is_empty()
    }

    /// The service may be told that a writer has closed it.
    pub(crate) fn may_close(&self) -> bool {
        self.is_stable() && self.is_told() && !self.zeroing.runs
    }

    /// The service knows the size and the time for good, as far as they are this mount's to tell.
    pub(crate) fn is_told(&self) -> bool {
        self.mtime_kept && self.own_end() <= self.kept
    }

    /// Whether the background has something to do for the service's sake: to tell, to close, to forget. May be true for
    /// nothing, never false for something.
    pub(crate) fn is_owing(&self) -> bool {
        let told_elsewhere = self.fsyncs > 0;
        self.users == 0 || !self.releases.is_empty() || !(told_elsewhere || self.is_told())
    }

    /// End of what this mount, and nobody else, has to tell of.
    fn own_end(&self) -> u64 {
        if self.mode == Mode::Alone { self.size.max(self.owed_end) } else { self.owed_end }
    }

    /// Others are let in although not everything is stable and told.
    pub(crate) fn owe(&mut self) {
        if self.mode == Mode::Alone && self.size > self.kept {
            self.owed_end = self.size;
        }
    }

    /// The service has cut the file so often.
    pub(crate) fn count_cuts(&mut self, cuts: u64) {
        if cuts != self.cuts {
            self.owed_end = 0;
        }
        self.cuts = cuts;
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
        if attr.cuts < self.cuts {
            // The answer was overtaken by that of a cut.
            return;
        }
        if attr.object != self.object {
            self.object = attr.object;
            self.sent_end = 0;
        }
        self.size = attr.size;
        self.told = attr.size;
        self.kept = attr.size;
        self.stale_end = attr.stale_end;
        self.count_cuts(attr.cuts);
        if self.mtime_kept {
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
        } else if self.size > self.kept {
            attr.size = attr.size.max(self.size);
        }
        if !self.mtime_kept {
            attr.mtime = self.mtime;
        }
        attr
    }

    /// The stripe has something that may be sent now to the primary of `epoch`.
    pub(crate) fn is_sendable(&self, stripe: u64, epoch: Epoch) -> bool {
        !self.held && self.stripes.get(&stripe).is_some_and(|s| !s.resting && s.is_due(epoch))
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
        Mark { upto: self.order, end: self.size, cuts: self.cuts }
    }

    /// A size that may be told to the service: the durable one if `stable`. `None` if there is nothing to tell. All pieces
    /// up to the mark are stable: what was written over them since takes no byte of theirs away.
    pub(crate) fn growth(
        &self,
        geometry: &Geometry,
        stable: Option<Mark>,
        inode: InodeId,
    ) -> Option<SizeUpdate> {
        if self.held || self.fenced {
            return None;
        }
        let (cuts, mtime, set_time) = (self.cuts, self.mtime, self.mtime_set);
        let tell = |size| Some(SizeUpdate { inode, cuts, size, mtime, set_time });
        if self.mode != Mode::Alone && (stable.is_none() || self.owed_end <= self.kept) {
            // Somebody else may have cut the file since: every write has told its own end (write-through).
            return if self.mtime_kept || !self.is_stable() { None } else { tell(0) };
        }
        let Some(mark) = stable else {
            return if self.size > self.told || !self.mtime_told {
                tell(self.size.max(self.told))
            } else {
                None
            };
        };
        let stripe = geometry.stripe() as u64;
        let first = |(number, s): (&u64, &StripeWrites)| s.first_byte().map(|b| number * stripe + b as u64);
        let unstable = self.stripes.iter().filter_map(first).min();
        let marked = if mark.cuts == self.cuts { mark.end } else { 0 };
        let own = self.own_end();
        let end = unstable.map_or(own, |first| first.max(marked).min(own));
        let only_time = !self.mtime_kept && unstable.is_none();
        if end > self.kept || only_time { tell(end.max(self.kept)) } else { None }
    }

    /// The time of the last change is `mtime`, says the mount's user; the service is told with the next report.
    pub(crate) fn set_mtime(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_told = false;
        self.mtime_kept = false;
        self.mtime_set = true;
    }

    /// The service keeps this time.
    pub(crate) fn mtime_is_kept(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_told = true;
        self.mtime_kept = true;
        self.mtime_set = false;
    }

    /// The service has taken a report.
    pub(crate) fn has_grown(&mut self, update: &SizeUpdate, stable: bool) {
        if update.cuts != self.cuts {
            return;
        }
        self.told = self.told.max(update.size);
        self.mtime_told |= update.mtime == self.mtime;
        if stable {
            self.kept = self.kept.max(update.size);
            self.mtime_kept |= update.mtime == self.mtime;
            self.mtime_set &= !self.mtime_kept;
        }
    }

    /// The service has not taken a report: the file, with these attributes now, was cut after what the report tells of.
    /// What is left to be told is told anew.
    pub(crate) fn was_cut(&mut self, attr: &Attr) {
        self.adopt(attr);
        // A file that is this mount's alone is cut by nobody else; whatever it is, the next report must count.
        self.count_cuts(self.cuts.max(attr.cuts));
    }

    /// What the service must hear of when this client comes back to it.
    pub(crate) fn open_inode(&mut self, inode: InodeId) -> OpenInode {
        self.zeroing.announced = true;
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

    fn attr(size: u64, cuts: u64) -> Attr {
        let (inode, kind, object) = (InodeId(5), FileKind::File, ObjectId(cuts));
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
            cuts,
            changes,
        }
    }

    fn geometry() -> Geometry {
        Geometry::new("2+1".parse().expect("a code"), 4096, 2).expect("a geometry")
    }

    /// Who is not woken by [`FileState::is_owing`] has nothing to tell.
    #[test]
    fn whatever_can_be_told_is_owed() {
        let geometry = geometry();
        for bits in 0u32..64 {
            let is = |bit: u32| bits & 1 << bit != 0;
            let file = OpenFile::new(InodeId(5));
            let mut state = file.lock();
            state.users = 1;
            state.mode = if is(0) { Mode::Alone } else { Mode::Shared };
            (state.size, state.told, state.kept) = (70, 70, if is(1) { 70 } else { 30 });
            (state.mtime_kept, state.owed_end) = (is(2), if is(3) { 50 } else { 0 });
            state.fsyncs = u32::from(is(4));
            if is(5) {
                state.stripes.entry(0).or_default().lay(40, &[1], geometry.stripe());
            }
            let mark = Some(Mark::default());
            let tells = !is(4) && state.growth(&geometry, mark, InodeId(5)).is_some();
            assert!(state.is_owing() || !tells, "{bits:06b}");
        }
    }

    #[test]
    fn a_file_of_which_all_is_told_wakes_nobody() {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        (state.mode, state.users, state.size, state.kept) = (Mode::Alone, 1, 70, 70);
        assert!(!state.is_owing());
        state.mtime_kept = false;
        assert!(state.is_owing());
        state.fsyncs = 1;
        assert!(!state.is_owing(), "fsync tells");
        state.releases.push(true);
        assert!(state.is_owing(), "a close");
    }

    /// A file of 70 bytes written alone, none of them told of, that others have open now.
    fn let_in_too_early() -> OpenFile {
        let file = OpenFile::new(InodeId(5));
        let mut state = file.lock();
        (state.mode, state.size, state.mtime_kept) = (Mode::Alone, 70, true);
        state.owe();
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
        assert_eq!((state.size, state.object, state.cuts), (10, ObjectId(2), 2));
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
        assert_eq!((update.size, update.cuts), (70, 0));
        state.was_cut(&attr(10, 1));
        state.has_grown(&update, true);
        let again = state.growth(&geometry(), Some(Mark::default()), InodeId(5)).expect("not told yet");
        assert_eq!((again.size, again.cuts), (70, 1));
        state.has_grown(&again, true);
        assert_eq!(state.growth(&geometry(), Some(Mark::default()), InodeId(5)), None);
    }

    /// Bricks were away for so long that others were let in before what was written alone was stable.
    #[test]
    fn what_is_stable_only_after_others_were_let_in_is_told() {
        let file = let_in_too_early();
        let mut state = file.lock();
        state.adopt(&attr(10, 0));
        assert!(!state.is_told());
        let mark = state.mark();
        let update = state.growth(&geometry(), Some(mark), InodeId(5)).expect("it is owed");
        assert_eq!((update.size, update.cuts), (70, 0));
        state.has_grown(&update, true);
        assert!(state.is_told());
        assert_eq!(state.growth(&geometry(), Some(mark), InodeId(5)), None);
    }

    #[test]
    fn what_others_have_cut_is_owed_no_more() {
        let file = let_in_too_early();
        let mut state = file.lock();
        state.adopt(&attr(10, 1));
        assert!(state.is_told());
        assert_eq!(state.growth(&geometry(), Some(Mark::default()), InodeId(5)), None);
    }
}
