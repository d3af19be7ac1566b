//! What the cables carry, from two looks at a lab.

use lab::fabric::{Cable, CableLoad};
use lab::live::Look;

/// Bytes per second from bits.
const MBIT: f64 = 1e6 / 8.0;

/// What a cable carries, by direction in the order of [`Cable::directions`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct CableRate {
    pub(super) cable: Cable,
    pub(super) is_cut: bool,
    /// Megabytes (1e6) per second.
    pub(super) mb_per_s: [f64; 2],
    /// Part of the cable's rate, 0 to 1.
    pub(super) share: [f64; 2],
    /// Packets that found the queue full in this time.
    pub(super) dropped: [u64; 2],
}

impl CableRate {
    /// The fuller direction, 0 to 1.
    pub(super) fn most(&self) -> f64 {
        self.share[0].max(self.share[1])
    }
}

/// What happened between two looks.
pub(super) struct Rates {
    pub(super) seconds: f64,
    /// In the order of the looks.
    pub(super) cables: Vec<CableRate>,
    /// IP packets per second that nodes and switches forwarded for others.
    pub(super) forwarded: f64,
}

impl Rates {
    /// The rates of cables of `mbit` megabits per second.
    pub(super) fn between(before: &Look, after: &Look, mbit: u32) -> Rates {
        let seconds = after.at_us.saturating_sub(before.at_us).max(1) as f64 / 1e6;
        let rate = |(after, before): (&CableLoad, &CableLoad)| {
            let passed = [0, 1].map(|at| after.counts[at].since(before.counts[at]));
            let per_s = passed.map(|counts| counts.bytes as f64 / seconds);
            CableRate {
                cable: after.cable,
                is_cut: after.is_cut,
                mb_per_s: per_s.map(|bytes| bytes / 1e6),
                share: per_s.map(|bytes| bytes / (f64::from(mbit) * MBIT)),
                dropped: passed.map(|counts| counts.dropped),
            }
        };
        let packets = |look: &Look| look.forwarded.iter().map(|(_, packets)| packets).sum::<u64>();
        let forwarded = packets(after).saturating_sub(packets(before)) as f64 / seconds;
        Rates { seconds, cables: after.cables.iter().zip(&before.cables).map(rate).collect(), forwarded }
    }

    /// What a cable carries, by its ends.
    pub(super) fn of(&self, cable: Cable) -> Option<&CableRate> {
        self.cables.iter().find(|rate| rate.cable == cable)
    }

    /// The fullest cables that carry anything, the fullest first.
    pub(super) fn busiest(&self, most: usize) -> Vec<&CableRate> {
        // Whoever is asked for its state sends some packets too.
        let mut busy: Vec<&CableRate> = self.cables.iter().filter(|rate| rate.most() >= 0.005).collect();
        busy.sort_by(|a, b| b.most().total_cmp(&a.most()));
        busy.truncate(most);
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::fabric::shape::topology;
    use lab::iproute::Counts;

    #[test]
    fn rates_are_differences_by_time() {
        let ring = topology(3, "torus:3").expect("a ring");
        let look = |at_us, bytes| {
            let counts = |bytes| Counts { bytes, packets: 0, dropped: bytes / 1_000_000 };
            let load = |cable| CableLoad { cable, is_cut: false, counts: [counts(bytes), counts(2 * bytes)] };
            let forwarded = ring.vertices().iter().map(|vertex| (*vertex, bytes)).collect();
            let cables = Cable::all(&ring).into_iter().map(load).collect();
            Look { at_us, nodes: Vec::new(), forwarded, cables }
        };
        let rates = Rates::between(&look(1_000_000, 0), &look(3_000_000, 25_000_000), 200);
        assert_eq!((rates.seconds, rates.forwarded), (2.0, 37_500_000.0));
        let cable = rates.of(Cable::all(&ring)[0]).expect("a cable");
        assert_eq!((cable.mb_per_s, cable.share, cable.dropped), ([12.5, 25.0], [0.5, 1.0], [25, 50]));
        assert_eq!((cable.most(), rates.busiest(2).len()), (1.0, 2));
        assert!(Rates::between(&look(0, 5), &look(0, 5), 200).busiest(2).is_empty());
    }
}
