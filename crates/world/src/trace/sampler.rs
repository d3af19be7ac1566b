//! Which requests are traced from their beginning.

use std::cell::Cell;

/// How often a [`Sampler`] starts its count again, in microseconds.
const WINDOW_US: u64 = 100_000;
/// Requests of a window up to which each is traced.
const TRACED_MAX: u64 = 50;
/// At least one request of this number is traced, however many there are: the sampler soon sees when there are few again.
const EVERY_MAX: u64 = 16;

/// Says which requests are traced from their beginning. Such a trace costs some 5 % of a small read from RAM. So up to 500 requests
/// a second all are traced so, and of more a part. The others are left to [`late`](super::late()).
#[derive(Default)]
pub struct Sampler {
    /// The beginning of the window, in microseconds.
    since: Cell<u64>,
    /// Requests in it.
    count: Cell<u64>,
    /// One request of this number is traced, by the rate of the window before. Zero is as one.
    every: Cell<u64>,
}

impl Sampler {
    /// The time, in microseconds, if the request that begins now is traced. Otherwise no clock is read.
    pub fn wants(&self, clock: impl FnOnce() -> u64) -> Option<u64> {
        let count = self.count.get() + 1;
        self.count.set(count);
        if !count.is_multiple_of(self.every.get().max(1)) {
            return None;
        }
        let now = clock();
        let passed = now.saturating_sub(self.since.get());
        if passed >= WINDOW_US {
            let per_window = u128::from(self.count.get()) * u128::from(WINDOW_US) / u128::from(passed);
            self.every.set((per_window / u128::from(TRACED_MAX)).min(u128::from(EVERY_MAX)) as u64);
            self.count.set(0);
            self.since.set(now);
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_requests_some_are_traced_and_of_few_all() {
        let sampler = Sampler::default();
        let mut now = 1_000_000;
        let mut traced = |count: u64, pause: u64| {
            let wanted = (0..count).filter(|_| {
                now += pause;
                sampler.wants(|| now).is_some()
            });
            wanted.count() as u64
        };
        assert_eq!(traced(1000, 2_000), 1000, "500 a second");
        traced(2_000, 250);
        let many = traced(20_000, 250);
        assert!((2_000..=3_000).contains(&many), "{many} of 20,000 in five seconds");
        assert_eq!(traced(160_000, 5) / 1000, 10, "one in 16");
        traced(32, 10_000);
        assert_eq!(traced(100, 10_000), 100, "few again");
    }
}
