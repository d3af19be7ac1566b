//! The measurement of a network, from the receiver's side.
//!
//! 1. *Round trips*: answers of no bytes, from each brick.
//! 2. *The knee*: 1, 2, 4 and more bricks send 128 KiB each at once, again and again, as for reads of stripes. From some number
//!    on, packets are lost and a round waits for a timeout of TCP.
//! 3. *Bursts*: all bricks together send a burst, which becomes larger until packets are lost. If it comes much faster than
//!    the last port sends, the largest one that arrives whole is about what this port can keep. The slower it comes, the more
//!    of it has left before its end, and the larger it may be; how fast it comes nobody can see from here.
//!
//! A packet that was sent once more counts if its sender does not learn within [`SETTLE_US`] that it had arrived.

use futures_util::future::join_all;
use serde_json::{Value, json};
use types::limits::NET_PROBE_MAX;
use types::messages::session::NetProbe;
use types::{BrickId, Buf, Epoch};
use world::CallError;

use crate::remote::Remote;

/// Most bricks that are asked.
const BRICKS_MAX: usize = 32;
/// Round trips to each brick.
const TRIPS: usize = 20;
/// What each brick sends in a round, in bytes: a unit of a stripe.
const UNIT: u32 = 128 << 10;
/// Rounds with a number of bricks, and the longest time for them, in microseconds.
const ROUNDS: usize = 20;
const ROUNDS_US: u64 = 1_000_000;
/// The smallest burst of all bricks together, in bytes.
const BURST_MIN: u32 = 16 << 10;
/// The largest one.
const BURST_MAX: u32 = 4 << 20;
/// Bursts of one size.
const BURSTS: usize = 5;
/// After so many microseconds no larger burst is tried.
const BURSTS_US: u64 = 15_000_000;
/// Packets that may be lost by chance in the bursts of one size.
const CHANCE: u64 = 2;
/// How long senders may take to learn what had arrived, in microseconds.
const SETTLE_US: u64 = 20_000;
/// How long an answer may take, in microseconds: some timeouts of TCP.
const PATIENCE_US: u64 = 10_000_000;
/// A round that takes so many times as long as the rate allows has waited for a timeout.
const LATE: f64 = 3.0;
/// Least time that such a wait takes, in microseconds: the shortest timeout of Linux's TCP.
const TIMEOUT_US: u64 = 200_000;

/// Round trips to a brick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Trip {
    pub(super) brick: BrickId,
    pub(super) address: String,
    pub(super) least_us: u64,
    pub(super) median_us: u64,
}

/// What came from some bricks at once.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) senders: usize,
    /// The best of all rounds, in 10^6 bytes per second.
    pub(super) mb_per_s: f64,
    /// The time of a round.
    pub(super) median_us: u64,
    pub(super) slowest_us: u64,
    pub(super) resent: u64,
}

/// What was found.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Probed {
    pub(super) trips: Vec<Trip>,
    pub(super) steps: Vec<Step>,
    /// The largest burst that arrived whole, and the smallest that did not, in bytes.
    pub(super) whole: u32,
    pub(super) broken: Option<u32>,
}

/// A measurement.
pub(super) struct Probe<'r> {
    remote: &'r Remote,
    bricks: Vec<(BrickId, String)>,
    /// Packets that each has sent once more so far.
    resent: Vec<u64>,
}

type Failed = (BrickId, CallError);

impl<'r> Probe<'r> {
    /// Measures the ways from some bricks; of many, some all over them.
    pub(super) fn new(remote: &'r Remote, mut bricks: Vec<(BrickId, String)>) -> Probe<'r> {
        let every = bricks.len().div_ceil(BRICKS_MAX).max(1);
        bricks = bricks.into_iter().step_by(every).collect();
        let resent = vec![0; bricks.len()];
        Probe { remote, bricks, resent }
    }

    pub(super) fn run(mut self) -> Result<Probed, Failed> {
        let trips = self.trips()?;
        let steps = self.steps()?;
        let (whole, broken) = self.bursts()?;
        Ok(Probed { trips, steps, whole, broken })
    }

    fn trips(&mut self) -> Result<Vec<Trip>, Failed> {
        let mut times = vec![Vec::new(); self.bricks.len()];
        // The first one connects.
        self.settle(self.bricks.len())?;
        for _ in 0..TRIPS {
            for (at, times) in times.iter_mut().enumerate() {
                let from = self.remote.now();
                self.ask(&[at], 0)?;
                times.push(self.remote.now() - from);
            }
        }
        let trip = |((brick, address), mut times): (&(BrickId, String), Vec<u64>)| {
            times.sort_unstable();
            let (least_us, median_us) = (times[0], times[times.len() / 2]);
            Trip { brick: *brick, address: address.clone(), least_us, median_us }
        };
        Ok(self.bricks.iter().zip(times).map(trip).collect())
    }

    fn steps(&mut self) -> Result<Vec<Step>, Failed> {
        let all = self.bricks.len();
        let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < all).collect();
        counts.push(all);
        counts.into_iter().map(|senders| self.step(senders)).collect()
    }

    fn step(&mut self, senders: usize) -> Result<Step, Failed> {
        let (who, begin) = ((0..senders).collect::<Vec<_>>(), self.remote.now());
        let mut times = Vec::new();
        while times.len() < ROUNDS && self.remote.now() < begin + ROUNDS_US {
            let from = self.remote.now();
            self.ask(&who, UNIT)?;
            times.push(self.remote.now() - from);
        }
        times.sort_unstable();
        let resent = self.settle(senders)?;
        let best = senders as f64 * f64::from(UNIT) / times[0].max(1) as f64;
        let (median_us, slowest_us) = (times[times.len() / 2], times[times.len() - 1]);
        Ok(Step { senders, mb_per_s: best, median_us, slowest_us, resent })
    }

    fn bursts(&mut self) -> Result<(u32, Option<u32>), Failed> {
        let who: Vec<usize> = (0..self.bricks.len()).collect();
        let most = BURST_MAX.min((who.len() * NET_PROBE_MAX) as u32);
        let (mut whole, mut size) = (0, BURST_MIN);
        let end = self.remote.now() + BURSTS_US;
        while size <= most && self.remote.now() < end {
            let mut lost = 0;
            for _ in 0..BURSTS {
                self.ask(&who, size / who.len() as u32)?;
                lost += self.settle(who.len())?;
            }
            if lost > CHANCE {
                return Ok((whole, Some(size)));
            }
            whole = size;
            // Half as much again and a third more, by turns: two steps double it.
            size = if size.is_power_of_two() { size / 2 * 3 } else { size / 3 * 4 };
        }
        Ok((whole, None))
    }

    /// How many packets the first bricks have lost since this was asked last.
    fn settle(&mut self, bricks: usize) -> Result<u64, Failed> {
        self.remote.pause(SETTLE_US);
        let who: Vec<usize> = (0..bricks).collect();
        let counts = self.ask(&who, 0)?;
        let mut lost = 0;
        for (before, now) in self.resent.iter_mut().zip(counts) {
            lost += now.saturating_sub(*before);
            *before = now.max(*before);
        }
        Ok(lost)
    }

    /// Asks some bricks at once for so many bytes each. Returns how many packets each has sent once more so far.
    fn ask(&self, who: &[usize], bytes: u32) -> Result<Vec<u64>, Failed> {
        let one = async |at: usize| {
            let (brick, address) = &self.bricks[at];
            let (peers, request) = (self.remote.peers(), NetProbe { bytes });
            let asked = peers.call_within(PATIENCE_US, address, Epoch::default(), &request, Buf::empty());
            match asked.await {
                Ok((probed, payload)) if payload.len() == bytes as usize => Ok(u64::from(probed.resent)),
                Ok(_) => Err((*brick, CallError::BadReply)),
                Err(error) => Err((*brick, error)),
            }
        };
        self.remote.block_on(join_all(who.iter().map(|at| one(*at)))).into_iter().collect()
    }
}

impl Probed {
    /// The best rate, in 10^6 bytes per second.
    fn rate(&self) -> f64 {
        self.steps.iter().map(|step| step.mb_per_s).fold(0.0, f64::max)
    }

    /// The least number of bricks whose rounds wait for timeouts.
    fn knee(&self) -> Option<&Step> {
        self.steps.iter().find(|step| {
            let fair = step.senders as f64 * f64::from(UNIT) / self.rate().max(1e-9);
            step.resent > 0 && step.slowest_us >= TIMEOUT_US && step.slowest_us as f64 > LATE * fair
        })
    }

    /// What it means, in sentences.
    pub(super) fn findings(&self) -> Vec<String> {
        let all = self.steps.last().map_or(0, |step| step.senders);
        let mut findings = vec![match self.knee() {
            Some(step) => format!(
                "when {} bricks send at once, packets are lost and reads wait for timeouts: {} ms instead of {:.1}",
                step.senders,
                step.slowest_us / 1000,
                step.senders as f64 * f64::from(UNIT) / self.rate() / 1e3
            ),
            None => format!("{all} bricks may send at once: no read waits for a timeout"),
        }];
        findings.push(match self.broken {
            Some(broken) if self.whole == 0 => {
                format!("even bursts of {} KiB from {all} bricks lose packets", broken >> 10)
            }
            Some(broken) => format!(
                "bursts of {} KiB from {all} bricks arrive whole, of {} KiB lose packets",
                self.whole >> 10,
                broken >> 10
            ),
            None => format!("bursts of {} KiB from {all} bricks arrive whole", self.whole >> 10),
        });
        if self.broken.is_some() {
            findings.push(
                "mounts find out by themselves how much may be on its way (`--receive-window auto`)"
                    .to_owned(),
            );
        }
        findings
    }

    /// All as JSON; `here`: how many bricks are on this machine.
    pub(super) fn to_json(&self, here: usize) -> Value {
        let trip = |trip: &Trip| {
            json!({
                "brick": trip.brick.0, "address": trip.address, "round_trip_us": trip.median_us,
                "least_us": trip.least_us,
            })
        };
        let step = |step: &Step| {
            json!({
                "senders": step.senders, "mb_per_s": step.mb_per_s, "median_us": step.median_us,
                "slowest_us": step.slowest_us, "resent_packets": step.resent,
            })
        };
        json!({
            "bricks": self.trips.iter().map(trip).collect::<Vec<_>>(),
            "here": here,
            "mb_per_s": self.rate(),
            "steps": self.steps.iter().map(step).collect::<Vec<_>>(),
            "knee_senders": self.knee().map(|step| step.senders),
            "burst_whole_bytes": self.whole,
            "burst_broken_bytes": self.broken,
            "findings": self.findings(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(senders: usize, median_us: u64, slowest_us: u64, resent: u64) -> Step {
        let mb_per_s = senders as f64 * f64::from(UNIT) / median_us as f64;
        Step { senders, mb_per_s, median_us, slowest_us, resent }
    }

    fn probed(steps: Vec<Step>, whole: u32, broken: Option<u32>) -> Probed {
        Probed { trips: Vec::new(), steps, whole, broken }
    }

    #[test]
    fn a_shallow_port_is_told_by_its_knee_and_its_bursts() {
        let steps = vec![step(1, 1100, 1400, 0), step(2, 2200, 2600, 1), step(4, 4400, 212_000, 30)];
        let found = probed(steps, 48 << 10, Some(64 << 10));
        assert_eq!(found.knee().map(|step| step.senders), Some(4));
        let said = found.findings().join("; ");
        for words in
            ["when 4 bricks", "212 ms instead of 4.4", "of 64 KiB lose packets", "receive-window auto"]
        {
            assert!(said.contains(words), "{words}: {said}");
        }
        let document = found.to_json(1);
        assert_eq!(
            (&document["knee_senders"], &document["burst_broken_bytes"]),
            (&json!(4), &json!(64 << 10))
        );
    }

    #[test]
    fn a_network_that_loses_nothing_has_neither() {
        // Late once, but nothing was lost: a busy machine.
        let steps = vec![step(1, 1100, 1400, 0), step(2, 2200, 300_000, 0)];
        let found = probed(steps, BURST_MAX, None);
        assert_eq!(found.knee(), None);
        assert_eq!(found.findings().len(), 2);
        assert!(found.to_json(0)["burst_broken_bytes"].is_null());
    }
}
