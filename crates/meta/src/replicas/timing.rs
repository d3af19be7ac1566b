//! How long metadata servers wait for each other.

/// Least time without a leader after which a server stands for election or votes, in microseconds.
pub(super) const ELECTION_US: u64 = 2_000_000;
/// A server waits up to this much longer, by chance, so that two rarely stand at once.
pub(super) const ELECTION_SPREAD_US: u64 = 1_000_000;
/// How long a sign of a majority lets a leader answer, in microseconds. The rest up to [`ELECTION_US`] is for clocks that run
/// at different speeds.
pub(super) const LEASE_US: u64 = 1_700_000;
/// Time between two signs of a leader, in microseconds.
pub(super) const BEAT_US: u64 = 200_000;
/// How long a call to another server may take, in microseconds.
pub(super) const CALL_US: u64 = 1_500_000;
/// How long a call with a record may take, in microseconds: it may have megabytes.
pub(super) const APPEND_US: u64 = 10_000_000;
/// Pause after a call that failed, in microseconds.
pub(super) const RETRY_US: u64 = 100_000;
