//! Folding: the overlays of a stripe become part of its units, and their records in the journals are free.
//!
//! If few blocks are touched, only those are written again (`patch.rs`). Otherwise, or if a unit is missing or
//! damaged, the stripe is read and written whole, as a Full.

use std::rc::Rc;

use futures_util::StreamExt;
use types::code_probe::{CodeProbe, hit};
use types::{GroupId, Refusal, StripeKey};

use super::stripe::Stripe;
use crate::server::{Server, count};

/// Time between looks, in microseconds.
const LOOK_US: u64 = 200_000;
/// After so long without writes and reads the brick is idle: it folds everything.
const IDLE_US: u64 = 1_000_000;
/// Journal fill, in per cent, from which stripes are folded although the brick is busy. A later fold covers more
/// overlays of its stripe.
const FILL_BUSY: u8 = 40;
/// Stripes folded at a time: most of a fold is waiting for syncs.
const TOGETHER: usize = 16;
/// Stripes folded per look: so many with overlays here, and so many that other bricks have reported.
const PER_LOOK: usize = 64;

impl Server {
    /// Folds stripes when there is time, or need.
    pub(crate) async fn fold_for_ever(self: Rc<Server>) {
        while !self.journal.has_failed() {
            let pressed = self.is_journal_pressed();
            if !pressed {
                self.world.sleep(LOOK_US).await;
            }
            let idle = self.world.now() >= self.busy_at.get() + IDLE_US;
            if !pressed && !idle {
                continue;
            }
            let folds = self.fold_candidates().into_iter().map(|(key, id)| self.fold(key, id));
            let mut folds = futures_util::stream::iter(folds).buffer_unordered(TOGETHER);
            let mut folded = 0;
            while let Some(fold) = folds.next().await {
                match fold {
                    Ok(done) => folded += usize::from(done),
                    Err(refusal) => {
                        hit(CodeProbe::FoldPutOff);
                        tracing::debug!(%refusal, "fold postponed");
                    }
                }
            }
            if pressed && folded == 0 {
                // A brick may be full, and each attempt may cost an epoch.
                self.world.sleep(LOOK_US).await;
            }
        }
    }

    /// Whether the journal of this brick, or of a brick that shares a group with it, is filling up.
    fn is_journal_pressed(&self) -> bool {
        let others = self.pressure.borrow().values().map(|known| known.journal_fill).max();
        self.fill().max(others.unwrap_or(0)) >= FILL_BUSY
    }

    /// Stripes of this brick's groups with overlays, the oldest in the journal first; then those that only other
    /// bricks know of.
    fn fold_candidates(&self) -> Vec<(StripeKey, GroupId)> {
        let primary = self.primary.borrow();
        let serves =
            |id: GroupId| primary.epoch(id).is_some_and(|epoch| primary.serving(id, epoch).is_some());
        // Groups of a shard that is away would be chosen again and again, before all others.
        let is_led = |id: GroupId| self.check_lease(id.volume).is_ok();
        let mine = |id: GroupId| serves(id) && primary.accepts(id) && is_led(id);
        let mut candidates = self.slot.borrow().overlaid(mine, PER_LOOK);
        candidates.extend(self.take_unfolded(mine, PER_LOOK));
        assert!(
            candidates.len() <= 2 * PER_LOOK,
            "a look that takes too many stripes would keep writes waiting"
        );
        candidates
    }

    /// Folds one stripe. False if there was nothing to fold.
    async fn fold(&self, key: StripeKey, id: GroupId) -> Result<bool, Refusal> {
        let ticket = self.lanes.enter(key);
        ticket.wait().await;
        let epoch = self.primary.borrow().epoch(id).ok_or(Refusal::NotPrimary)?;
        let stripe = Stripe::load(self, id, epoch, key).await?;
        let dropped = self.slot.borrow().is_dropped(key.object);
        if dropped || !self.is_overlaid(&stripe).await? {
            tracing::debug!(%key, dropped, shape = ?stripe.shape, "nothing to fold");
            return Ok(false);
        }
        if let Some(rows) = self.rows_to_patch(&stripe) {
            self.patch(&stripe, &rows).await?;
            return Ok(true);
        }
        assert!(stripe.shape.exists, "a unit that a short Full leaves out would keep its old bytes");
        let units = stripe.units().await?;
        let plan = self.plan_full(&stripe, units);
        self.replicate(&stripe, plan, Vec::new()).await?;
        self.unpatched.borrow_mut().remove(&key);
        count(&self.counters.folded);
        if stripe.shape.overlays.is_empty() {
            hit(CodeProbe::FoldedForOthers);
        }
        Ok(true)
    }
}
