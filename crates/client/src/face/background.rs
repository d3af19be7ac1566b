//! The background tasks of a mount, and its end.

use std::sync::Arc;

use types::messages::cluster::ClientLeave;
use world::CallError;

use crate::error::ClientError;
use crate::face::mount::Mount;
use crate::face::session::Session;
use crate::routes::lease_state::{POLL_PAUSE_US, POLL_US};
use crate::translators::Until;

/// Most tries to tell the service that the mount ends.
const LEAVE_TRIES: u32 = 3;

impl Mount {
    /// The background of a mount: sends writes, makes them stable, sends reports, renews the lease, serves recalls
    /// and follows the map. Must run exactly once per mount; ends with [`Mount::leave`].
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
        let translators = world.named("translators", session.stack.background());
        let reach = world.named("reach", session.link.clone().watch_reach());
        let zero = futures_util::future::join3(zero, translators, reach);
        futures_util::future::join5(watch, timers, sizes, flush, zero).await;
    }

    /// Sends written bytes from another thread, in addition to [`Mount::background`]. Ends with [`Mount::leave`].
    pub async fn flush_more(self: Arc<Mount>, world: world::World) {
        self.session(world).write_behind.flush_queue().await;
    }

    /// Ends the mount: makes everything written stable and tells the service. Afterwards all calls fail.
    ///
    /// # Errors
    /// Why some bytes did not become stable. The mount has ended anyway.
    pub async fn leave(self: &Arc<Mount>, world: &world::World) -> Result<(), ClientError> {
        let session = self.session(world.clone());
        let outcome = session.finish().await;
        self.routes.lease.leave();
        self.unstable.flow.close();
        self.ahead.close();
        self.disk_cache.iter().for_each(|cache| cache.close());
        self.zeroings.wanted.notify();
        self.atimes.flush_now.notify();
        let client = self.routes.lease.client();
        if let Err(error) = outcome {
            // Writes in flight may still reach a brick. So do not tell the service: it lets other clients in only
            // when the lease has run out.
            tracing::warn!(%client, %error, "the mount ends; written bytes that are not stable may be lost");
            return Err(error);
        }
        for _ in 0..LEAVE_TRIES {
            match session.link.ask_once(POLL_US, &ClientLeave { client }).await {
                Err(CallError::Unreachable) => world.sleep(POLL_PAUSE_US).await,
                _ => break,
            }
        }
        // If the service was not told, it notices when the lease runs out.
        tracing::info!(%client, "left");
        outcome
    }
}

impl Session {
    /// Makes everything stable and sends all reports.
    async fn finish(&self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for file in self.mount.files.files() {
            let told = match self.stack.flush(&file, Until::Stable).await {
                Ok(mark) => self.io.report_size(&file, Some(mark)).await,
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

    /// Remaining time of the lease, in microseconds. Until then no other client is let in, so data cached under a
    /// mode stay valid.
    pub fn lease_left_us(&self) -> u64 {
        self.link.routes.lease.left_us(self.link.world.now())
    }
}
