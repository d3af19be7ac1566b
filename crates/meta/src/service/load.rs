//! How many requests the service answers.

use std::cell::Cell;

/// How much of a new measurement counts: one part in so many.
const SMOOTH: f64 = 8.0;

/// Requests per second, smoothed over some ten measurements.
#[derive(Default)]
pub(super) struct Load {
    count: Cell<u64>,
    /// When it was measured last, and the count at that time.
    last: Cell<(u64, u64)>,
    rate: Cell<f64>,
}

impl Load {
    /// One more request.
    pub(super) fn count(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// Measures what was counted since the last time.
    pub(super) fn measure(&self, now: u64) {
        let (then, before) = self.last.replace((now, self.count.get()));
        if then > 0 && now > then {
            let rate = (self.count.get() - before) as f64 * 1e6 / (now - then) as f64;
            self.rate.set(self.rate.get() + (rate - self.rate.get()) / SMOOTH);
        }
    }

    /// Requests per second.
    pub(super) fn get(&self) -> u32 {
        self.rate.get() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let load = Load::default();
        for second in 0..100u64 {
            load.measure(1_000_000 + second * 1_000_000);
            (0..50).for_each(|_| load.count());
        }
        assert!((49..=50).contains(&load.get()), "{}", load.get());
        (101..200u64).for_each(|second| load.measure(1_000_000 + second * 1_000_000));
        assert_eq!(load.get(), 0);
    }
}
