//! What of a file's size and times must still be reported to the metadata service, and what it has stored.

use types::messages::cluster::Mode;
use types::messages::names::{Attr, SizeUpdate};
use types::{Geometry, InodeId, cost};

use crate::state::gather::StripeWrites;
use crate::state::open_file::{FileState, Mark};

/// The time of a report that does not set the time: earlier than any that was set.
const NO_TIME: i64 = i64::MIN;

/// A report of a file's size and time. Every durable one counts as a change of the contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SizeReport {
    pub(crate) update: SizeUpdate,
    /// All changes up to this one were stable when the report was made.
    pub(crate) changed: u64,
}

impl FileState {
    /// Whether all bytes are stable and all reports are done.
    pub(crate) fn is_clean(&self) -> bool {
        self.may_close() && self.releases.is_empty()
    }

    /// Whether the background must look at this file now: to report, to close, to remove it. May be true without need,
    /// but is never false if there is work that does not rest on a note.
    pub(crate) fn has_unreported(&self) -> bool {
        let told_elsewhere = self.fsyncs > 0 && !self.is_note_due();
        let is_told = told_elsewhere || self.is_reported() || self.rests_on_note();
        self.users == 0 || !self.releases.is_empty() || !is_told || self.loss.is_some()
    }

    /// Adopts attributes that the service has sent.
    pub(crate) fn adopt(&mut self, attr: &Attr) {
        (self.atime, self.ctime) = (attr.atime, attr.ctime);
        if self.mode == Mode::Alone {
            // The state here is newer, because no other client may write.
            return;
        }
        if attr.truncate_seq < self.truncate_seq {
            // These attributes are older than the last truncation.
            return;
        }
        if attr.object != self.object {
            self.object = attr.object;
            self.invalidate();
            (self.sent_end, self.stable_end) = (0, 0);
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

    /// The file's bytes are in another object now, all of them stable.
    pub(crate) fn has_moved(&mut self, attr: &Attr) {
        self.object = attr.object;
        self.invalidate();
        (self.sent_end, self.stable_end) = (0, 0);
        self.stale_end = attr.stale_end;
        self.set_truncate_seq(attr.truncate_seq);
    }

    /// Whether the close of a writer may be reported.
    pub(crate) fn may_close(&self) -> bool {
        self.is_stable() && self.is_reported() && !self.zeroing.runs && self.loss.is_none()
    }

    /// Whether the service has stored size and time durably, as far as this mount must report them.
    pub(crate) fn is_reported(&self) -> bool {
        self.mtime_durable && self.own_end() <= self.durable_size && !self.owes_change()
    }

    /// Whether the service must still count a change by this mount. The times of two changes may be the same, or set by
    /// somebody, and tell nothing about this.
    fn owes_change(&self) -> bool {
        self.told_changed < self.changed
    }

    /// End of the bytes whose size only this mount can report.
    pub(super) fn own_end(&self) -> u64 {
        if self.mode == Mode::Alone { self.size.max(self.owed_end) } else { self.owed_end }
    }

    /// Other clients are let in although not everything is stable and reported.
    pub(crate) fn keep_owed_end(&mut self) {
        if self.mode == Mode::Alone && self.size > self.durable_size {
            self.owed_end = self.size;
        }
    }

    /// Sets the number of truncations.
    pub(crate) fn set_truncate_seq(&mut self, truncate_seq: u64) {
        if truncate_seq != self.truncate_seq {
            self.invalidate();
            self.owed_end = 0;
        }
        self.truncate_seq = truncate_seq;
    }

    /// The next size report: a durable one if `stable` is given; `None` if there is nothing to report. All pieces up
    /// to the mark are stable. Later writes over them cannot make the file shorter than the mark.
    pub(crate) fn growth(
        &self,
        geometry: &Geometry,
        stable: Option<Mark>,
        inode: InodeId,
    ) -> Option<SizeReport> {
        if self.writeback_paused || self.fenced || self.loss.is_some() {
            return None;
        }
        let (truncate_seq, mtime, set_time) = (self.truncate_seq, self.mtime, self.mtime_set);
        let is_stable = self.is_stable();
        let changed = if is_stable { self.changed } else { self.told_changed };
        let tell = |size| {
            Some(SizeReport { update: SizeUpdate { inode, truncate_seq, size, mtime, set_time }, changed })
        };
        // Nothing but the change is left to report.
        let owes_change = stable.is_some() && is_stable && self.owes_change();
        let tell_change = || {
            let update = SizeUpdate { inode, truncate_seq, size: 0, mtime: NO_TIME, set_time: false };
            owes_change.then_some(SizeReport { update, changed })
        };
        if self.mode != Mode::Alone && (stable.is_none() || self.owed_end <= self.durable_size) {
            // Another client may have truncated the file since. Every write has already reported its own end
            // (write-through).
            return if self.mtime_durable || !is_stable { tell_change() } else { tell(0) };
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
        // In the order of their numbers, so the first one has the lowest byte.
        let unstable = cost::walked(&self.stripes).find_map(first);
        let marked = if mark.truncate_seq == self.truncate_seq { mark.end } else { 0 };
        let own = self.own_end();
        let noted = self.stable_note().map_or(0, |noted| noted.note.size);
        let end = unstable.map_or(own, |first| first.max(marked).max(noted).min(own));
        let only_time = !self.mtime_durable && unstable.is_none();
        if end > self.durable_size || only_time { tell(end.max(self.durable_size)) } else { tell_change() }
    }

    /// Sets the time of the last change, as the mount's user demands. The next report carries it.
    pub(crate) fn set_mtime(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_reported = false;
        self.mtime_durable = false;
        self.mtime_set = true;
    }

    /// The service has stored this time.
    pub(crate) fn set_durable_mtime(&mut self, mtime: i64) {
        self.mtime = mtime;
        self.mtime_reported = true;
        self.mtime_durable = true;
        self.mtime_set = false;
    }

    /// The service has accepted a report.
    pub(crate) fn has_grown(&mut self, report: &SizeReport, stable: bool) {
        let update = &report.update;
        if update.truncate_seq != self.truncate_seq {
            return;
        }
        self.reported_size = self.reported_size.max(update.size);
        self.mtime_reported |= update.mtime == self.mtime;
        if stable {
            self.durable_size = self.durable_size.max(update.size);
            self.mtime_durable |= update.mtime == self.mtime;
            self.mtime_set &= !self.mtime_durable;
            self.told_changed = self.told_changed.max(report.changed);
        }
    }

    /// The service refuses a report, and always will. The change is reported alone, unless the report was that.
    pub(crate) fn was_refused(&mut self, report: &SizeReport) {
        let changed = if report.update.mtime == NO_TIME { report.changed } else { 0 };
        self.has_grown(&SizeReport { changed, ..report.clone() }, true);
    }

    /// The service has ignored a report, because the file was truncated after the report was made; `attr` is new.
    /// What is left to report is reported again.
    pub(crate) fn was_truncated(&mut self, attr: &Attr) {
        self.adopt(attr);
        // `adopt` may have ignored the attributes, but the next report must name the new count.
        self.set_truncate_seq(self.truncate_seq.max(attr.truncate_seq));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectId;
    use types::messages::names::FileKind;

    use crate::state::open_file::OpenFile;

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
            let file = OpenFile::new(InodeId(5), 0);
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
    fn a_report_costs_the_same_however_many_stripes_wait() {
        let geometry = geometry();
        let file = OpenFile::new(InodeId(5), 0);
        let mut state = file.lock();
        (state.mode, state.users, state.size) = (Mode::Alone, 1, 1 << 30);
        for stripe in 7..10_000 {
            state.stripes.entry(stripe).or_default().lay(40, &[1], geometry.stripe());
        }
        cost::take_ns();
        let told = state.growth(&geometry, Some(Mark::default()), InodeId(5)).expect("a report");
        assert_eq!(told.update.size, 7 * geometry.stripe() as u64 + 40);
        let spent = cost::take_ns();
        cost::entries(10);
        assert!(spent <= cost::take_ns(), "{spent} ns");
    }

    #[test]
    fn a_file_of_which_all_is_told_wakes_nobody() {
        let file = OpenFile::new(InodeId(5), 0);
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
        let file = OpenFile::new(InodeId(5), 0);
        let mut state = file.lock();
        (state.mode, state.size, state.mtime_durable) = (Mode::Alone, 70, true);
        state.keep_owed_end();
        state.mode = Mode::Shared;
        drop(state);
        file
    }

    #[test]
    fn attributes_from_before_a_cut_are_not_taken_over() {
        let file = OpenFile::new(InodeId(5), 0);
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
        let file = OpenFile::new(InodeId(5), 0);
        let mut state = file.lock();
        state.adopt(&attr(0, 0));
        (state.mode, state.size) = (Mode::Alone, 70);
        let report = state.growth(&geometry(), Some(Mark::default()), InodeId(5)).expect("it has grown");
        assert_eq!((report.update.size, report.update.truncate_seq), (70, 0));
        state.was_truncated(&attr(10, 1));
        state.has_grown(&report, true);
        let again = state.growth(&geometry(), Some(Mark::default()), InodeId(5)).expect("not told yet");
        assert_eq!((again.update.size, again.update.truncate_seq), (70, 1));
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
        let report = state.growth(&geometry(), Some(mark), InodeId(5)).expect("it is owed");
        assert_eq!((report.update.size, report.update.truncate_seq), (70, 0));
        state.has_grown(&report, true);
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

    /// What vouches for bytes that are kept is the count of changes, and no time.
    #[test]
    fn every_change_is_counted_whatever_the_times_are() {
        let file = OpenFile::new(InodeId(5), 0);
        let mut state = file.lock();
        (state.mode, state.size, state.durable_size, state.mtime, state.users) = (Mode::Alone, 70, 70, 9, 1);
        let tell = |state: &FileState| state.growth(&geometry(), Some(Mark::default()), InodeId(5));
        // A write over present bytes that leaves the time as it is.
        state.changed += 1;
        assert!(!state.is_reported() && !state.may_close() && state.has_unreported());
        let report = tell(&state).expect("a change");
        assert_eq!((report.update.size, report.update.mtime, report.update.set_time), (0, NO_TIME, false));
        // Another one while the report is on its way, at the same time by the clock.
        state.changed += 1;
        state.has_grown(&report, true);
        assert!(!state.is_reported(), "the second one is not counted");
        let report = tell(&state).expect("a change");
        state.has_grown(&report, true);
        assert!(state.is_reported() && tell(&state).is_none());
        // Bytes that are not stable: nothing is told before they are.
        state.changed += 1;
        state.unstable.insert(1);
        assert_eq!(tell(&state), None);
        state.mtime_durable = false;
        let early = tell(&state).expect("the time");
        state.has_grown(&early, true);
        assert!(!state.is_reported());
        state.unstable.clear();
        state.mode = Mode::Shared;
        let report = tell(&state).expect("a change");
        state.was_refused(&report);
        assert!(state.is_reported(), "nothing else can be done");
    }
}
