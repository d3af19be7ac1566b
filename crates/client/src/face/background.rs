//! What goes on behind the callers' backs, and the end of a mount.

use std::sync::Arc;

use types::messages::cluster::ClientLeave;
use world::CallError;

use crate::error::ClientError;
use crate::face::mount::Mount;
use crate::face::session::Session;
use crate::routes::lease_state::{POLL_PAUSE_US, POLL_US};

/// How often the service is told that the mount ends, if it does not answer.
const LEAVE_TRIES: u32 = 3;

impl Mount {
    /// Does everything that no caller waits for: sends, makes stable, tells, renews the lease, follows recalls and the
    /// map. Runs until the mount is left; everything else here needs it. Once per mount.
    pub async fn background(self: Arc<Mount>, world: world::World) {
        let session = self.session(world);
        let world = &session.link.world;
        let watch = world.named("lease", session.modes.watch());
        let timers = world.named("flow", session.write_behind.run_timers());
        let settle = world.named("sizes", session.io.run_reports());
        let accesses = world.named("accesses", session.atimes.run_reports());
        let sizes = futures_util::future::join(settle, accesses);
        let flush = world.named("write-behind", session.write_behind.flush_queue());
        let zero = world.named("zeroing", session.cuts.zero_files());
        futures_util::future::join5(watch, timers, sizes, flush, zero).await;
    }

    /// Sends written bytes, as one more thread beside [`Mount::background`]. Runs until the mount is left.
    pub async fn flush_more(self: Arc<Mount>, world: world::World) {
        self.session(world).write_behind.flush_queue().await;
    }

    /// Ends the mount: everything written becomes stable, the service is told, then nothing works any more.
    ///
    /// # Errors
    /// What kept some bytes from becoming stable; the mount has ended all the same.
    pub async fn leave(self: &Arc<Mount>, world: &world::World) -> Result<(), ClientError> {
        let session = self.session(world.clone());
        let outcome = session.finish().await;
        self.routes.lease.leave();
        self.unstable.flow.close();
        self.zeroings.wanted.notify();
        self.atimes.flush_now.notify();
        let client = self.routes.lease.client();
        if let Err(error) = outcome {
            // What is under way may still reach a brick: others are let in only when the lease has run out, as if this
            // mount were lost.
            tracing::warn!(%client, %error, "left without everything being stable");
            return Err(error);
        }
        for _ in 0..LEAVE_TRIES {
            match session.link.ask_once(POLL_US, &ClientLeave { client }).await {
                Err(CallError::Unreachable) => world.sleep(POLL_PAUSE_US).await,
                _ => break,
            }
        }
        // If the service has not heard, it finds out when the lease runs out.
        tracing::info!(%client, "left");
        outcome
    }
}

impl Session {
    /// Makes everything stable and tells the service of it.
    async fn finish(&self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for file in self.mount.files.files() {
            let mark = self.mount.unstable.seal_all(&file);
            let told = match self.io.make_stable(&file, mark.upto).await {
                Ok(()) => self.io.report_size(&file, Some(mark)).await,
                Err(error) => Err(error),
            };
            outcome = outcome.and(told).and(file.lock().wb_errors.unreported());
        }
        self.io.report_batch(&self.mount.files.files()).await;
        while self.mount.atimes.are_waiting() {
            self.atimes.report_some().await;
        }
        outcome.and(self.mount.files.unreported())
    }

    /// For how long from now on nobody else is let in, in microseconds: so long may be believed what a mode allows to
    /// believe.
    pub fn lease_left_us(&self) -> u64 {
        self.link.routes.lease.left_us(self.link.world.now())
    }
}
