//! Leases that run out.

use std::rc::Rc;

use types::limits::HEARTBEAT_US;

use super::Shared;
use crate::cluster::Judged;

/// Time between two checks of the leases, in microseconds.
const LOOK_US: u64 = HEARTBEAT_US / 4;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let before = shared.world.now();
        shared.world.sleep(LOOK_US).await;
        // While a slow disk blocks this process's only thread, heartbeats that arrive in time are not read. So all
        // leases are extended by that time. It is always safe to expel later.
        let late = shared.world.now().saturating_sub(before + LOOK_US);
        let stood_still = late > LOOK_US;
        if stood_still {
            tracing::warn!(late_us = late, "the service stood still; all leases are extended");
            let mut state = shared.state.borrow_mut();
            state.cluster.extend_leases(late);
            state.sessions.extend_leases(late);
        }
        // A server that does not lead any more may have been heard by nobody.
        if shared.may_act() {
            // The reports and heartbeats of that time are still to be read.
            if !stood_still {
                shared.judge();
            }
            shared.expire();
        }
    }
}

impl Shared {
    /// Holds bricks that others do not reach.
    fn judge(&self) {
        let Judged { held, needed } = self.state.borrow_mut().cluster.judge(self.world.now());
        for (brick, missed) in held {
            let missed: Vec<String> = missed.iter().map(ToString::to_string).collect();
            let missed = missed.join(", ");
            tracing::warn!(%brick, missed, "the brick and others do not reach each other: its lease is not renewed");
        }
        for brick in needed {
            tracing::warn!(%brick, "the brick and others do not reach each other, and groups cannot do without it");
        }
    }

    fn expire(&self) {
        let now = self.world.now();
        let mut state = self.state.borrow_mut();
        let writes = state.cluster.expire(now);
        if !writes.is_empty() {
            tracing::info!(map = %state.cluster.version(), "bricks are out: their leases have run out");
            state.commit(writes);
            self.news.notify();
            // The purger does not wait any longer for the bricks that are now Out.
            self.purges.notify();
        }
        if state.expire_clients(now) > 0 {
            self.departed.notify();
        }
        drop(state);
        self.notify_tasks();
    }
}
