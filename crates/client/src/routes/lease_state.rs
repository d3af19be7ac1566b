//! The client's id at the metadata service, and the end of its lease.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use types::ClientId;
use types::limits::{HEARTBEAT_US, LEASE_US};

/// Timeout of a poll, in microseconds. The service holds a poll for one heartbeat, and the lease must not run out
/// meanwhile.
pub(crate) const POLL_US: u64 = 2 * HEARTBEAT_US;
/// Pause after a poll that failed, in microseconds.
pub(crate) const POLL_PAUSE_US: u64 = 100_000;

/// The client's id, and the end of its lease.
pub(crate) struct LeaseState {
    client: AtomicU64,
    /// How often the client has joined.
    generation: AtomicU64,
    /// How often it has begun to join again.
    rejoins: AtomicU64,
    leased_until: AtomicU64,
    left: AtomicBool,
    /// The lease of an exclusive mount has run out.
    lost: AtomicBool,
}

impl LeaseState {
    pub(crate) fn new(client: ClientId, leased_until: u64) -> LeaseState {
        LeaseState {
            client: AtomicU64::new(client.0),
            generation: AtomicU64::new(1),
            rejoins: AtomicU64::new(0),
            leased_until: AtomicU64::new(leased_until),
            left: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }
    }

    pub(crate) fn client(&self) -> ClientId {
        ClientId(self.client.load(Ordering::Acquire))
    }

    /// How often this client has joined.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// How often this client has begun to tell a service that has restarted what it has open. What it says to a service after
    /// this has changed may be unknown to the next one.
    pub(crate) fn rejoins(&self) -> u64 {
        self.rejoins.load(Ordering::Acquire)
    }

    pub(super) fn begin_rejoin(&self) {
        self.rejoins.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the lease is valid. Then the service has let no other client in, and modes are valid.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        now < self.leased_until.load(Ordering::Acquire)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Whether the lease of an exclusive mount has run out: other clients may have been let in, and nothing cached is
    /// valid.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Ends the mount: all later calls fail.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Records that the lease of an exclusive mount has run out.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Remaining time of the lease from `now` on, in microseconds.
    pub(crate) fn left_us(&self, now: u64) -> u64 {
        self.leased_until.load(Ordering::Acquire).saturating_sub(now)
    }

    pub(crate) fn renew(&self, sent: u64) {
        self.leased_until.fetch_max(sent + LEASE_US, Ordering::AcqRel);
    }

    pub(super) fn begin(&self, client: ClientId, sent: u64) {
        self.client.store(client.0, Ordering::Release);
        self.renew(sent);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mode_allows_is_believed_as_long_as_the_lease() {
        let lease = LeaseState::new(ClientId(1), 100);
        assert_eq!((lease.left_us(40), lease.left_us(100), lease.left_us(500)), (60, 0, 0));
        lease.renew(200);
        assert_eq!(lease.left_us(300), LEASE_US - 100);
    }
}
