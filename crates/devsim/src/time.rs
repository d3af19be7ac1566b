//! Virtual time.

/// A moment of virtual time, or a span of it, in nanoseconds. The clock begins at 0 and never goes back.
pub(crate) type Time = u64;

pub(crate) const US: Time = 1_000;
pub(crate) const MS: Time = 1_000_000;
pub(crate) const SECOND: Time = 1_000_000_000;

/// How long so many bytes take at a rate of bytes per second.
pub(crate) fn span(bytes: u64, rate: u64) -> Time {
    (u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1))) as Time
}
