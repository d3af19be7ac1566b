//! Which bricks this mount cannot reach: the metadata service hears it with the next poll, and requests go by way of others.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use pace::PROBE_US;
use types::BrickId;
use world::CallError;

use crate::routes::link::Link;
use crate::routes::route::Route;
use crate::routes::watch::LOOK_US;

impl Link {
    /// Looks for bricks whose connections bring nothing, and probes them, until the mount ends.
    pub(crate) async fn watch_reach(self: Rc<Link>) {
        while !self.routes.lease.has_left() && !self.routes.lease.is_lost() {
            self.world.sleep(LOOK_US).await;
            let (map, now) = (self.routes.map(), self.world.now());
            // A brick without a lease serves nobody: it is not missed.
            self.routes.reach(|reach| reach.retain(now, |brick| map.is_up(brick)));
            self.watch.look();
            let due = self.routes.reach(|reach| reach.begin_probes(now));
            for brick in due {
                let link = self.clone();
                self.world.spawn("probe", async move { link.probe_brick(brick, now).await });
            }
        }
    }

    /// Waits for a call of a brick of a group. Gives up as soon as the group has another epoch, because then the answer is of no use,
    /// or this mount turns out not to reach the brick.
    pub(crate) async fn watched<T>(
        &self,
        route: &Route,
        (brick, address): (BrickId, &str),
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let waiting = self.watch.begin();
        let way_ended = async {
            // The route may be older than the call.
            while !self.routes.is_unreached(brick) && !self.routes.is_old(route) {
                waiting.change().await;
            }
        };
        match select(pin!(call), pin!(way_ended)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                self.leave_if_unreached(brick, address);
                Err(CallError::Unreachable)
            }
        }
    }

    /// Drops this thread's connections to a brick that this mount does not reach. Returns whether it is such a brick. A connection
    /// that has lost frames may stay silent for long when new ones can be made.
    pub(crate) fn leave_if_unreached(&self, brick: BrickId, address: &str) -> bool {
        let is_unreached = self.routes.is_unreached(brick);
        if is_unreached {
            self.peers.forget(address);
        }
        is_unreached
    }

    async fn probe_brick(&self, brick: BrickId, began: u64) {
        let map = self.routes.map();
        let is_reached = match map.address(brick) {
            Some((_, address)) => self.peers.probe(address, PROBE_US).await,
            None => false,
        };
        let now = self.world.now();
        let is_news = self.routes.reach(|reach| reach.probed(brick, began, is_reached, now));
        if is_news {
            tracing::debug!(%brick, is_reached, "probed");
            self.routes.changed.notify();
        }
    }
}
