//! A bound on bytes per second.

/// What may be moved without a wait after a pause, in microseconds of the rate.
const BURST_US: u64 = 100_000;

/// Says how long to wait so that bytes do not pass faster than a rate. Time is passed in.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes per second; `None` for no bound.
    rate: Option<u64>,
    /// When the bytes so far have passed at this rate, in microseconds.
    paid_until: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Pace {
        Pace { rate, paid_until: 0 }
    }

    /// Counts bytes that are about to move at `now`, in microseconds. Returns how long to wait first.
    pub(crate) fn take(&mut self, bytes: u64, now: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let begin = self.paid_until.max(now.saturating_sub(BURST_US));
        let cost = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
        self.paid_until = begin.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
        begin.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_and_a_pause_saves_up_little() {
        let mut pace = Pace::new(Some(1_000_000));
        let mut now = 10_000_000;
        let begun = now;
        for _ in 0..100 {
            now += pace.take(50_000, now);
        }
        // 100 times 50 ms, less the burst, and the last one is not waited for.
        assert_eq!(now - begun, 100 * 50_000 - BURST_US - 50_000);
        now += 3_600_000_000;
        assert_eq!(pace.take(100_000, now), 0);
        assert_eq!(pace.take(100_000, now), 0);
        assert_eq!(pace.take(100_000, now), 100_000, "an hour of rest is no licence for an hour's bytes");
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None);
        assert_eq!((0..10).map(|_| pace.take(u64::MAX, 0)).sum::<u64>(), 0);
    }
}
