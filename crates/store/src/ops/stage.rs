//! A client stages a unit of a whole stripe on its brick, before the primary orders the operation.

use std::rc::Rc;

use types::messages::Done;
use types::messages::brick::Stage;
use types::{Buf, Epoch, Refusal};

use crate::server::Server;
use crate::slot::STAGED_US;

/// Time between looks for staged units that are too old, in microseconds.
const LOOK_US: u64 = 1_000_000;

impl Server {
    /// Keeps a unit until its operation comes. Its checksums have been compared, unless the client that computed them sealed it: a read
    /// compares them, and parity was computed before.
    pub(crate) async fn stage(&self, epoch: Epoch, stage: Stage, payload: Buf) -> Result<Done, Refusal> {
        self.check_lease(stage.group.volume)?;
        self.check_writer(stage.client, stage.group)?;
        let geometry = self.tier(stage.group)?.geometry;
        let is_whole = payload.len() == geometry.unit() && stage.crcs.len() == geometry.unit_blocks();
        if !is_whole || usize::from(stage.slot) >= geometry.code().slots() {
            return Err(Refusal::Malformed);
        }
        self.busy_at.set(self.world.turn_began());
        self.count_asked_write(payload.len());
        self.check_served(stage.group, epoch)?;
        let runs = self.slot.borrow_mut().room_for_stage(epoch, &stage, self.reserve_blocks())?;
        let written = self.write_runs(&runs, &payload).await;
        let mut slot = self.slot.borrow_mut();
        match written {
            Ok(()) => slot.stage(epoch, &stage, runs, self.world.now())?,
            Err(refusal) => {
                slot.unstage(&runs);
                return Err(refusal);
            }
        }
        Ok(Done {})
    }

    /// Drops staged units whose operation has not come in time.
    pub(crate) async fn drop_old_stages(self: Rc<Server>) {
        while !self.journal.has_failed() {
            self.world.sleep(LOOK_US).await;
            self.slot.borrow_mut().drop_staged_before(self.world.now().saturating_sub(STAGED_US));
        }
    }
}
