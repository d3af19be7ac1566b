//! A client wants its writes stable.

use types::messages::Done;
use types::messages::brick::{Flush, Sync};
use types::{Buf, ClientId, ClientSeq, Epoch, Refusal};

use crate::server::Server;
use world::trace::Trace;

/// How long a wait lasts before lease and epochs are checked again, in microseconds.
const LOOK_US: u64 = 500_000;

impl Server {
    /// Answers when every write of the client up to a number is stable.
    pub(crate) async fn sync_writes(&self, sync: Sync) -> Result<Done, Refusal> {
        self.mark_urgent(sync.client, sync.upto);
        let began = Trace::current_since(&self.world);
        let mut nudged = false;
        loop {
            let progress = self.progress.wait();
            // Writes of a lost client that were given up must not look stable.
            self.check_fence(sync.client)?;
            let mut stable = true;
            for (group, epoch) in &sync.groups {
                self.check_primary(*group, *epoch)?;
                stable &= self.primary.borrow().is_stable(*group, sync.client, sync.upto);
            }
            if stable {
                if let Some((trace, began)) = began
                    && let Some(served) = self.commits.borrow().slowest_since(sync.client, began)
                {
                    trace.set_served(served);
                }
                return Ok(Done {});
            }
            if !nudged {
                self.nudge_slots(&sync);
                nudged = true;
            }
            self.world.timeout(LOOK_US, progress).await;
        }
    }

    /// From now on operations with writes of this client up to a number are made durable at once.
    pub(crate) fn mark_urgent(&self, client: ClientId, upto: ClientSeq) {
        let mut urgent = self.urgent.borrow_mut();
        let known = urgent.entry(client).or_default();
        *known = (*known).max(upto);
    }

    /// Sends a Flush to every slot that has not yet acknowledged an operation of the group, so that it makes its held
    /// operations durable now.
    fn nudge_slots(&self, sync: &Sync) {
        let mut bricks = std::collections::BTreeSet::new();
        for (group, epoch) in &sync.groups {
            let primary = self.primary.borrow();
            let awaited = primary.awaited(*group);
            let Some(ordered) = primary.serving(*group, *epoch) else { continue };
            let slots = ordered.config.slots.iter().enumerate();
            bricks.extend(slots.filter(|(slot, _)| awaited & 1 << slot != 0).map(|(_, config)| config.brick));
        }
        for brick in bricks {
            if brick == self.options.brick {
                self.journal.request_sync();
            } else if let Some(address) = self.address_of(brick) {
                // Behind the operations, whichever connection they took.
                for rail in self.peers.connected(&address) {
                    let peers = self.peers.clone();
                    self.world.spawn("nudge", async move {
                        // The outcome is known from the answers to the operations themselves.
                        let _ = peers.call(&rail, Epoch(0), &Flush {}, Buf::empty()).await;
                    });
                }
            }
        }
    }
}
