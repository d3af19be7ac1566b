//! What may be sent, and when something must be sent again.

use std::collections::VecDeque;

use super::cubic::Cubic;
use super::recovery::Newest;
use crate::packet::{Ack, PAYLOAD};
use crate::time::{MS, Time};

/// The window at the begin, in segments (RFC 6928).
const WINDOW_START: f64 = 10.0;
/// Least time of a timeout beyond the round trip. Linux: `TCP_RTO_MIN`.
const TIMEOUT_MIN: Time = 200 * MS;
/// A timeout doubles so many times at most.
const BACKOFF_MAX: u32 = 8;
/// How long the receiver may hold an acknowledgement back, as the sender sees it.
const HELD_BACK: Time = 200 * MS;
/// Least time of a probe beyond two round trips: two ticks of the kernel's clock.
const PROBE_MIN: Time = 2 * MS;

/// What the sender does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nothing is missing.
    Open,
    /// Lost segments are sent again; the window shrinks meanwhile.
    Repair,
    /// A timeout has run out: everything begins anew with one segment.
    Restart,
}

/// A segment that is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    bytes: u16,
    /// Grows with every packet that is sent: which of two left later.
    pub(super) order: u64,
    pub(super) sent: Time,
    /// It has come, behind a hole.
    pub(super) is_there: bool,
    pub(super) is_lost: bool,
    /// It was lost and is on its way again.
    pub(super) is_repeated: bool,
    /// It was sent more than once.
    pub(super) is_old: bool,
}

/// The rate while losses are repaired: in proportion to what arrives (RFC 6937).
#[derive(Debug, Default)]
pub(super) struct Proportion {
    before: f64,
    delivered: f64,
    sent: f64,
}

/// A packet that leaves: its segment, and bytes of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaving {
    pub(crate) segment: u32,
    pub(crate) bytes: u32,
}

/// The sending end of a stream.
///
/// # Invariants
/// The first `sent` of the segments have been sent. `there`, `lost` and `repeated` count them by their marks.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) segments: VecDeque<Segment>,
    /// The number of the first of them.
    pub(super) una: u32,
    pub(super) sent: usize,
    pub(super) there: usize,
    pub(super) lost: usize,
    pub(super) repeated: usize,
    order: u64,
    last: Time,
    pub(super) window: f64,
    threshold: f64,
    pub(super) stage: Stage,
    /// Repair or restart ends when everything before this segment has come.
    high: u32,
    proportion: Proportion,
    cubic: Cubic,
    round_trip: Time,
    variance: Time,
    /// The least that was measured.
    pub(super) least: Time,
    backoff: u32,
    /// The packet that left last of all that have arrived.
    pub(super) newest: Newest,
    timeout_at: Time,
    probe_at: Option<Time>,
    /// When a segment counts as lost unless it is acknowledged.
    pub(super) late_at: Option<Time>,
    /// A probe is under way: where the stream ended then, and whether it was a segment once more.
    probe: Option<(u32, bool)>,
    must_probe: bool,
    /// The window was the limit up to this segment; most segments on their way.
    limited: Option<u32>,
    most: usize,
    most_until: u32,
    twice: u32,
    resent: u64,
    timeouts: u64,
}

impl Sender {
    /// A connection that has just been made. `round_trip`: what its handshake took.
    pub(crate) fn new(round_trip: Time) -> Sender {
        Sender {
            segments: VecDeque::new(),
            una: 0,
            sent: 0,
            there: 0,
            lost: 0,
            repeated: 0,
            order: 0,
            last: 0,
            window: WINDOW_START,
            threshold: f64::INFINITY,
            stage: Stage::Open,
            high: 0,
            proportion: Proportion::default(),
            cubic: Cubic::new(round_trip),
            round_trip,
            variance: round_trip / 2,
            least: round_trip,
            backoff: 0,
            newest: Newest::default(),
            timeout_at: 0,
            probe_at: None,
            late_at: None,
            probe: None,
            must_probe: false,
            limited: None,
            most: 0,
            most_until: 0,
            twice: 0,
            resent: 0,
            timeouts: 0,
        }
    }

    /// Takes bytes. Returns the segment after their last one.
    pub(crate) fn write(&mut self, mut bytes: u32) -> u32 {
        while bytes > 0 {
            let part = bytes.min(PAYLOAD);
            bytes -= part;
            self.segments.push_back(Segment {
                bytes: part as u16,
                order: 0,
                sent: 0,
                is_there: false,
                is_lost: false,
                is_repeated: false,
                is_old: false,
            });
        }
        self.una + self.segments.len() as u32
    }

    /// The next segment that was never sent.
    fn next(&self) -> u32 {
        self.una + self.sent as u32
    }

    /// Segments on their way, as far as is known.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent - self.there - self.lost + self.repeated
    }

    /// Packets that were sent once more, without those that had arrived: what a kernel tells of a connection.
    pub(crate) fn resent(&self) -> u32 {
        self.resent.saturating_sub(u64::from(self.twice)) as u32
    }

    /// Packets that were sent once more.
    pub(crate) fn repeats(&self) -> u64 {
        self.resent
    }

    /// How often a timeout ran out.
    pub(crate) fn timeouts(&self) -> u64 {
        self.timeouts
    }

    fn timeout(&self) -> Time {
        (self.round_trip + (4 * self.variance).max(TIMEOUT_MIN)) << self.backoff.min(BACKOFF_MAX)
    }

    /// The next packet that may leave. Call it until there is none.
    pub(crate) fn leave(&mut self, now: Time) -> Option<Leaving> {
        if self.sent == 0 && !self.segments.is_empty() {
            self.rest(now);
        }
        let was_empty = self.sent == 0;
        let at = if std::mem::take(&mut self.must_probe) {
            let has_new = self.sent < self.segments.len();
            let at = if has_new { self.sent } else { self.sent.checked_sub(1)? };
            self.probe = Some((self.una + (at + 1).max(self.sent) as u32, !has_new));
            at
        } else if self.in_flight() >= self.window as usize {
            if self.sent < self.segments.len() {
                self.limited = Some(self.next());
            }
            return None;
        } else if self.lost > self.repeated {
            let is_next = |segment: &Segment| segment.is_lost && !segment.is_repeated;
            self.segments.iter().take(self.sent).position(is_next)?
        } else if self.sent < self.segments.len() {
            self.sent
        } else {
            return None;
        };
        let is_first = at == 0;
        let leaving = self.mark(now, at);
        if was_empty || (is_first && self.segments[0].is_old) {
            self.timeout_at = now + self.timeout();
        }
        self.plan_probe(now);
        Some(leaving)
    }

    /// A segment leaves.
    fn mark(&mut self, now: Time, at: usize) -> Leaving {
        self.order += 1;
        let segment = &mut self.segments[at];
        (segment.order, segment.sent) = (self.order, now);
        if at < self.sent {
            self.resent += 1;
            segment.is_old = true;
            if segment.is_lost && !segment.is_repeated {
                segment.is_repeated = true;
                self.repeated += 1;
            }
        } else {
            self.sent += 1;
        }
        self.last = now;
        self.proportion.sent += 1.0;
        let bytes = u32::from(self.segments[at].bytes);
        if self.una >= self.most_until || self.sent > self.most {
            (self.most, self.most_until) = (self.sent, self.next());
        }
        Leaving { segment: self.una + at as u32, bytes }
    }

    /// After a rest the window is not known any more: it halves with each timeout that has passed (RFC 5681, 4.1).
    fn rest(&mut self, now: Time) {
        let timeout = self.timeout();
        let mut idle = now.saturating_sub(self.last);
        if idle > timeout {
            self.threshold = self.threshold.max(self.window * 0.75);
        }
        while idle > timeout && self.window > WINDOW_START {
            idle -= timeout;
            self.window = (self.window / 2.0).max(WINDOW_START);
        }
    }

    /// The receiver has said what it has.
    pub(crate) fn acked(&mut self, now: Time, ack: &Ack) {
        let (before, twice) = (self.una, self.twice);
        self.twice = twice.max(ack.twice);
        let flight = self.in_flight();
        let arrived = self.take(now, ack);
        if let Some(round_trip) = arrived.round_trip {
            self.measure(round_trip);
            let (una, next) = (self.una, self.next());
            if self.window < self.threshold && self.stage == Stage::Open {
                if self.cubic.sample(now, una, next, self.window, round_trip) {
                    self.threshold = self.window;
                }
            } else {
                self.cubic.learn(round_trip);
            }
        }
        let is_advanced = self.una > before;
        if is_advanced {
            self.backoff = 0;
            self.timeout_at = now + self.timeout();
        }
        self.settle_probe(ack.twice > twice);
        let lost = self.detect(now);
        if self.stage != Stage::Open && self.una >= self.high {
            if self.stage == Stage::Repair {
                self.window = self.threshold;
            }
            self.stage = Stage::Open;
        }
        if lost > 0 && self.stage == Stage::Open {
            self.begin_repair();
        }
        let delivered = arrived.segments as f64;
        match self.stage {
            Stage::Repair => self.repair(delivered, is_advanced && lost == 0),
            Stage::Restart => self.grow(now, delivered),
            Stage::Open if self.was_limited(flight) => self.grow(now, delivered),
            Stage::Open => {}
        }
        self.plan_probe(now);
    }

    fn measure(&mut self, sample: Time) {
        self.least = self.least.min(sample);
        self.variance = (self.variance * 3 + self.round_trip.abs_diff(sample)) / 4;
        self.round_trip = (self.round_trip * 7 + sample) / 8;
    }

    /// Whether the window has kept something from leaving.
    fn was_limited(&self, flight: usize) -> bool {
        let by_window = self.limited.is_some_and(|until| self.una <= until);
        by_window || (self.window < self.threshold && self.window < 2.0 * self.most.max(flight) as f64)
    }

    fn grow(&mut self, now: Time, delivered: f64) {
        let slow = delivered.min((self.threshold - self.window).max(0.0));
        self.window += slow;
        if delivered > slow {
            self.window = self.cubic.grow(now, self.window, delivered - slow);
        }
    }

    fn begin_repair(&mut self) {
        self.proportion = Proportion { before: self.window, delivered: 0.0, sent: 0.0 };
        self.threshold = self.cubic.reduce(self.window);
        self.stage = Stage::Repair;
        self.high = self.next();
        self.probe = None;
    }

    /// The window while losses are repaired: sends in proportion to what arrives, and no more than the threshold at
    /// once.
    fn repair(&mut self, delivered: f64, is_good: bool) {
        if delivered == 0.0 {
            return;
        }
        self.proportion.delivered += delivered;
        let Proportion { before, delivered: all, sent } = self.proportion;
        let flight = self.in_flight() as f64;
        let room = self.threshold - flight;
        let more = if room < 0.0 {
            (self.threshold * all / before.max(1.0)).ceil() - sent
        } else {
            let owed = (all - sent).max(delivered) + f64::from(u8::from(is_good));
            owed.min(room.floor())
        };
        // The first segment is sent again at once.
        let least = if sent == 0.0 { 1.0 } else { 0.0 };
        self.window = flight + more.max(least);
    }

    /// A probe has been answered, or has not.
    fn settle_probe(&mut self, came_twice: bool) {
        let Some((end, is_repeat)) = self.probe else { return };
        if came_twice {
            self.probe = None;
        } else if self.una >= end {
            self.probe = None;
            if is_repeat && self.stage == Stage::Open {
                // It has repaired a loss.
                self.threshold = self.cubic.reduce(self.window);
                self.window = self.threshold;
            }
        }
    }

    /// Plans a probe, which finds out that the tail was lost (RFC 8985, 7).
    fn plan_probe(&mut self, now: Time) {
        let is_quiet = self.stage == Stage::Open && self.there == 0 && self.lost == 0;
        self.probe_at = (is_quiet && self.sent > 0 && self.probe.is_none()).then(|| {
            let patience = if self.sent == 1 { HELD_BACK } else { PROBE_MIN };
            // Where a timeout would come first, a probe takes its place.
            (now + 2 * self.round_trip + patience).min(self.timeout_at)
        });
    }

    /// When [`Sender::fire`] should be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.sent == 0 {
            return None;
        }
        let first = self.late_at.into_iter().chain(self.probe_at).min();
        Some(first.map_or(self.timeout_at, |at| at.min(self.timeout_at)))
    }

    /// A timer may have run out.
    pub(crate) fn fire(&mut self, now: Time) {
        if self.sent == 0 {
            return;
        }
        let is_probe_due = self.probe_at.is_some_and(|at| at <= now);
        if self.timeout_at <= now && !is_probe_due {
            self.restart(now);
        } else if self.late_at.is_some_and(|at| at <= now) {
            let lost = self.detect(now);
            if lost > 0 && self.stage == Stage::Open {
                self.begin_repair();
                self.window = self.in_flight() as f64 + 1.0;
            } else if lost > 0 && self.stage == Stage::Repair {
                self.window = self.window.max(self.in_flight() as f64 + 1.0);
            }
        } else if is_probe_due {
            self.probe_at = None;
            self.must_probe = true;
            self.timeout_at = now + self.timeout();
        }
    }

    /// A timeout: everything that has not come is lost, and one segment is sent.
    fn restart(&mut self, now: Time) {
        self.timeouts += 1;
        if self.stage != Stage::Restart || self.una >= self.high {
            self.threshold = self.cubic.reduce(self.window);
        }
        self.cubic.reset();
        for segment in self.segments.iter_mut().take(self.sent) {
            segment.is_lost = !segment.is_there;
            segment.is_repeated = false;
        }
        (self.lost, self.repeated) = (self.sent - self.there, 0);
        self.window = 1.0;
        self.stage = Stage::Restart;
        self.high = self.next();
        (self.probe, self.probe_at, self.late_at) = (None, None, None);
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        self.timeout_at = now + self.timeout();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
