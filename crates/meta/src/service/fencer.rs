//! Tells the bricks which clients to refuse, before other clients may open the files of a lost one.
//!
//! A client whose lease has run out may still have writes in progress: accepted by a primary, or late in the network.
//! If another client opened the file meanwhile, such a write could change what that client has read or written. So
//! the lost client's files are closed only when every brick that is Up has fenced the client and has completed the
//! writes that it had accepted. A brick that is Out refuses everybody; before it serves again it joins, and the
//! answer has the fences.
//!
//! The files of which the client may have noted sizes with the bricks stay its own until these are stored (notes.rs).

use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, LEASE_US};
use types::messages::brick::Fence;
use types::messages::cluster::{BrickState, Fences};
use types::{BrickId, Buf, ClientId, Epoch, Refusal};

use super::Shared;

/// Pause before a brick is asked again, in microseconds.
const RETRY_US: u64 = HEARTBEAT_US / 10;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let more = shared.departed.wait();
        if let Err(refusal) = shared.fence().await {
            tracing::warn!(%refusal, "cannot tell the bricks which clients to refuse");
        }
        more.await;
    }
}

impl Shared {
    /// Has every brick fence all clients that are no longer mounted, then closes the files of the lost ones.
    async fn fence(&self) -> Result<(), Refusal> {
        let (lost, fences) = {
            let state = self.state.borrow();
            (state.sessions.lost(), state.sessions.fences())
        };
        // A client id that is not durable would be given to another client after a crash.
        self.all_durable().await?;
        self.may_answer().await?;
        self.tell_fences(&fences, false).await;
        for client in &lost {
            tracing::info!(%client, "every brick that is Up has fenced the lost client");
            self.tear_down_client(*client).await;
        }
        self.settled.notify();
        self.unsettled.notify();
        self.notify_tasks();
        // Bricks keep what they know of clients whose notes are not stored, durably.
        let unsettled = self.state.borrow().unsettled_clients().into_values().flatten();
        let mounted: BTreeSet<ClientId> = fences.mounted.iter().copied().chain(unsettled).collect();
        let told = Fences { upto: fences.upto, mounted: mounted.into_iter().collect() };
        self.all_durable().await?;
        self.tell_fences(&told, true).await;
        Ok(())
    }

    async fn tell_fences(&self, fences: &Fences, everywhere: bool) {
        let up: Vec<BrickId> = {
            let state = self.state.borrow();
            let bricks = state.cluster.map().bricks.iter();
            bricks.filter(|brick| brick.state == BrickState::Up).map(|brick| brick.id).collect()
        };
        join_all(up.into_iter().map(|brick| self.fence_at(brick, fences, everywhere))).await;
    }

    /// Returns when a brick has applied the fences or is Out.
    async fn fence_at(&self, brick: BrickId, fences: &Fences, everywhere: bool) {
        let fence = Fence { fences: fences.clone(), everywhere };
        loop {
            let address = self.state.borrow().cluster.address_of(brick).map(str::to_owned);
            let Some(address) = address else { return };
            match self.peers.call_within(LEASE_US / 2, &address, Epoch(0), &fence, Buf::default()).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%brick, %error, "a brick has not fenced yet"),
            }
            self.world.sleep(RETRY_US).await;
        }
    }
}
