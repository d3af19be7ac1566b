//! Names that are read ahead, by the thread that removes files.

use super::*;
use crate::fuse::attributes::plain_attr;

const DIR: InodeId = InodeId(5);
const THREAD: u32 = 77;
const MS: Duration = Duration::from_millis(1);

fn entry(number: u64, changes: u64) -> DirEntry {
    let attr = Attr { size: 9, changes, ..plain_attr(InodeId(1000 + number), FileKind::File) };
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

fn remove(names: &NamesAhead, thread: u32, directory: InodeId, now: Instant) {
    (0..REMOVALS_MIN).for_each(|_| names.removed(thread, directory, now));
}

/// A thread that has removed some names, and has asked for those from 0 on.
fn asked() -> (NamesAhead, Instant) {
    let (names, now) = (NamesAhead::default(), Instant::now());
    remove(&names, THREAD, DIR, now);
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Ask(8));
    (names, now)
}

fn answered() -> (NamesAhead, Instant) {
    let (names, now) = asked();
    names.answered(THREAD, DIR, entries(1..8).iter());
    (names, now)
}

#[test]
fn only_a_thread_that_has_just_removed_reads_ahead() {
    let (names, now) = (NamesAhead::default(), Instant::now());
    for _ in 0..REMOVALS_MIN {
        assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
        names.removed(THREAD, DIR, now);
    }
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Ask(8));
    remove(&names, UNKNOWN_THREAD, DIR, now);
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
    remove(&names, THREAD, DIR, now + 50 * MS);
    assert_eq!(names.next(THREAD, DIR, &name(2), now + 50 * MS), Next::Ask(8));
}

#[test]
fn names_are_known_for_a_second_after_they_were_asked_for() {
    let (names, now) = answered();
    for step in 0..50 {
        names.removed(THREAD, DIR, now + step * 20 * MS);
    }
    assert_eq!(known(&names, 1, now + TTL - MS), Some(1));
    assert_eq!(known(&names, 2, now + TTL), None);
}

/// A thread that asks for a later name does not remove names in their order, and gets nothing.
#[test]
fn only_the_next_names_are_known() {
    let (names, now) = asked();
    names.answered(THREAD, DIR, entries(1..100).iter());
    assert_eq!(known(&names, 3, now), Some(3));
    assert_eq!(names.next(THREAD, DIR, &name(2), now), Next::Alone, "it was left out");
    assert_eq!(known(&names, 19, now), Some(19));
    assert_eq!(names.next(THREAD, DIR, &name(36), now), Next::Alone);
    (2..MISSES_MAX).for_each(|_| assert_eq!(known(&names, 36, now), None));
    assert_eq!(known(&names, 20, now), Some(20));
    (0..MISSES_MAX).for_each(|_| assert_eq!(known(&names, 37, now), None));
    assert_eq!(known(&names, 21, now), None, "these are not in the order of listing");
}

#[test]
fn what_was_told_since_is_dropped() {
    let (names, now) = answered();
    names.name_told(DIR, &name(2));
    names.file_told(InodeId(1003));
    names.name_told(InodeId(6), &name(1));
    assert_eq!(known(&names, 1, now), Some(1));
    assert_eq!(known(&names, 2, now), None);
    let (names, now) = answered();
    names.file_told(InodeId(1003));
    assert_eq!(known(&names, 3, now), None);
    // Also while the answer is on its way, which may be from before.
    let (names, now) = asked();
    names.name_told(DIR, &name(1));
    names.file_told(InodeId(1002));
    names.answered(THREAD, DIR, entries(1..8).iter());
    assert_eq!(names.lock()[0].ahead.len(), 5);
    assert_eq!(known(&names, 3, now), Some(3));
}

#[test]
fn an_answer_that_much_has_overtaken_is_not_kept() {
    let (names, now) = asked();
    (0..=TOLD_MAX as u64).for_each(|number| names.file_told(InodeId(number)));
    names.answered(THREAD, DIR, entries(1..8).iter());
    assert_eq!(names.next(THREAD, DIR, &name(1), now), Next::Ask(8), "which says nothing of the thread");
}

#[test]
fn directories_and_files_with_several_names_are_left_out() {
    let (names, now) = asked();
    let mut some = entries(1..5);
    some[0].attr.links = 2;
    some[1].attr.kind = FileKind::Directory;
    some[2].attr.kind = FileKind::Symlink;
    names.answered(THREAD, DIR, some.iter());
    assert_eq!(names.lock()[0].ahead.len(), 1);
    assert_eq!(known(&names, 4, now), Some(4));
}

#[test]
fn as_many_names_are_read_as_are_used() {
    let (names, now) = (NamesAhead::default(), Instant::now());
    remove(&names, THREAD, DIR, now);
    let mut from = 0;
    let mut read = |count: u32, used: u64| {
        assert_eq!(names.next(THREAD, DIR, &name(from), now), Next::Ask(count));
        names.answered(THREAD, DIR, entries(from + 1..from + u64::from(count)).iter());
        (from + 1..=from + used).for_each(|number| assert_eq!(known(&names, number, now), Some(number)));
        from += u64::from(count);
    };
    [8, 16, 32, 64, 128, 192, 192].into_iter().for_each(|count| read(count, u64::from(count) - 1));
    // Half of them, or fewer. None: it goes by another order, or another thread removes them.
    let few = [(192, 40), (96, 40), (48, 23), (24, 22), (48, 0), (24, 0), (12, 3), (8, 0)];
    for (count, used) in few {
        read(count, used);
        names.lock()[0].asked -= TTL;
    }
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
    // It is tried again after some more removals, seldom.
    (0..97).for_each(|_| names.removed(THREAD, DIR, now));
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Ask(8));
    names.answered(THREAD, DIR, entries(1..8).iter());
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
    for _ in 0..25 {
        names.removed(THREAD, DIR, now);
        assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Alone);
    }
    names.removed(THREAD, DIR, now);
    assert_eq!(names.next(THREAD, DIR, &name(0), now), Next::Ask(8));
    // So is a thread that begins in another directory.
    remove(&names, THREAD, InodeId(6), now);
    assert_eq!(names.next(THREAD, InodeId(6), &name(0), now), Next::Ask(8));
    // Nothing of an answer may be kept: all have several names, for example.
    let (names, now) = asked();
    names.answered(THREAD, DIR, [].iter());
    assert_eq!(names.next(THREAD, DIR, &name(1), now), Next::Alone);
}

/// Other threads are about to remove the names that are left.
#[test]
fn more_names_are_read_when_few_are_left() {
    let (names, now) = answered();
    assert_eq!(known(&names, 2, now), Some(2));
    assert_eq!(names.next(THREAD, DIR, &name(20), now), Next::Ask(16));
    assert!(names.lock()[0].ahead.is_empty(), "they would be believed for too long");
    names.answered(THREAD, DIR, entries(21..40).iter());
    assert_eq!(known(&names, 23, now), Some(23));
    assert_eq!(names.next(THREAD, DIR, &name(60), now), Next::Alone, "too many are left");
    assert_eq!(known(&names, 24, now), Some(24));
    assert_eq!(names.next(THREAD, DIR, &name(60), now), Next::Ask(32));
}

#[test]
fn names_that_others_remove_are_no_waste() {
    let (names, now) = answered();
    assert_eq!(known(&names, 4, now), Some(4));
    [5, 6].iter().for_each(|number| names.name_told(DIR, &name(*number)));
    names.lock()[0].asked -= TTL;
    assert_eq!(names.next(THREAD, DIR, &name(8), now), Next::Ask(16));
}

#[test]
fn threads_share_what_was_read() {
    let next = |names: &NamesAhead, thread, number, now| match names.next(thread, DIR, &name(number), now) {
        Next::Known(attr, left) => (Some(attr.inode.0 - 1000), left),
        _ => (None, Duration::ZERO),
    };
    let (names, now) = asked();
    names.answered(THREAD, DIR, entries(1..100).iter());
    let later = now + 10 * MS;
    [THREAD + 1, THREAD + 2].iter().for_each(|thread| remove(&names, *thread, DIR, later));
    assert_eq!(next(&names, THREAD + 1, 50, later), (Some(50), TTL - 10 * MS), "not for longer");
    names.name_told(DIR, &name(52));
    assert_eq!(next(&names, THREAD + 1, 51, later), (Some(51), TTL - 10 * MS));
    assert_eq!(next(&names, THREAD + 1, 52, later), (None, Duration::ZERO));
    assert_eq!(next(&names, THREAD, 52, later), (None, Duration::ZERO));
    // Not one of the next of anybody; of another directory; too old.
    let (far, _) = next(&names, THREAD + 2, 99, later);
    assert_eq!(far, Some(99), "it is not far for the second thread");
    assert_eq!(
        names.next(THREAD, DIR, &name(98), later),
        Next::Alone,
        "too far for a thread that has names of its own"
    );
    remove(&names, THREAD + 3, InodeId(6), later);
    assert_eq!(names.next(THREAD + 3, InodeId(6), &name(60), later), Next::Ask(8));
    names.lock().iter_mut().for_each(|streak| streak.asked -= TTL);
    assert_eq!(names.next(THREAD + 2, DIR, &name(60), later), Next::Ask(16));
}

/// A thread that is overtaken has not shown that it goes by another order.
#[test]
fn a_thread_that_others_overtake_goes_on_with_their_names() {
    let (names, now) = answered();
    remove(&names, THREAD + 1, DIR, now);
    for number in 1..8 {
        assert!(matches!(names.next(THREAD + 1, DIR, &name(number), now), Next::Known(..)));
        names.name_told(DIR, &name(number));
    }
    assert_eq!(names.next(THREAD + 1, DIR, &name(8), now), Next::Ask(16));
    names.answered(THREAD + 1, DIR, entries(9..24).iter());
    assert_eq!(known(&names, 9, now), Some(9));
    (10..24).for_each(|number| names.name_told(DIR, &name(number)));
    assert_eq!(names.next(THREAD, DIR, &name(30), now), Next::Ask(16));
}

/// A thread that looks for another name before each removal has no use for these names, and stops reading ahead.
#[test]
fn names_that_do_not_exist_are_asked_for_alone_in_the_end() {
    let (names, now) = (NamesAhead::default(), Instant::now());
    let asked = (0..100).filter(|step| {
        remove(&names, THREAD, DIR, now);
        let Next::Ask(count) = names.next(THREAD, DIR, &name(*step), now) else { return false };
        match step % 2 {
            0 => names.answered(THREAD, DIR, entries(step + 2..step + 1 + u64::from(count)).iter()),
            _ => names.failed(THREAD, DIR),
        }
        true
    });
    assert!(asked.count() < 60);
}

#[test]
fn threads_are_bounded() {
    let (names, now) = answered();
    for other in 1..=2 * THREADS_MAX as u32 {
        remove(&names, THREAD + other, DIR, now + PAUSE_MAX);
    }
    assert_eq!(names.lock().len(), THREADS_MAX);
    assert_eq!(known(&names, 1, now + PAUSE_MAX), Some(1), "the first threads stay");
    remove(&names, THREAD, DIR, now + 2 * TTL);
    assert_eq!(names.lock().len(), 1, "the others have ended");
}

const NAMES_OF_SERVICE: usize = 3;

/// A service with some names, changed behind the mount's back too, and what the kernel was told of it.
#[derive(Default)]
struct Service {
    /// The file of each name, and what there was before.
    files: [Vec<Option<u64>>; NAMES_OF_SERVICE],
    /// How often each file has changed.
    changes: Vec<u64>,
    /// What the kernel was told of each name last, as an index of `files`; and of each file.
    name_told: [usize; NAMES_OF_SERVICE],
    changes_told: Vec<u64>,
}

impl Service {
    fn file(&self, name: usize) -> Option<u64> {
        self.files[name].last().copied().flatten()
    }

    fn make(&mut self, name: usize) {
        self.changes.push(0);
        self.changes_told.push(0);
        self.files[name].push(Some(self.changes.len() as u64 - 1));
    }

    fn rename(&mut self, from: usize, to: usize) {
        let file = self.file(from);
        self.files[from].push(None);
        self.files[to].push(file);
    }

    fn list(&self) -> Vec<DirEntry> {
        let listed = (0..NAMES_OF_SERVICE).filter_map(|at| {
            let file = self.file(at)?;
            Some(DirEntry { name: name(at as u64), ..entry(file, self.changes[file as usize]) })
        });
        listed.collect()
    }

    /// An answer says to the kernel that a name is of this file.
    fn tell(&mut self, at: usize, attr: &Attr) {
        let file = attr.inode.0 - 1000;
        let since = self.name_told[at];
        let known = self.files[at][since..].iter().position(|found| *found == Some(file));
        self.name_told[at] = since + known.expect("no name that it was before");
        assert!(attr.changes >= self.changes_told[file as usize], "no attributes from before");
        self.changes_told[file as usize] = attr.changes;
    }
}

/// Requests overtake each other. No answer to the kernel is older than an earlier one.
#[test]
fn nothing_goes_back() {
    let steps = proptest::collection::vec((0u8..9, 0..NAMES_OF_SERVICE, 0usize..6), 1..200);
    proptest::proptest!(|(steps in steps)| {
        let (names, now) = (NamesAhead::default(), Instant::now());
        let mut service = Service::default();
        (0..NAMES_OF_SERVICE).for_each(|name| service.make(name));
        let threads = [1u32, 2];
        // The listing that is on its way to each thread: taken at some time after the request.
        let mut waiting: [Option<Option<Vec<DirEntry>>>; 2] = [None, None];
        for (what, at, more) in steps {
            let thread = more % 2;
            match what {
                // Another mount.
                0 => match more {
                    0 => service.files[at].push(None),
                    1 => service.make(at),
                    _ => service.rename(at, more % NAMES_OF_SERVICE),
                },
                1 => if let Some(file) = service.file(at) { service.changes[file as usize] += 1 },
                // This mount changes a name, or looks it up; it changes a file, or asks for its attributes.
                2 => {
                    if more == 0 { service.files[at].push(None) }
                    service.name_told[at] = service.files[at].len() - 1;
                    names.name_told(DIR, &name(at as u64));
                    if let Some(file) = service.file(at) {
                        service.changes_told[file as usize] = service.changes[file as usize];
                        names.file_told(InodeId(1000 + file));
                    }
                }
                3 => if let Some(file) = service.file(at) {
                    service.changes[file as usize] += u64::from(more == 0);
                    service.changes_told[file as usize] = service.changes[file as usize];
                    names.file_told(InodeId(1000 + file));
                },
                4 => if let Some(Some(listed)) = waiting[thread].take_if(|listed| listed.is_some()) {
                    match more {
                        0 | 1 => names.failed(threads[thread], DIR),
                        _ => names.answered(threads[thread], DIR, listed.iter()),
                    }
                },
                5 => if let Some(listed) = &mut waiting[thread] { *listed = Some(service.list()) },
                _ => if waiting[thread].is_none() {
                    match names.next(threads[thread], DIR, &name(at as u64), now) {
                        Next::Known(attr, _) => {
                            service.tell(at, &attr);
                            names.name_told(DIR, &name(at as u64));
                            names.file_told(attr.inode);
                        }
                        Next::Ask(_) => waiting[thread] = Some(None),
                        // A thread that reads names which nobody uses must remove some again first.
                        Next::Alone => {
                            names.removed(threads[thread], InodeId(6), now);
                            remove(&names, threads[thread], DIR, now);
                        }
                    }
                },
            }
        }
    });
}
