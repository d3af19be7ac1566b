//! Which bricks this mount cannot reach: the metadata service hears it with the next poll.

use std::rc::Rc;

use pace::PROBE_US;
use types::BrickId;

use crate::routes::link::Link;

/// Time between two looks at the connections, in microseconds.
const LOOK_US: u64 = 250_000;

impl Link {
    /// Looks for bricks whose connections bring nothing, and probes them, until the mount ends.
    pub(crate) async fn watch_reach(self: Rc<Link>) {
        while !self.routes.lease.has_left() && !self.routes.lease.is_lost() {
            self.world.sleep(LOOK_US).await;
            let (map, now) = (self.routes.map(), self.world.now());
            let due = {
                let mut reach = self.routes.reach();
                // A brick without a lease serves nobody: it is not missed.
                reach.retain(now, |brick| map.is_up(brick));
                let doubted = map.bricks_up().filter(|(_, address)| self.peers.is_doubtful(address));
                doubted.for_each(|(brick, _)| reach.doubt(brick));
                reach.begin_probes(now)
            };
            for brick in due {
                let link = self.clone();
                self.world.spawn("probe", async move { link.probe_brick(brick, now).await });
            }
        }
    }

    async fn probe_brick(&self, brick: BrickId, began: u64) {
        let map = self.routes.map();
        let is_reached = match map.address(brick) {
            Some((_, address)) => self.peers.probe(address, PROBE_US).await,
            None => false,
        };
        self.routes.reach().probed(brick, began, is_reached, self.world.now());
    }
}
