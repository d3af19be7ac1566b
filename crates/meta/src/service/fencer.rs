//! Bricks are told whose writes they refuse, before others are let in.
//!
//! A client whose lease has run out may have writes under way: at a primary that has accepted them, or in a network that
//! will deliver them late. Were its files opened by others meanwhile, such a write could land on what they have read or
//! written. So its opens are let go only when every brick that is Up has fenced it and has carried what it had accepted.
//! A brick that is Out refuses everybody; before it serves again it joins, and the answer has the fences.

use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, LEASE_US};
use types::messages::brick::Fence;
use types::messages::cluster::{BrickState, Fences};
use types::{BrickId, Buf, Epoch, Refusal};

use super::Shared;

/// Pause before a brick is asked again, in microseconds.
const RETRY_US: u64 = HEARTBEAT_US / 10;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let more = shared.departed.wait();
        if let Err(refusal) = shared.fence().await {
            tracing::warn!(%refusal, "nobody can be fenced");
        }
        more.await;
    }
}

impl Shared {
    /// Has every brick fence who is no longer mounted, and lets go what the lost ones among them had open.
    async fn fence(&self) -> Result<(), Refusal> {
        let (lost, fences) = {
            let state = self.state.borrow();
            (state.sessions.lost(), state.sessions.fences())
        };
        // After a crash, an id of which nothing is durable would be given again.
        self.all_durable().await?;
        self.tell_fences(&fences, false).await;
        let purges = self.state.borrow().volatile.purges;
        for client in &lost {
            tracing::info!(%client, "every brick refuses the lost client");
            self.tear_down_client(*client).await;
        }
        self.settled.notify();
        self.notify_tasks(purges);
        self.tell_fences(&fences, true).await;
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

    /// Returns when a brick has fenced them, or is Out.
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
