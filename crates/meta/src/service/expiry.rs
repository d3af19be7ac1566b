//! Leases that run out.

use std::rc::Rc;

use types::limits::BEAT_US;

use super::Shared;

/// Time between two looks at the leases, in microseconds.
const LOOK_US: u64 = BEAT_US / 4;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        shared.world.sleep(LOOK_US).await;
        shared.expire();
    }
}

impl Shared {
    fn expire(&self) {
        let now = self.world.now();
        let purges = self.state.borrow().live.purges;
        let mut state = self.state.borrow_mut();
        let writes = state.cluster.expire(now);
        if !writes.is_empty() {
            tracing::info!(map = %state.cluster.version(), "bricks are out: their leases have run out");
            state.commit(&writes);
            self.news.notify();
        }
        if state.expire_clients(now) > 0 {
            self.settled.notify();
        }
        drop(state);
        self.look_around(purges);
    }
}
