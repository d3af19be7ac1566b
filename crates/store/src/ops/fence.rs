//! Clients that are lost: their writes are refused.
//!
//! Not kept on the disk: a brick that starts, or that was Out, is told when it joins, before it serves anybody.

use types::messages::Done;
use types::messages::brick::Fence;
use types::messages::cluster::Fences;
use types::{ClientId, Refusal};

use crate::server::Server;

/// How long accepted writes are waited for before the asker is told to ask again, in microseconds.
const WAIT_US: u64 = 500_000;

impl Server {
    /// Refuses the writes of a client that is lost.
    pub(crate) fn check_fence(&self, client: ClientId) -> Result<(), Refusal> {
        if self.fences.borrow().is_fenced(client) { Err(Refusal::Fenced) } else { Ok(()) }
    }

    /// Learns who is lost. What was accepted of them goes on.
    pub(crate) fn learn_fences(&self, fences: &Fences) {
        self.fences.borrow_mut().merge(fences);
        // Whoever waits for a write of theirs to be stable need not wait any more.
        self.progress.notify();
    }

    /// Fences clients. Answered when nothing is left of what this brick had accepted of them as a primary: then no write
    /// of theirs can appear any more.
    ///
    /// Groups of an older epoch need not be waited for: whatever they had under way is settled before the next one is
    /// served.
    pub(crate) async fn fence(&self, fence: Fence) -> Result<Done, Refusal> {
        self.learn_fences(&fence.fences);
        let give_up = self.world.now() + WAIT_US;
        loop {
            let progress = self.progress.wait();
            let fences = self.fences.borrow().clone();
            if !self.primary.borrow().has_accepted_of(|client| fences.is_fenced(client)) {
                break;
            }
            let left = give_up.saturating_sub(self.world.now());
            if left == 0 {
                return Err(Refusal::Busy);
            }
            self.world.timeout(left, progress).await;
        }
        if fence.everywhere {
            self.forget_clients(&fence.fences);
        }
        Ok(Done {})
    }

    /// Forgets which writes of fenced clients it has seen. No primary takes any of theirs again, so none has to be
    /// recognised.
    fn forget_clients(&self, fences: &Fences) {
        self.slot.borrow_mut().forget_clients(|client| fences.is_fenced(client));
        self.primary.borrow_mut().forget_clients(|client| fences.is_fenced(client));
        self.urgent.borrow_mut().retain(|client, _| !fences.is_fenced(*client));
    }
}
