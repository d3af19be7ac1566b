//! Names read ahead of a program that removes files.
//!
//! Before each removal the kernel asks which file the name is of, unless it was told within the last second ([`TTL`]). Whoever
//! removes a large directory has listed it longer ago than that, so it waits for two answers of the service for each file. But it
//! removes one name after the other as they were listed. So when a thread that has just removed a name asks for another one of the
//! same directory, this mount asks for those that follow it too, and answers the thread's next lookups from them.
//!
//! This must not show anything that a mount could not show anyway:
//!
//! * The kernel believes such an answer until a second has passed since the request for the names, and no longer.
//! * What this mount does, or tells the kernel, of a name or a file is newer: it drops what was read ahead of it, also from an answer
//!   that is on its way meanwhile ([`NamesAhead::name_told`], [`NamesAhead::file_told`]).
//! * Files that are open here, or have several names, are left out: their attributes may change by what is done elsewhere or to
//!   another name. So are directories ([`dir_names`](super::dir_names)).
//! * Only the thread that removes gets these answers, within [`PAUSE_MAX`] of its last removal. Whoever looks for what others have just
//!   done asks the service.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::InodeId;
use types::messages::names::{Attr, DirEntry, FileKind};

use super::kernel_cache::TTL;

/// Longest pause between a removal and the next lookup.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// Names in the first request of a thread, and most in any.
const NAMES: std::ops::RangeInclusive<u32> = 8..=192;
/// Most threads that remove at a time. Beyond this, the one that has paused for longest is forgotten.
const THREADS_MAX: usize = 16;
/// What the kernel says of a thread that it cannot name here.
const UNKNOWN_THREAD: u32 = 0;

/// See the module.
#[derive(Default)]
pub(super) struct NamesAhead {
    streaks: Mutex<Vec<Streak>>,
}

/// Most names and files that are told while a request is on its way. Beyond this, nothing is kept of its answer.
const MEANWHILE_MAX: usize = 64;

/// A thread that removes names of a directory.
struct Streak {
    thread: u32,
    directory: InodeId,
    /// The end of its last removal.
    removed: Instant,
    /// Names in the next request. None if the thread does not remove them in the order of listing.
    count: Option<u32>,
    /// What was told since the request was sent that is on its way.
    meanwhile: Option<Meanwhile>,
    /// When the last request was sent.
    asked: Instant,
    /// How many names of its answer were kept, and whether the thread has asked for any of these.
    kept: usize,
    used: bool,
    ahead: HashMap<Vec<u8>, Attr>,
    /// The names of the files in `ahead`.
    names: HashMap<InodeId, Vec<u8>>,
}

#[derive(Default)]
struct Meanwhile {
    names: HashSet<Vec<u8>>,
    files: HashSet<InodeId>,
}

/// How to answer a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The name is of this file, and the kernel may believe it for so long.
    Known(Box<Attr>, Duration),
    /// Ask for so many names from this one on, and pass the answer to [`NamesAhead::answered`].
    Ask(u32),
    /// Ask for this name alone.
    Alone,
}

impl NamesAhead {
    fn lock(&self) -> MutexGuard<'_, Vec<Streak>> {
        self.streaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has removed a name.
    pub(super) fn removed(&self, thread: u32, directory: InodeId, now: Instant) {
        if thread == UNKNOWN_THREAD {
            return;
        }
        let mut streaks = self.lock();
        let known = streaks.iter().position(|streak| streak.thread == thread);
        if let Some(streak) = known.map(|at| &mut streaks[at]).filter(|streak| streak.goes_on(directory, now))
        {
            streak.removed = now;
            return;
        }
        let longest = || (0..streaks.len()).min_by_key(|at| streaks[*at].removed);
        let replaced = known.or_else(|| if streaks.len() < THREADS_MAX { None } else { longest() });
        let streak = Streak::new(thread, directory, now);
        match replaced {
            Some(at) => streaks[at] = streak,
            None => streaks.push(streak),
        }
    }

    /// The kernel is about to be told what a name is now: that it was made, moved, removed or found, or that this has failed.
    pub(super) fn name_told(&self, directory: InodeId, name: &[u8]) {
        for streak in self.lock().iter_mut().filter(|streak| streak.directory == directory) {
            streak.meanwhile(|meanwhile| drop(meanwhile.names.insert(name.to_vec())));
            streak.take(name);
        }
    }

    /// The kernel is about to be told of a file: its attributes, or that it was opened, written or closed.
    pub(super) fn file_told(&self, inode: InodeId) {
        for streak in self.lock().iter_mut() {
            streak.meanwhile(|meanwhile| drop(meanwhile.files.insert(inode)));
            if let Some(name) = streak.names.remove(&inode) {
                streak.ahead.remove(&name);
            }
        }
    }

    /// A thread looks for a name.
    pub(super) fn next(&self, thread: u32, directory: InodeId, name: &[u8], now: Instant) -> Next {
        let mut streaks = self.lock();
        let streak =
            streaks.iter_mut().find(|streak| streak.thread == thread && streak.goes_on(directory, now));
        let Some(streak) = streak else { return Next::Alone };
        let left = (streak.asked + TTL).saturating_duration_since(now);
        if !left.is_zero()
            && let Some(attr) = streak.take(name)
        {
            streak.used = true;
            return Next::Known(Box::new(attr), left);
        }
        streak.adapt();
        streak.ahead.clear();
        streak.names.clear();
        let Some(count) = streak.count else { return Next::Alone };
        (streak.meanwhile, streak.asked) = (Some(Meanwhile::default()), now);
        (streak.kept, streak.used) = (0, false);
        Next::Ask(count)
    }

    /// The entries that a thread has asked for, from a name on; none if that has failed. `is_open`: whether this mount has a file
    /// open.
    pub(super) fn answered(
        &self,
        thread: u32,
        directory: InodeId,
        entries: &[DirEntry],
        is_open: impl Fn(InodeId) -> bool,
    ) {
        let mut streaks = self.lock();
        let streak =
            streaks.iter_mut().find(|streak| streak.thread == thread && streak.directory == directory);
        let Some(streak) = streak else { return };
        let Some(meanwhile) = streak.meanwhile.take() else { return };
        for DirEntry { name, attr, .. } in entries.iter().skip(1) {
            let is_told = meanwhile.names.contains(name) || meanwhile.files.contains(&attr.inode);
            if attr.kind == FileKind::File && attr.links == 1 && !is_told && !is_open(attr.inode) {
                streak.ahead.insert(name.clone(), attr.clone());
                streak.names.insert(attr.inode, name.clone());
            }
        }
        streak.kept = streak.ahead.len();
    }
}

impl Streak {
    fn new(thread: u32, directory: InodeId, now: Instant) -> Streak {
        Streak {
            thread,
            directory,
            removed: now,
            count: Some(*NAMES.start()),
            meanwhile: None,
            asked: now,
            kept: 0,
            used: false,
            ahead: HashMap::new(),
            names: HashMap::new(),
        }
    }

    fn goes_on(&self, directory: InodeId, now: Instant) -> bool {
        self.directory == directory && now.saturating_duration_since(self.removed) <= PAUSE_MAX
    }

    fn meanwhile(&mut self, note: impl FnOnce(&mut Meanwhile)) {
        if let Some(meanwhile) = &mut self.meanwhile {
            note(meanwhile);
            if meanwhile.names.len() + meanwhile.files.len() > MEANWHILE_MAX {
                self.meanwhile = None;
            }
        }
    }

    fn take(&mut self, name: &[u8]) -> Option<Attr> {
        let attr = self.ahead.remove(name)?;
        self.names.remove(&attr.inode);
        Some(attr)
    }

    /// Decides how many names the next request is for, by how many of the last one's are left. Others may have removed some.
    fn adapt(&mut self) {
        let Some(count) = self.count.filter(|_| self.kept > 0) else { return };
        let is_half_left = 2 * self.ahead.len() >= self.kept;
        self.count = match self.used {
            false => None,
            true if is_half_left => Some((count / 2).max(*NAMES.start())),
            true => Some((2 * count).min(*NAMES.end())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ObjectId;

    const DIR: InodeId = InodeId(5);
    const THREAD: u32 = 77;
    const MS: Duration = Duration::from_millis(1);

    fn entry(number: u64, changes: u64) -> DirEntry {
        let attr = Attr {
            inode: InodeId(1000 + number),
            kind: FileKind::File,
            mode: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 9,
            atime: 0,
            mtime: 0,
            ctime: 0,
            object: ObjectId(0),
            stale_end: 0,
            truncate_seq: 0,
            changes,
        };
        DirEntry { cookie: number, name: name(number), attr }
    }

    fn name(number: u64) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    fn entries(numbers: std::ops::Range<u64>) -> Vec<DirEntry> {
        numbers.map(|number| entry(number, 0)).collect()
    }

    /// The number of the file that is known.
    fn known(names: &NamesAhead, number: u64, now: Instant) -> Option<u64> {
        match names.next(THREAD, DIR, &name(number), now) {
            Next::Known(attr, _) => Some(attr.inode.0 - 1000),
            _ => None,
        }
    }

    /// A thread that has removed one name, and has asked for those from 0 on.
    fn asked() -> (NamesAhead, Instant) {
        let (names, now) = (NamesAhead::default(), Instant::now());
        names.removed(THREAD, DIR, now);
        assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Ask(8));
        (names, now)
    }

    fn answered() -> (NamesAhead, Instant) {
        let (names, now) = asked();
        names.answered(THREAD, DIR, &entries(0..8), |_| false);
        (names, now)
    }

    #[test]
    fn only_a_thread_that_has_just_removed_reads_ahead() {
        let (names, now) = (NamesAhead::default(), Instant::now());
        assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
        names.removed(UNKNOWN_THREAD, DIR, now);
        assert_eq!(names.next(UNKNOWN_THREAD, DIR, &name(0), now), Next::Alone);
        let (names, now) = answered();
        assert_eq!(names.next(THREAD + 1, DIR, &name(1), now), Next::Alone);
        assert_eq!(names.next(THREAD, InodeId(6), &name(1), now), Next::Alone);
        assert_eq!(names.next(THREAD, DIR, &name(1), now + PAUSE_MAX + MS), Next::Alone);
        let Next::Known(attr, left) = names.next(THREAD, DIR, &name(1), now + 20 * MS) else {
            panic!("it is known")
        };
        assert_eq!((*attr, left), (entry(1, 0).attr, TTL - 20 * MS));
        // What was read before a pause is not used after it.
        names.removed(THREAD, DIR, now + 50 * MS);
        assert_eq!(names.next(THREAD, DIR, &name(1), now + 50 * MS), Next::Ask(8));
    }

    #[test]
    fn names_are_known_for_a_second_after_they_were_asked_for() {
        let (names, now) = answered();
        for step in 0..50 {
            names.removed(THREAD, DIR, now + step * 20 * MS);
        }
        assert_eq!(known(&names, 1, now + TTL - MS), Some(1));
        assert_eq!(names.next(THREAD, DIR, &name(2), now + TTL), Next::Ask(8));
    }

    #[test]
    fn what_was_told_since_is_dropped() {
        let (names, now) = answered();
        names.name_told(DIR, &name(1));
        names.file_told(InodeId(1002));
        names.name_told(InodeId(6), &name(3));
        assert_eq!(known(&names, 3, now), Some(3));
        assert_eq!(known(&names, 1, now), None);
        let (names, now) = answered();
        names.file_told(InodeId(1002));
        assert_eq!(known(&names, 2, now), None);
        // Also while the answer is on its way, which may be from before.
        let (names, now) = asked();
        names.name_told(DIR, &name(1));
        names.file_told(InodeId(1002));
        names.answered(THREAD, DIR, &entries(0..8), |inode| inode == InodeId(1004));
        assert_eq!([3, 5].map(|number| known(&names, number, now)), [Some(3), Some(5)]);
        assert_eq!(names.lock()[0].ahead.len(), 2);
        assert_eq!(known(&names, 4, now), None, "it is open");
    }

    #[test]
    fn an_answer_that_much_has_overtaken_is_not_kept() {
        let (names, now) = asked();
        (0..=MEANWHILE_MAX as u64).for_each(|number| names.file_told(InodeId(number)));
        names.answered(THREAD, DIR, &entries(0..8), |_| false);
        assert_eq!(names.next(THREAD, DIR, &name(1), now), Next::Ask(8));
    }

    #[test]
    fn directories_and_files_with_several_names_are_left_out() {
        let (names, now) = asked();
        let mut some = entries(0..5);
        some[1].attr.links = 2;
        some[2].attr.kind = FileKind::Directory;
        some[3].attr.kind = FileKind::Symlink;
        names.answered(THREAD, DIR, &some, |_| false);
        assert_eq!(names.lock()[0].ahead.len(), 1);
        assert_eq!(known(&names, 4, now), Some(4));
    }

    #[test]
    fn as_many_names_are_read_as_are_used() {
        let (names, now) = asked();
        let mut from = 0;
        for count in [8, 16, 32, 64, 128, 192, 192] {
            assert_eq!(names.next(THREAD, DIR, &name(from), now), Next::Ask(count));
            let to = from + u64::from(count);
            names.answered(THREAD, DIR, &entries(from..to), |_| false);
            (from + 1..to).for_each(|number| assert_eq!(known(&names, number, now), Some(number)));
            from = to;
        }
        // Half of them, or fewer.
        for (count, used) in [(192, 40), (96, 40), (48, 23), (24, 22), (48, 0)] {
            assert_eq!(names.next(THREAD, DIR, &name(from), now), Next::Ask(count));
            names.answered(THREAD, DIR, &entries(from..from + u64::from(count)), |_| false);
            (from + 1..=from + used).for_each(|number| assert_eq!(known(&names, number, now), Some(number)));
            from += u64::from(count);
        }
        // None: it goes by another order, or another thread removes them. Whoever begins anew is tried again.
        assert_eq!(names.next(THREAD, DIR, &name(from), now), Next::Alone);
        assert_eq!(names.next(THREAD, DIR, &name(from), now), Next::Alone);
        names.removed(THREAD, InodeId(6), now);
        assert_eq!(names.next(THREAD, InodeId(6), &name(0), now), Next::Ask(8));
    }

    #[test]
    fn threads_are_bounded() {
        let (names, now) = answered();
        for other in 1..=THREADS_MAX as u32 {
            names.removed(THREAD + other, DIR, now + other * MS);
        }
        assert_eq!(names.lock().len(), THREADS_MAX);
        assert_eq!(names.next(THREAD, DIR, &name(2), now), Next::Alone, "it has paused for longest");
    }

    /// A service with three names, changed behind the mount's back too, and what the mount's own requests have shown of it.
    #[derive(Default)]
    struct Service {
        /// The file of each name, and what there was before.
        files: [Vec<Option<u64>>; 3],
        /// How often each file has changed.
        changes: Vec<u64>,
        /// How long `files` and `changes` were when they were last told.
        name_shown: [usize; 3],
        changes_shown: Vec<u64>,
    }

    impl Service {
        fn file(&self, name: usize) -> Option<u64> {
            self.files[name].last().copied().flatten()
        }

        fn put(&mut self, name: usize, there: bool) {
            let file = there.then(|| {
                self.changes.push(0);
                self.changes_shown.push(0);
                self.changes.len() as u64 - 1
            });
            self.files[name].push(file);
        }

        fn list(&self) -> Vec<DirEntry> {
            let listed = (0..3).filter_map(|at| {
                let file = self.file(at)?;
                Some(DirEntry { name: name(at as u64), ..entry(file, self.changes[file as usize]) })
            });
            std::iter::once(entry(999, 0)).chain(listed).collect()
        }
    }

    /// However requests overtake each other, nothing is known that is older than what the kernel was told.
    #[test]
    fn nothing_goes_back() {
        proptest::proptest!(|(steps in proptest::collection::vec((0u8..8, 0usize..3, 0usize..4), 1..200))| {
            let (names, now) = (NamesAhead::default(), Instant::now());
            let mut service = Service::default();
            (0..3).for_each(|name| service.put(name, true));
            let threads = [1u32, 2];
            // The listing that is on its way to each thread: taken at some time after the request.
            let mut waiting: [Option<Option<Vec<DirEntry>>>; 2] = [None, None];
            threads.iter().for_each(|thread| names.removed(*thread, DIR, now));
            for (what, at, more) in steps {
                let thread = more % 2;
                match what {
                    // Another mount.
                    0 => service.put(at, more != 0),
                    1 => if let Some(file) = service.file(at) { service.changes[file as usize] += 1 },
                    // This mount changes or sees a name, or a file.
                    2 => {
                        if more == 0 { service.put(at, false) }
                        service.name_shown[at] = service.files[at].len();
                        names.name_told(DIR, &name(at as u64));
                    }
                    3 => if let Some(file) = service.file(at) {
                        service.changes[file as usize] += u64::from(more == 0);
                        service.changes_shown[file as usize] = service.changes[file as usize];
                        names.file_told(InodeId(1000 + file));
                    },
                    4 => if let Some(Some(listed)) = waiting[thread].take_if(|listed| listed.is_some()) {
                        names.answered(threads[thread], DIR, &listed, |_| false);
                    },
                    5 => if let Some(listed) = &mut waiting[thread] { *listed = Some(service.list()) },
                    _ => if waiting[thread].is_none() {
                        match names.next(threads[thread], DIR, &name(at as u64), now) {
                            Next::Known(attr, _) => {
                                let file = attr.inode.0 - 1000;
                                let since = service.name_shown[at].max(1) - 1;
                                proptest::prop_assert!(service.files[at][since..].contains(&Some(file)));
                                proptest::prop_assert!(attr.changes >= service.changes_shown[file as usize]);
                                // It is what the kernel is told last.
                                names.name_told(DIR, &name(at as u64));
                            }
                            Next::Ask(_) => waiting[thread] = Some(None),
                            Next::Alone => names.removed(threads[thread], InodeId(6), now),
                        }
                        // Whoever reads names that nobody uses is asked no more: begin anew.
                        if names.lock().iter().any(|streak| streak.count.is_none()) {
                            names.lock().retain(|streak| streak.count.is_some());
                        }
                        names.removed(threads[thread], DIR, now);
                    },
                }
            }
        });
    }
}
