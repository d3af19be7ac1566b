//! The congestion window: Cubic (RFC 9438), and the end of slow start by the spacing and the delay of acknowledgements
//! (HyStart; Ha and Rhee, 2011; RFC 9406). Windows are in segments.

use crate::time::{MS, SECOND, Time};

/// The window after a loss over the window before.
const BETA: f64 = 0.7;
/// How steep the cubic curve is, in segments per second^3.
const C: f64 = 0.4;
/// Smaller windows do not look for the end of slow start.
const HYSTART_WINDOW_MIN: f64 = 16.0;
/// Acknowledgements within this time belong to one train.
const TRAIN_GAP: Time = 2 * MS;
/// By so much a round trip must have become longer: an eighth, within these bounds.
const DELAY_MIN: Time = 4 * MS;
const DELAY_MAX: Time = 16 * MS;
/// Samples of a round before its delay counts.
const SAMPLES: u32 = 8;

/// How the window grows and shrinks.
#[derive(Debug)]
pub(crate) struct Cubic {
    /// The window at the last loss.
    max: f64,
    /// When the present curve began.
    epoch: Option<Time>,
    /// The window at the middle of the curve, and how long after its begin that is, in seconds.
    origin: f64,
    middle_s: f64,
    /// What Reno would have.
    reno: f64,
    /// The least round trip.
    least: Time,
    /// Slow start has been ended by what was seen.
    found: bool,
    round: Round,
}

/// A round trip's worth of acknowledgements in slow start.
#[derive(Debug, Default)]
struct Round {
    /// It ends with this segment.
    end: u32,
    begin: Time,
    last: Time,
    least: Option<Time>,
    samples: u32,
}

impl Cubic {
    /// For a connection whose least round trip is known.
    pub(crate) fn new(least: Time) -> Cubic {
        Cubic {
            max: 0.0,
            epoch: None,
            origin: 0.0,
            middle_s: 0.0,
            reno: 0.0,
            least,
            found: false,
            round: Round::default(),
        }
    }

    /// The threshold after a loss at this window. The curve begins anew.
    pub(crate) fn reduce(&mut self, window: f64) -> f64 {
        self.epoch = None;
        // Leaves some room to flows that have come since.
        self.max = if window < self.max { window * (1.0 + BETA) / 2.0 } else { window };
        (window * BETA).max(2.0)
    }

    /// Forgets everything but the round trip: after a timeout.
    pub(crate) fn reset(&mut self) {
        *self = Cubic::new(self.least);
    }

    /// The window after so many segments were acknowledged, when slow start is over.
    pub(crate) fn grow(&mut self, now: Time, window: f64, acked: f64) -> f64 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno = window;
            self.origin = self.max.max(window);
            self.middle_s = ((self.origin - window) / C).cbrt();
            now
        });
        let after_s = (now - epoch + self.least) as f64 / SECOND as f64;
        let target = self.origin + C * (after_s - self.middle_s).powi(3);
        let steps = (target.clamp(window, window * 1.5) - window) / window * acked;
        // At least a hundredth of a segment per window, as where the curve is flat.
        let cubic = window + steps.max(acked / window / 100.0);
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * acked / self.reno.max(1.0);
        cubic.max(self.reno)
    }

    /// A segment's round trip, in slow start. Returns whether slow start should end. `una` and `next`: the oldest
    /// segment that is not acknowledged, and the next one to send.
    pub(crate) fn sample(&mut self, now: Time, una: u32, next: u32, window: f64, round_trip: Time) -> bool {
        self.least = self.least.min(round_trip);
        if una >= self.round.end {
            self.round = Round { end: next, begin: now, last: now, least: None, samples: 0 };
        }
        if self.found || window < HYSTART_WINDOW_MIN {
            return false;
        }
        let round = &mut self.round;
        if now - round.last <= TRAIN_GAP {
            round.last = now;
            // The train is as long as the way one way: the pipe is full.
            self.found = now - round.begin > self.least / 2;
        }
        let least = round.least.map_or(round_trip, |least| least.min(round_trip));
        round.least = Some(least);
        round.samples += 1;
        let longer = (self.least / 8).clamp(DELAY_MIN, DELAY_MAX);
        self.found |= round.samples > SAMPLES && least > self.least + longer;
        self.found
    }

    /// Learns the least round trip when slow start is over.
    pub(crate) fn learn(&mut self, round_trip: Time) {
        self.least = self.least.min(round_trip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US;

    #[test]
    fn the_window_returns_to_where_it_lost_and_goes_on() {
        let mut cubic = Cubic::new(MS);
        let before = 1000.0;
        let mut window = cubic.reduce(before);
        assert!((window - 700.0).abs() < 1e-9);
        // A round trip of 100 ms, one window acknowledged in each.
        let mut now = 0;
        let mut at = Vec::new();
        for _ in 0..200 {
            now += 100 * MS;
            window = cubic.grow(now, window, window);
            at.push(window);
        }
        // cbrt(300 / 0.4) s = 9.1 s to the middle of the curve.
        assert!((at[90] - before).abs() < 20.0, "{}", at[90]);
        assert!(at[60] > 985.0 && at[199] > 1100.0, "{} {}", at[60], at[199]);
        assert!(at.is_sorted());
    }

    #[test]
    fn over_short_ways_it_grows_as_reno_does() {
        let mut cubic = Cubic::new(MS);
        let mut window = cubic.reduce(20.0);
        for round in 1..=100 {
            window = cubic.grow(round * 200 * US, window, window);
        }
        // 0.53 segments for each round trip.
        assert!(window > 14.0 + 40.0 && window < 14.0 + 60.0, "{window}");
    }

    #[test]
    fn slow_start_ends_when_acknowledgements_fill_half_of_a_round_trip() {
        let mut cubic = Cubic::new(MS);
        assert!(!cubic.sample(0, 0, 10, 10.0, MS));
        let found: Vec<bool> =
            (1..8u32).map(|at| cubic.sample(u64::from(at) * 100 * US, at, 30, 20.0, MS)).collect();
        assert_eq!(found, [false, false, false, false, false, true, false], "it is said once");
        cubic.reset();
        assert!(!cubic.sample(20 * MS, 40, 60, 20.0, 9 * MS));
    }
}
