//! Which other bricks this one cannot reach: it tells the metadata service with its heartbeats, which asks it about others too.

use std::rc::Rc;

use pace::{PROBE_US, Reach};
use types::BrickId;
use types::limits::REPORTED_MAX;
use types::messages::reach::ReachReport;

use crate::server::Server;

/// Time between two looks at the connections, in microseconds.
const LOOK_US: u64 = 250_000;

/// No doubts.
pub(crate) fn no_doubts() -> Reach<BrickId> {
    Reach::new(REPORTED_MAX)
}

impl Server {
    /// What the metadata service is told.
    pub(crate) fn reach_report(&self) -> ReachReport {
        let reach = self.reach.borrow();
        ReachReport { unreached: reach.unreached(), reached: reach.reached() }
    }

    /// The metadata service wants to know whether these bricks answer.
    pub(crate) fn ask_reach(&self, bricks: &[BrickId]) {
        let (mut reach, now) = (self.reach.borrow_mut(), self.world.now());
        let others = bricks.iter().filter(|brick| **brick != self.options.brick);
        others.take(REPORTED_MAX).for_each(|brick| reach.ask(*brick, now));
    }

    /// Looks for bricks whose connections bring nothing, and probes them.
    pub(crate) async fn watch_reach(self: Rc<Server>) {
        loop {
            self.world.sleep(LOOK_US).await;
            self.look_for_doubts();
            let (now, due) = (self.world.now(), self.reach.borrow_mut().begin_probes(self.world.now()));
            for brick in due {
                self.world.spawn("probe", self.clone().probe_brick(brick, now));
            }
        }
    }

    fn look_for_doubts(&self) {
        let (mut reach, now) = (self.reach.borrow_mut(), self.world.now());
        let maps: Vec<_> = self.shards.all().iter().map(|shard| shard.map.borrow().clone()).collect();
        // A dead brick is doubted by nobody: it has no lease that others would wait for.
        reach.retain(now, |brick| maps.iter().any(|map| map.is_up(brick)));
        for map in &maps {
            let up = map.bricks.iter().filter(|info| map.is_up(info.id) && info.id != self.options.brick);
            let doubted = up.filter(|info| self.peers.is_doubtful(&info.address));
            doubted.for_each(|info| reach.doubt(info.id));
        }
    }

    async fn probe_brick(self: Rc<Server>, brick: BrickId, began: u64) {
        let is_reached = match self.address_of(brick) {
            Some(address) => self.peers.probe(&address, PROBE_US).await,
            None => false,
        };
        let is_news = self.reach.borrow_mut().probed(brick, began, is_reached, self.world.now());
        if is_news {
            tracing::debug!(%brick, is_reached, "probed");
            // The next heartbeat tells it.
            self.shards.all().iter().for_each(|shard| shard.map_wanted.notify());
        }
    }
}
