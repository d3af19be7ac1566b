//! What was seen.

use pace::device::Counters;

use crate::time::{SECOND, Time};

/// Buckets of one power of 2.
const STEPS: u64 = 32;

/// How long things took: counted in buckets, each 3 % wider than the one before it.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    sum: Time,
}

impl Latencies {
    pub(crate) fn note(&mut self, time: Time) {
        let bucket = bucket_of(time);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += time;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, in microseconds; 0 without any.
    pub fn mean_us(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64 / 1e3
    }

    /// What this part of them did not exceed, in microseconds, within 3 %.
    pub fn percentile_us(&self, part: f64) -> f64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return end_of(bucket) as f64 / 1e3;
            }
        }
        0.0
    }
}

fn bucket_of(time: Time) -> usize {
    if time < STEPS {
        return time as usize;
    }
    let shift = u64::from(time.ilog2() - STEPS.ilog2());
    ((shift * STEPS) + (time >> shift)) as usize
}

/// The largest time of a bucket.
fn end_of(bucket: usize) -> Time {
    let bucket = bucket as u64;
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    (((bucket % STEPS + STEPS) + 1) << shift) - 1
}

/// One kind of operations of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Bytes of those that ended while it counted.
    pub bytes: u64,
    /// How long each took, from its first request to its end.
    pub latencies: Latencies,
}

/// A run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Seconds that counted.
    pub seconds: f64,
    /// The operations, by kind.
    pub kinds: Vec<Kind>,
    /// How long requests took from when they were added; merged ones count once each.
    pub requests: Latencies,
    /// Requests in all, before anything counted included.
    pub submitted: u64,
    /// What the scheduler did, the same.
    pub counters: Counters,
    /// Bytes that the device read and wrote while it counted.
    pub device_bytes: u64,
    /// The part of the time in which the link was busy.
    pub busy: f64,
    /// The dispatch priorities at the end: of reads and of writes, in bytes.
    pub priorities: [u64; 2],
}

impl Report {
    /// Bytes per second of the operations of a kind, or of all.
    pub fn bandwidth(&self, kind: Option<usize>) -> f64 {
        let of = |at: usize| kind.is_none_or(|kind| kind == at);
        let bytes = self.kinds.iter().enumerate().filter(|(at, _)| of(*at)).map(|(_, kind)| kind.bytes);
        bytes.sum::<u64>() as f64 / self.seconds
    }

    /// Operations of a kind per second.
    pub fn rate(&self, kind: usize) -> f64 {
        self.kinds.get(kind).map_or(0.0, |kind| kind.latencies.count() as f64 / self.seconds)
    }

    /// The mean time of an operation of a kind, or of all, in microseconds.
    pub fn latency_us(&self, kind: Option<usize>) -> f64 {
        let of = |at: usize| kind.is_none_or(|kind| kind == at);
        let chosen = || self.kinds.iter().enumerate().filter(|(at, _)| of(*at)).map(|(_, kind)| kind);
        let count: u64 = chosen().map(|kind| kind.latencies.count).sum();
        let sum: Time = chosen().map(|kind| kind.latencies.sum).sum();
        sum as f64 / count.max(1) as f64 / 1e3
    }
}

pub(crate) fn seconds(time: Time) -> f64 {
    time as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_three_percent() {
        let mut latencies = Latencies::default();
        (1..=1000u64).for_each(|us| latencies.note(us * 1000));
        assert_eq!((latencies.count(), latencies.mean_us()), (1000, 500.5));
        for (part, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = latencies.percentile_us(part);
            assert!((us..us * 1.04).contains(&found), "{part}: {found}");
        }
        assert_eq!(Latencies::default().percentile_us(0.5), 0.0);
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_behind_it() {
        for time in (0..100_000).chain([1 << 40, (1 << 41) - 1]) {
            let (end, before) = (end_of(bucket_of(time)), bucket_of(time).checked_sub(1).map(end_of));
            assert!(end >= time && before.is_none_or(|before| before < time), "{time}");
        }
    }
}
