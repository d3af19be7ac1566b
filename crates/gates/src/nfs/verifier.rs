//! The write verifier: while it stays the same, every write that was answered is still there.

use std::sync::atomic::{AtomicU64, Ordering};

use types::ClientId;

/// A number that changes at every start of a gate, with every new client id of the gate, and after every loss.
pub(super) struct Verifier {
    start: u64,
    losses: AtomicU64,
}

impl Verifier {
    /// For a new gate; `start` is random.
    pub(super) fn new(start: u64) -> Verifier {
        Verifier { start, losses: AtomicU64::new(0) }
    }

    /// Changes the verifier after a loss, so that clients write uncommitted bytes again.
    pub(super) fn change(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// The present verifier. `client` is the mount's id: it changes after the lease ran out, when all unstable bytes
    /// are lost.
    pub(super) fn now(&self, client: ClientId) -> u64 {
        // Because of the odd factors, the sum does not repeat within any possible run of a gate.
        let lives = client.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let losses = self.losses.load(Ordering::Acquire).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        self.start.wrapping_add(lives).wrapping_add(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_loss_shows() {
        let mut seen = BTreeSet::new();
        for start in [0, 1, u64::MAX / 3] {
            let verifier = Verifier::new(start);
            assert_eq!(verifier.now(ClientId(1)), verifier.now(ClientId(1)));
            for _ in 0..10 {
                (1..10).for_each(|client| assert!(seen.insert(verifier.now(ClientId(client)))));
                verifier.change();
            }
        }
    }
}
