//! Finds the dispatch priorities while the device works.
//!
//! The present priorities are compared with others, one change at a time, in blocks of four windows: present, other, other,
//! present. So what changes slowly affects both alike. A window begins when the requests that waited before it are gone.
//!
//! ```text
//!  round: every priority that would change the order, for reads and for writes
//!     trial: blocks until the other is surely better (taken), surely not (left), or much worse (left at once)
//!  a round without a change ---> from now on a trial uses at most a twentieth of the windows
//!  other sizes, or another share of reads ---> a new round
//! ```
//!
//! A priority is better if reads and writes, counted and in bytes, are served faster: the mean of the logarithms of the four
//! rates. Small requests first raise the count and lower the bytes, and large ones first the other way round, for a while;
//! the mean hardly changes by either. All is in integers, so it is the same on every machine.

use super::item::Item;
use super::parameters::{DISPATCH_PRIORITY_MAX, Parameters};
use super::request::Direction;

/// Priorities that are tried, those that differ most first.
const TRIED: [u64; 9] =
    [DISPATCH_PRIORITY_MAX, 0, 64 << 10, 512 << 10, 16 << 10, 256 << 10, 1 << 20, 128 << 10, 4 << 10];
/// A window has at least so many requests and microseconds, and at most so many microseconds.
const REQUESTS_MIN: u64 = 512;
const WINDOW_MIN_US: u64 = 20_000;
const WINDOW_MAX_US: u64 = 2_000_000;
/// Logarithms are of 2, in so many parts.
const PARTS: i64 = 4096;
/// A change must gain so much, about 1 %; a loss of a twelfth ends a trial at once.
const GAIN_MIN: i64 = PARTS / 64;
const LOSS_MAX: i64 = PARTS / 8;
/// A difference is sure if it is so many times its standard error, of which this is the least.
const SURE_TIMES: i64 = 3;
const ERROR_MIN: i64 = PARTS / 256;
/// Blocks of a trial.
const BLOCKS_MIN: i64 = 2;
const BLOCKS_MAX: i64 = 6;
/// After a round without a change a trial follows so many windows of rest for each window with another priority.
const REST: u64 = 19;
/// Of a hundred dispatches so many must leave others waiting; otherwise the order does not matter.
const CHOICES_PERCENT: u64 = 30;
/// The load is another one if the mean size has doubled or halved, or the percentage of reads has changed by so much, in
/// so many windows in a row.
const SIZE_CHANGE: i64 = PARTS;
const SHARE_CHANGE: i64 = 25;
const CHANGED_WINDOWS: u32 = 3;
/// Latencies are counted by powers of 2: those of requests that somebody waits for.
const BUCKETS: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Auto {
    /// In bytes, of reads and writes.
    priorities: [u64; 2],
    trial: Option<Trial>,
    window: Window,
    /// What is still to be tried in this round: a direction, and an index of `TRIED`.
    round: Vec<(usize, usize)>,
    /// Whether this round has changed anything, and whether one has not.
    changed: bool,
    settled: bool,
    /// Windows until the next trial.
    rest: u64,
    /// Bytes of the smallest and the largest requests of each direction lately.
    sizes: [(u64, u64); 2],
    load: Option<Load>,
}

/// Which requests come: the logarithm of the mean size, and the percentage of reads.
#[derive(Clone, Copy, Debug)]
struct Load {
    size: i64,
    reads: i64,
    /// Windows in a row that were different.
    different: u32,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    direction: usize,
    priority: u64,
    /// Windows of the block that are over.
    at: usize,
    /// Of the block: how much better the other was so far, times two.
    block: i64,
    /// Of the last window with the present priorities: the 99th percentile of latencies, or how long the oldest request
    /// has waited; and whether requests expired.
    usual: (usize, bool),
    blocks: i64,
    sum: i64,
    squares: i64,
}

impl Trial {
    /// Whether the other one is in use: the second and third window of a block.
    fn is_other(&self) -> bool {
        matches!(self.at, 1 | 2)
    }

    /// The mean difference, and how far off it may be.
    fn found(&self) -> (i64, i64) {
        let mean = self.sum / self.blocks.max(1);
        let variance = (self.squares / self.blocks.max(1) - mean * mean).max(0);
        let error = (variance / (self.blocks - 1).max(1)).isqrt().max(ERROR_MIN);
        (mean, SURE_TIMES * error)
    }
}

/// How a trial stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Open,
    Taken,
    Left,
}

#[derive(Clone, Debug)]
struct Window {
    /// Whether what waited before it is gone.
    measures: bool,
    begun_us: Option<u64>,
    /// Requests that must be complete before it ends, or before it measures.
    goal: u64,
    done: u64,
    requests: [u64; 2],
    bytes: [u64; 2],
    /// Dispatches, and those that left others waiting.
    dispatches: u64,
    choices: u64,
    expired: bool,
    latencies: [u64; BUCKETS],
}

impl Window {
    fn new(measures: bool, begun_us: Option<u64>, goal: u64) -> Window {
        let (requests, bytes, latencies) = ([0; 2], [0; 2], [0; BUCKETS]);
        Window {
            measures,
            begun_us,
            goal,
            done: 0,
            requests,
            bytes,
            dispatches: 0,
            choices: 0,
            expired: false,
            latencies,
        }
    }

    /// How well requests were served, in parts of a power of 2.
    fn utility(&self, time_us: u64) -> i64 {
        let rate = |count: u64| log2(count) - log2(time_us);
        let served = (0..2).filter(|side| self.requests[*side] > 0);
        let (mut sum, mut count) = (0, 0);
        for side in served {
            sum += rate(self.requests[side]) + rate(self.bytes[side]);
            count += 2;
        }
        sum / count.max(1)
    }

    /// The power of 2 of the 99th percentile of latencies.
    fn p99(&self) -> usize {
        let beyond = self.latencies.iter().sum::<u64>() / 100;
        let mut seen = 0;
        let above = |count: &u64| {
            seen += count;
            seen > beyond
        };
        self.latencies.iter().rposition(above).unwrap_or(0)
    }
}

/// The power of 2 of a latency.
fn bucket(now_us: u64, since_us: u64) -> usize {
    (now_us.saturating_sub(since_us).max(1).ilog2() as usize).min(BUCKETS - 1)
}

/// The logarithm of 2 in parts; of 0 that of 1.
fn log2(number: u64) -> i64 {
    let number = number.max(1);
    let whole = number.ilog2();
    // Between 1 and 2, with 31 bits behind the point; each squaring gives one bit of the logarithm.
    let mut rest = if whole > 31 { number >> (whole - 31) } else { number << (31 - whole) };
    let mut log = i64::from(whole);
    for _ in 0..PARTS.ilog2() {
        rest = (rest * rest) >> 31;
        let bit = rest >> 32;
        rest >>= bit;
        log = (log << 1) | bit as i64;
    }
    log
}

impl Auto {
    pub(super) fn new(parameters: &Parameters) -> Auto {
        Auto {
            priorities: [parameters.read_priority, parameters.write_priority],
            trial: None,
            window: Window::new(false, None, REQUESTS_MIN),
            round: Vec::new(),
            changed: true,
            settled: false,
            rest: 0,
            sizes: [(u64::MAX, 0); 2],
            load: None,
        }
    }

    pub(super) fn priority(&self, direction: Direction) -> u64 {
        let side = direction as usize;
        match &self.trial {
            Some(trial) if trial.is_other() && trial.direction == side => trial.priority,
            _ => self.priorities[side],
        }
    }

    /// Something was dispatched. `others_wait`: it was chosen among others; `expired`: not by size.
    pub(super) fn dispatched(&mut self, others_wait: bool, expired: bool) {
        self.window.dispatches += 1;
        self.window.choices += u64::from(others_wait);
        self.window.expired |= expired;
    }

    /// An item is complete, and `waiting` others wait, the first of them since `oldest_us`.
    pub(super) fn completed(&mut self, now_us: u64, item: &Item, waiting: u64, oldest_us: u64) {
        let side = item.direction() as usize;
        let size = &mut self.sizes[side];
        *size = (size.0.min(item.length), size.1.max(item.length));
        let window = &mut self.window;
        let begun_us = *window.begun_us.get_or_insert(now_us);
        window.done += 1;
        window.requests[side] += u64::from(item.count);
        window.bytes[side] += item.length;
        if item.waited_for {
            window.latencies[bucket(now_us, item.added_us)] += 1;
        }
        let time_us = now_us.saturating_sub(begun_us);
        if time_us < WINDOW_MAX_US && (window.done < window.goal || time_us < WINDOW_MIN_US) {
            return;
        }
        if !window.measures {
            self.window = Window::new(true, Some(now_us), REQUESTS_MIN.max(2 * waiting));
            return;
        }
        let last = std::mem::replace(&mut self.window, Window::new(false, None, 0));
        self.judge(&last, time_us, bucket(now_us, oldest_us));
        // Only after a change others have to go first.
        let changes = self.trial.is_some_and(|trial| matches!(trial.at, 1 | 3)) || self.trial.is_none();
        self.window = match changes {
            true => Window::new(false, None, waiting),
            false => Window::new(true, Some(now_us), REQUESTS_MIN.max(2 * waiting)),
        };
    }

    /// A window is over.
    fn judge(&mut self, window: &Window, time_us: u64, oldest: usize) {
        if self.is_other_load(window) {
            // What was known is of no use any more.
            (self.trial, self.rest, self.settled, self.changed) = (None, 0, false, true);
            self.round.clear();
        }
        if window.choices * 100 < window.dispatches * CHOICES_PERCENT {
            self.trial = None;
            return;
        }
        let Some(mut trial) = self.trial else {
            if self.rest > 0 {
                self.rest -= 1;
            } else {
                self.begin_trial();
            }
            return;
        };
        match self.verdict(&mut trial, window, time_us, oldest) {
            Verdict::Open => self.trial = Some(trial),
            verdict => {
                if verdict == Verdict::Taken {
                    self.priorities[trial.direction] = trial.priority;
                    (self.changed, self.settled) = (true, false);
                }
                let used = 2 * trial.blocks as u64 + trial.at.min(2) as u64;
                self.rest = if self.settled { REST * used } else { 0 };
                self.trial = None;
            }
        }
    }

    fn verdict(&self, trial: &mut Trial, window: &Window, time_us: u64, oldest: usize) -> Verdict {
        let (utility, p99) = (window.utility(time_us), window.p99());
        if trial.is_other() {
            // Latencies that have doubled, or requests that expire, are not bought by any gain.
            if p99 > trial.usual.0 + 1 || window.expired && !trial.usual.1 {
                trial.at += 1;
                return Verdict::Left;
            }
            trial.block += utility;
        } else {
            // Who still waits has not been counted: its turn comes when the order changes.
            trial.usual = (p99.max(oldest), window.expired);
            trial.block -= utility;
        }
        trial.at += 1;
        if trial.at < 4 {
            return Verdict::Open;
        }
        let better = trial.block / 2;
        (trial.at, trial.block) = (0, 0);
        trial.blocks += 1;
        trial.sum += better;
        trial.squares += better * better;
        let (mean, error) = trial.found();
        if mean < -LOSS_MAX {
            return Verdict::Left;
        }
        if trial.blocks < BLOCKS_MIN {
            return Verdict::Open;
        }
        if mean > GAIN_MIN && mean > error {
            return Verdict::Taken;
        }
        if mean + error < GAIN_MIN || trial.blocks == BLOCKS_MAX { Verdict::Left } else { Verdict::Open }
    }

    /// Begins the next trial of the round, or the next round.
    fn begin_trial(&mut self) {
        if self.round.is_empty() {
            self.settled = !self.changed;
            self.changed = false;
            let all = (0..TRIED.len()).rev().flat_map(|at| [(1, at), (0, at)]);
            self.round.extend(all);
        }
        while let Some((direction, at)) = self.round.pop() {
            let priority = TRIED[at];
            if self.differs(direction, priority) {
                self.trial = Some(Trial {
                    direction,
                    priority,
                    at: 0,
                    block: 0,
                    usual: (0, false),
                    blocks: 0,
                    sum: 0,
                    squares: 0,
                });
                return;
            }
        }
        self.sizes = [(u64::MAX, 0); 2];
    }

    /// Whether another priority would order requests of the sizes that come in another way.
    fn differs(&self, direction: usize, priority: u64) -> bool {
        let ((least, most), present) = (self.sizes[direction], self.priorities[direction]);
        let is_above = |priority: u64| priority >= most;
        let is_below = |priority: u64| priority < least;
        least < most
            && priority != present
            && !(is_above(priority) && is_above(present))
            && !(is_below(priority) && is_below(present))
    }

    /// Whether the load has been another one than before for some windows.
    fn is_other_load(&mut self, window: &Window) -> bool {
        let requests: u64 = window.requests.iter().sum();
        let bytes: u64 = window.bytes.iter().sum();
        let size = log2(bytes / requests.max(1));
        let reads = (window.requests[0] * 100 / requests.max(1)) as i64;
        let Some(load) = &mut self.load else {
            self.load = Some(Load { size, reads, different: 0 });
            return false;
        };
        if (size - load.size).abs() < SIZE_CHANGE && (reads - load.reads).abs() < SHARE_CHANGE {
            load.size += (size - load.size) / 8;
            load.reads += (reads - load.reads) / 8;
            load.different = 0;
            return false;
        }
        load.different += 1;
        if load.different < CHANGED_WINDOWS {
            return false;
        }
        self.load = Some(Load { size, reads, different: 0 });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_exact_to_a_part() {
        for number in [0, 1, 2, 3, 1000, 4096, 123_456_789, u64::MAX] {
            let exact = (number.max(1) as f64).log2() * PARTS as f64;
            assert!((log2(number) as f64 - exact).abs() <= 1.0, "{number}: {} {exact}", log2(number));
        }
    }
}
