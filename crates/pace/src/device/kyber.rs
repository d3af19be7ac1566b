//! As they came within reads and within writes, which take turns; fewer in flight while latencies are above targets.
//!
//! Source: block/kyber-iosched.c of Linux, without its domains for discards and others.

use std::collections::BTreeSet;

use super::item::{Item, Items};
use super::parameters::Parameters;
use super::request::Direction;

/// Most requests in flight, and of a batch, for reads and writes.
const DEPTHS: [u64; 2] = [256, 128];
const BATCHES: [u64; 2] = [16, 8];
/// A bucket of a histogram has a quarter of the target; the last one has all that is longer.
const BUCKETS: usize = 8;
const TARGET_BUCKETS: u64 = 4;
/// Latencies are looked at so often, in microseconds.
const LOOK_US: u64 = 100_000;
/// A percentile counts with so many samples, or when the first is so old, in microseconds.
const SAMPLES_MIN: u64 = 500;
const OLD_US: u64 = 1_000_000;
/// Write-back has at most so many percent of the device's queue.
const ASYNC_PERCENT: u64 = 75;

#[derive(Clone, Debug)]
pub(super) struct Kyber {
    domains: [Domain; 2],
    /// The domain whose batch it is, and its requests so far.
    at: usize,
    batched: u64,
    looked_us: u64,
    /// Requests of write-back in flight.
    async_in_flight: u64,
}

#[derive(Clone, Debug)]
struct Domain {
    waiting: BTreeSet<(u64, u32)>,
    in_flight: u64,
    depth: u64,
    total: Histogram,
    device: Histogram,
    /// The bucket of the 99th percentile of the total latency, until it was used.
    p99: Option<usize>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Histogram {
    buckets: [u64; BUCKETS],
    samples: u64,
    first_us: u64,
}

impl Histogram {
    fn note(&mut self, now_us: u64, latency_us: u64, target_us: u64) {
        let bucket = latency_us.saturating_mul(TARGET_BUCKETS) / target_us.max(1);
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
        if self.samples == 0 {
            self.first_us = now_us;
        }
        self.samples += 1;
    }

    /// The bucket of a percentile, if enough is known; then it begins anew.
    fn percentile(&mut self, now_us: u64, percent: u64) -> Option<usize> {
        if self.samples == 0 || self.samples < SAMPLES_MIN && now_us.saturating_sub(self.first_us) < OLD_US {
            return None;
        }
        let wanted = (self.samples * percent).div_ceil(100);
        let mut seen = 0;
        let within = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        let bucket = self.buckets.iter().position(within).unwrap_or(BUCKETS - 1);
        *self = Histogram::default();
        Some(bucket)
    }
}

fn domain_of(item: &Item) -> usize {
    match item.direction() {
        Direction::Read => 0,
        Direction::Write => 1,
    }
}

impl Kyber {
    pub(super) fn new() -> Kyber {
        let domains = DEPTHS.map(|depth| Domain {
            waiting: BTreeSet::new(),
            in_flight: 0,
            depth,
            total: Histogram::default(),
            device: Histogram::default(),
            p99: None,
        });
        Kyber { domains, at: 0, batched: 0, looked_us: 0, async_in_flight: 0 }
    }

    pub(super) fn insert(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        self.domains[domain_of(item)].waiting.insert((item.number, slot));
    }

    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        self.domains[domain_of(item)].waiting.remove(&(item.number, slot));
    }

    pub(super) fn next(&mut self, items: &Items, parameters: &Parameters) -> Option<u32> {
        if self.batched >= BATCHES[self.at] {
            (self.at, self.batched) = (1 - self.at, 0);
        }
        if let Some(slot) = self.take(items, parameters) {
            return Some(slot);
        }
        (self.at, self.batched) = (1 - self.at, 0);
        self.take(items, parameters)
    }

    fn take(&mut self, items: &Items, parameters: &Parameters) -> Option<u32> {
        let async_most = (parameters.depth * ASYNC_PERCENT / 100).max(1);
        let domain = &mut self.domains[self.at];
        let (number, slot) = domain.waiting.first().copied()?;
        let is_async = !items.known(slot).waited_for;
        if domain.in_flight >= domain.depth || is_async && self.async_in_flight >= async_most {
            return None;
        }
        domain.waiting.remove(&(number, slot));
        domain.in_flight += 1;
        self.async_in_flight += u64::from(is_async);
        self.batched += 1;
        Some(slot)
    }

    pub(super) fn completed(&mut self, now_us: u64, item: &Item, parameters: &Parameters) {
        let targets = [parameters.read_target_us, parameters.write_target_us];
        let at = domain_of(item);
        let domain = &mut self.domains[at];
        domain.in_flight -= 1;
        self.async_in_flight -= u64::from(!item.waited_for);
        domain.total.note(now_us, now_us.saturating_sub(item.added_us), targets[at]);
        domain.device.note(now_us, now_us.saturating_sub(item.dispatched_us), targets[at]);
        if now_us.saturating_sub(self.looked_us) >= LOOK_US {
            self.looked_us = now_us;
            self.adjust(now_us);
        }
    }

    /// Fewer in flight where the device is late, more again where requests wait though it is not.
    fn adjust(&mut self, now_us: u64) {
        let is_over = |bucket: usize| bucket as u64 >= TARGET_BUCKETS;
        let mut is_bad = false;
        for domain in &mut self.domains {
            is_bad |= domain.device.percentile(now_us, 90).is_some_and(is_over);
        }
        for (domain, most) in self.domains.iter_mut().zip(DEPTHS) {
            let p99 = domain.total.percentile(now_us, 99).or(domain.p99);
            domain.p99 = p99;
            if let Some(bucket) = p99.filter(|bucket| is_bad || is_over(*bucket)) {
                domain.depth = (domain.depth * (bucket as u64 + 1) / TARGET_BUCKETS).clamp(1, most);
                domain.p99 = None;
            }
        }
    }
}
