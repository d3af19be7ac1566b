//! The write verifier: as long as it stays the same, whatever a client has written and been told of is still there.

use std::sync::atomic::{AtomicU64, Ordering};

use types::ClientId;

/// A number that differs between starts of gates, between the lives of a gate's client, and after every loss.
pub(super) struct Verifier {
    start: u64,
    losses: AtomicU64,
}

impl Verifier {
    /// For a gate that begins, with a random number.
    pub(super) fn new(start: u64) -> Verifier {
        Verifier { start, losses: AtomicU64::new(0) }
    }

    /// Something is lost that a client may count on: it is to write again what it has not committed.
    pub(super) fn change(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// The verifier now. `client` gets another id when its lease has run out, and everything unstable goes with the old.
    pub(super) fn now(&self, client: ClientId) -> u64 {
        // Odd factors: none of the sums meets another within any life that a gate can have.
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
