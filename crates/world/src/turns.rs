//! A turn is one poll of one task, which has its thread alone meanwhile. In the real world every turn is timed.
//!
//! A long turn delays everything else on its thread, including the beats that renew a lease. The longest turn of each
//! kind of task and minute is kept for an hour ([`longest`]), and a turn of [`TURN_LONG_US`] or more is logged.
//!
//! Turns of a thread follow one another, so the end of one is the start of the next, and each costs one reading of
//! the clock. The thread's CPU time needs a system call, so it is read at most every 20 ms, and after turns that are
//! kept. So the recorded CPU time of a turn is an upper bound, at most a little too high.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use rustix::time::{ClockId, clock_gettime};
use types::messages::LongTurn;

use crate::World;

/// A turn of this many microseconds is logged.
pub const TURN_LONG_US: u64 = 200_000;
/// A turn with this many microseconds of CPU time is a fault: leases of 3 s are renewed every second.
pub const TURN_MAX_US: u64 = 500_000;

/// Shorter turns are not kept, in microseconds.
const FLOOR_US: u64 = 1_000;
/// Age from which the reading of the thread's CPU time is renewed, in microseconds.
const CPU_LOOK_US: u64 = 20_000;
const MINUTE_US: u64 = 60_000_000;
/// Minutes for which the longest turns are kept.
const MINUTES_KEPT: u64 = 60;
/// Log lines per kind of task and minute; one more for the first turn above [`TURN_MAX_US`].
const LINES_MAX: u32 = 3;

/// Time of a turn, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    wall: u64,
    /// Upper bound of the thread's CPU time in it.
    cpu: u64,
}

/// One minute of one kind of task.
#[derive(Debug)]
struct Minute {
    number: u64,
    longest: Taken,
    lines: u32,
    fault_told: bool,
}

/// The kinds of tasks of a process. Their number is bounded: each is a name in the source.
struct Kinds(BTreeMap<&'static str, VecDeque<Minute>>);

static KINDS: Mutex<Kinds> = Mutex::new(Kinds(BTreeMap::new()));

/// A part of a task that has its own name.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    us: u64,
}

/// The current turn of a thread.
struct Thread {
    /// When the last turn ended, or the thread stopped waiting.
    since: Cell<u64>,
    /// The longest part of this turn.
    part: Cell<Part>,
    /// When the thread's CPU time was last read, and its value.
    looked: Cell<(u64, u64)>,
}

const NO_PART: Part = Part { name: "", us: 0 };

thread_local! {
    static THREAD: Thread =
        const { Thread { since: Cell::new(0), part: Cell::new(NO_PART), looked: Cell::new((0, 0)) } };
}

fn us(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

fn now() -> u64 {
    us(ClockId::Monotonic)
}

impl Thread {
    /// A turn begins, after the thread has waited.
    fn begin(&self) -> u64 {
        let now = now();
        self.since.set(now);
        self.look(now);
        now
    }

    /// Reads the thread's CPU time if the last reading is old.
    fn look(&self, now: u64) {
        if now - self.looked.get().0 >= CPU_LOOK_US {
            self.looked.set((now, us(ClockId::ThreadCPUTime)));
        }
    }

    /// A turn of the task `name` ends.
    fn end(&self, name: &'static str) {
        let now = now();
        let wall = now - self.since.replace(now);
        if wall >= FLOOR_US {
            self.keep(name, wall, now);
        }
        self.part.set(NO_PART);
        self.look(now);
    }

    #[cold]
    fn keep(&self, name: &'static str, wall: u64, now: u64) {
        let (_, before) = self.looked.get();
        let own = us(ClockId::ThreadCPUTime);
        self.looked.set((now, own));
        let taken = Taken { wall, cpu: wall.min(own - before) };
        // A part that took at least half of the turn gives the turn its name.
        let part = self.part.get();
        let name = if part.us * 2 >= wall { part.name } else { name };
        let tell = KINDS.lock().unwrap_or_else(PoisonError::into_inner).keep(name, taken, now);
        if tell {
            tracing::warn!("{}", line(name, taken));
        }
    }
}

/// The log line for a long turn. The black-box tests and the bench search for it.
fn line(name: &str, taken: Taken) -> String {
    let (wall, cpu) = (taken.wall / 1000, taken.cpu / 1000);
    format!("a turn of the task `{name}` took {wall} ms, {cpu} ms of them its thread's own work")
}

impl Kinds {
    /// Records a turn that ended at `now`; true if it must be logged.
    fn keep(&mut self, name: &'static str, taken: Taken, now: u64) -> bool {
        let number = now / MINUTE_US;
        let minutes = self.0.entry(name).or_default();
        if minutes.back().is_none_or(|last| last.number < number) {
            minutes.push_back(Minute { number, longest: taken, lines: 0, fault_told: false });
            forget_old(minutes, number);
        }
        let Some(minute) = minutes.back_mut() else { return false };
        if minute.longest.wall < taken.wall {
            minute.longest = taken;
        }
        let fault = taken.cpu >= TURN_MAX_US && !minute.fault_told;
        let tell = taken.wall >= TURN_LONG_US && (fault || minute.lines < LINES_MAX);
        minute.fault_told |= fault;
        minute.lines += u32::from(tell);
        tell
    }

    fn longest(&mut self, now: u64) -> Vec<LongTurn> {
        let number = now / MINUTE_US;
        let mut turns = Vec::new();
        for (name, minutes) in &mut self.0 {
            forget_old(minutes, number);
            let Some(minute) = minutes.iter().max_by_key(|minute| minute.longest.wall) else { continue };
            turns.push(LongTurn {
                task: (*name).to_owned(),
                wall_us: minute.longest.wall,
                cpu_us: minute.longest.cpu,
                age_us: now.saturating_sub(minute.number * MINUTE_US),
            });
        }
        turns.sort_by_key(|turn| std::cmp::Reverse(turn.wall_us));
        turns
    }
}

fn forget_old(minutes: &mut VecDeque<Minute>, number: u64) {
    while minutes.front().is_some_and(|first| first.number + MINUTES_KEPT <= number) {
        minutes.pop_front();
    }
}

/// The longest turn of each kind of task of this process in the last hour, the longest first; none below a
/// millisecond.
pub fn longest() -> Vec<LongTurn> {
    KINDS.lock().unwrap_or_else(PoisonError::into_inner).longest(now())
}

/// The thread continues after it may have waited. Returns the time, in microseconds.
pub(crate) fn begin() -> u64 {
    THREAD.with(Thread::begin)
}

/// When the last turn of this thread ended, or the thread stopped waiting, in microseconds. Reads no clock.
pub(crate) fn since() -> u64 {
    THREAD.with(|thread| thread.since.get())
}

/// A turn of the task `name` has ended.
pub(crate) fn end(name: &'static str) {
    THREAD.with(|thread| thread.end(name));
}

/// Does `work` as a part of the current turn. If it takes the greater part, the turn counts as one of `name`.
pub(crate) fn part<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let start = now();
    let made = work();
    let us = now() - start;
    THREAD.with(|thread| {
        if thread.part.get().us < us {
            thread.part.set(Part { name, us });
        }
    });
    made
}

/// A task whose turns are timed.
pub(crate) struct Timed<F> {
    name: &'static str,
    future: F,
}

impl<F> Timed<F> {
    pub(crate) fn new(name: &'static str, future: F) -> Timed<F> {
        Timed { name, future }
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Timed<F>>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let name = self.name;
        // SAFETY: `future` is pinned structurally: it is never moved out, and is dropped in place.
        let future = unsafe { self.map_unchecked_mut(|timed| &mut timed.future) };
        let polled = future.poll(cx);
        end(name);
        polled
    }
}

/// A part of a task with its own name.
pub(crate) struct Named<F> {
    world: World,
    name: &'static str,
    future: F,
}

impl<F> Named<F> {
    pub(crate) fn new(world: World, name: &'static str, future: F) -> Named<F> {
        Named { world, name, future }
    }
}

impl<F: Future> Future for Named<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Named<F>>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned structurally: it is never moved out, and is dropped in place; the rest is only
        // read.
        let (world, name, future) = unsafe {
            let Named { world, name, future } = self.get_unchecked_mut();
            (world, name, Pin::new_unchecked(future))
        };
        world.part(name, || future.poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    fn taken(wall: u64, cpu: u64) -> Taken {
        Taken { wall: wall * MS, cpu: cpu * MS }
    }

    fn of(kinds: &mut Kinds, now: u64) -> Vec<(String, u64, u64)> {
        kinds.longest(now).into_iter().map(|turn| (turn.task, turn.wall_us / MS, turn.age_us)).collect()
    }

    #[test]
    fn the_longest_of_each_kind_is_kept_for_an_hour() {
        let mut kinds = Kinds(BTreeMap::new());
        kinds.keep("beat", taken(2, 1), 10);
        kinds.keep("beat", taken(9, 1), 20);
        kinds.keep("beat", taken(3, 1), 30 * MINUTE_US);
        kinds.keep("fold", taken(20, 1), 30 * MINUTE_US);
        let found = of(&mut kinds, 31 * MINUTE_US);
        assert_eq!(found, [("fold".into(), 20, MINUTE_US), ("beat".into(), 9, 31 * MINUTE_US)]);
        assert_eq!(of(&mut kinds, 60 * MINUTE_US)[1], ("beat".into(), 3, 30 * MINUTE_US));
        assert_eq!(of(&mut kinds, 90 * MINUTE_US), []);
        for minute in 100..1_000 {
            kinds.keep("beat", taken(2, 1), minute * MINUTE_US);
        }
        assert!(kinds.0["beat"].len() as u64 <= MINUTES_KEPT, "memory is bounded");
    }

    #[test]
    fn the_log_tells_of_some_and_of_the_first_fault() {
        let mut kinds = Kinds(BTreeMap::new());
        let mut told = |wall, cpu, now| kinds.keep("beat", taken(wall, cpu), now);
        assert!(!told(199, 199, 0));
        assert!([told(200, 0, 1), told(201, 0, 1), told(900, 499, 1)].iter().all(|told| *told));
        assert!(!told(900, 499, 1), "three a minute are enough");
        assert!(told(501, 500, 1), "the first fault is told all the same");
        assert!(!told(900, 900, 1));
        assert!(told(200, 0, MINUTE_US));
    }

    #[test]
    fn the_log_line_names_task_and_times() {
        let text = line("request Purge", taken(812, 790));
        assert_eq!(
            text,
            "a turn of the task `request Purge` took 812 ms, 790 ms of them its thread's own work"
        );
    }
}
