//! What a run has shown.

use crate::time::{Time, US};

/// The step from a class of times to the next one: a thousandth.
const STEP: f64 = 1.001;

/// What was seen while it counted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The time that counted, in seconds of the model.
    pub seconds: f64,
    /// Payload that each client has received, in bytes.
    pub bytes: Vec<u64>,
    /// What each client's link could have carried, in bytes.
    pub possible: f64,
    /// How long records took.
    pub records: Spread,
    /// The time in which the records of all tasks of a client can come at best, in microseconds.
    pub ideal_us: f64,
    /// Packets that the ports towards hosts dropped.
    pub dropped_last: u64,
    /// Packets that the ports between switches dropped.
    pub dropped_inside: u64,
    /// Packets that were sent once more.
    pub repeated: u64,
    /// How often a sender waited for a timeout of TCP.
    pub timeouts: u64,
    /// The window of each client at the end, in bytes; none if there is none.
    pub windows: Vec<u64>,
    /// How often a window became smaller, in the whole run.
    pub cuts: u64,
    /// Packets times ports that they passed, in the whole run.
    pub hops: u64,
    /// Events of the whole run.
    pub events: u64,
}

impl Report {
    /// Received over what the links of the clients can carry.
    pub fn share(&self) -> f64 {
        let all: u64 = self.bytes.iter().sum();
        all as f64 / (self.possible * self.bytes.len() as f64).max(1.0)
    }

    /// Received by all clients, in MB/s (10^6 bytes).
    pub fn rate(&self) -> f64 {
        let all: u64 = self.bytes.iter().sum();
        all as f64 / 1e6 / self.seconds.max(1e-9)
    }

    /// How equal the clients' shares are ([`types::fairness`]).
    pub fn fairness(&self) -> f64 {
        types::fairness(self.bytes.iter().map(|bytes| *bytes as f64))
    }

    /// The median of the clients' windows, in bytes.
    pub fn window(&self) -> Option<u64> {
        let mut windows = self.windows.clone();
        windows.sort_unstable();
        windows.get(windows.len() / 2).copied()
    }
}

/// How long things took, in classes of times. Its memory does not grow with their number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Spread {
    /// How many were of each class.
    counts: Vec<u64>,
    count: u64,
}

impl Spread {
    pub(crate) fn add(&mut self, us: f64) {
        let class = (us.max(1.0).ln() / STEP.ln()) as usize;
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.count += 1;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that a share of them stayed below, in microseconds, to half a thousandth; `share`: 0 to 1. 0 if there
    /// were none.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let rank = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let class = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        class.map_or(0.0, |class| STEP.powf(class as f64 + 0.5))
    }
}

/// What has been counted up to a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) at: Time,
    pub(crate) bytes: Vec<u64>,
    pub(crate) dropped_last: u64,
    pub(crate) dropped_inside: u64,
    pub(crate) repeated: u64,
    pub(crate) timeouts: u64,
}

/// Picoseconds as microseconds.
pub(crate) fn us(time: Time) -> f64 {
    time as f64 / US as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_fairness() {
        let report = Report {
            seconds: 2.0,
            bytes: vec![30, 10],
            possible: 40.0,
            windows: vec![3, 1, 2],
            ..Report::default()
        };
        assert_eq!((report.share(), report.rate(), report.window()), (0.5, 2e-5, Some(2)));
        assert!((report.fairness() - 0.8).abs() < 1e-9);
        let empty = Report::default();
        assert_eq!((empty.fairness(), empty.window()), (1.0, None));
    }

    #[test]
    fn percentiles_are_those_of_a_list_to_a_thousandth() {
        let mut spread = Spread::default();
        assert_eq!((spread.count(), spread.percentile_us(0.5)), (0, 0.0));
        for us in (1..=100_000).rev() {
            spread.add(f64::from(us) * 10.0);
        }
        for share in [0.0001, 0.5, 0.99, 0.999, 1.0] {
            let (said, exact) = (spread.percentile_us(share), share * 1e6);
            assert!((said / exact - 1.0).abs() < 1e-3, "{said} instead of {exact}");
        }
        assert!(spread.counts.len() < 14_000, "{}", spread.counts.len());
    }
}
