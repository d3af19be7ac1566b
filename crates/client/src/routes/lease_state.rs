//! Who this client is to the metadata service, and until when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use types::ClientId;
use types::limits::{HEARTBEAT_US, LEASE_US};

/// How long one poll may take: the service holds it for a beat, and the lease must not run out meanwhile.
pub(crate) const POLL_US: u64 = 2 * HEARTBEAT_US;
/// Pause after a poll that failed, in microseconds.
pub(crate) const POLL_PAUSE_US: u64 = 100_000;

/// Who this client is to the service, and until when.
pub(crate) struct LeaseState {
    client: AtomicU64,
    /// Counts how often the client has joined.
    generation: AtomicU64,
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

    /// The service has not let anybody else in: modes hold.
    pub(crate) fn is_leased(&self, now: u64) -> bool {
        now < self.leased_until.load(Ordering::Acquire)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// The lease of an exclusive mount has run out: others may have been let in, and nothing that was cached counts.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// From now on nothing works any more.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Others have been let in, and the mount was to be the only one.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Microseconds from `now` on for which modes hold.
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
