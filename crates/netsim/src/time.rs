//! Virtual time and rates. Picoseconds, because a byte at 100 Gbit/s takes 80 of them.

/// A moment of virtual time, or a span of it, in picoseconds. The clock begins at 0 and never goes back.
pub(crate) type Time = u64;

pub(crate) const NS: Time = 1_000;
pub(crate) const US: Time = 1_000_000;
pub(crate) const MS: Time = 1_000_000_000;
pub(crate) const SECOND: Time = 1_000_000_000_000;

/// The rate of a link, in bits per second, all headers counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate(pub u64);

impl Rate {
    /// So many megabits per second.
    pub const fn mbit(mbit: u64) -> Rate {
        Rate(mbit * 1_000_000)
    }

    /// So many gigabits per second.
    pub const fn gbit(gbit: u64) -> Rate {
        Rate(gbit * 1_000_000_000)
    }

    /// How long so many bytes take, in picoseconds. Rates are above 0, and bytes below 2 MiB: see `Setup::check`.
    pub(crate) fn span(self, bytes: u64) -> Time {
        bytes * 8 * SECOND / self.0
    }

    /// Bytes of payload in full packets that it carries per second.
    pub fn payload(self) -> f64 {
        self.0 as f64 / 8.0 * f64::from(crate::packet::PAYLOAD) / f64::from(crate::packet::FULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_as_long_as_its_bits() {
        assert_eq!(Rate::gbit(100).span(1514), 121_120);
        assert_eq!(Rate::mbit(500).span(1514), 24_224 * NS);
        assert!((Rate::mbit(500).payload() / 1e6 - 59.78).abs() < 0.01);
    }
}
