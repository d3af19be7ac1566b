//! Folding: the overlays of a stripe become part of its units, and their records in the journals are free.
//!
//! Where few blocks are touched, only those are written again (`patch.rs`). Else, or where a unit is missing or damaged,
//! the stripe is read as it stands and written whole, by the same operation as any full write.

use std::rc::Rc;

use futures_util::StreamExt;
use types::code_probe::{CodeProbe, hit};
use types::{GroupId, Refusal, StripeKey};

use super::stripe::Stripe;
use crate::server::{Server, count};

/// Time between looks, in microseconds.
const LOOK_US: u64 = 200_000;
/// Without writes or reads for so long the brick is idle: it folds everything.
const IDLE_US: u64 = 1_000_000;
/// Journal fill, in per cent, from which stripes are folded although the brick is busy. The later, the more overlays a
/// stripe has gathered.
const FILL_BUSY: u8 = 40;
/// Stripes folded at once: most of a fold is waiting for syncs.
const TOGETHER: usize = 16;
/// Stripes folded per look, of those with overlays here, and of those that others have told of.
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
                        tracing::debug!(%refusal, "a fold is put off");
                    }
                }
            }
            if pressed && folded == 0 {
                // A full brick, perhaps: each attempt may have cost an epoch.
                self.world.sleep(LOOK_US).await;
            }
        }
    }

    /// Whether the journal of this brick, or of one that shares a group with it, fills up.
    fn is_journal_pressed(&self) -> bool {
        let others = self.pressure.borrow().values().map(|known| known.journal_fill).max();
        self.fill().max(others.unwrap_or(0)) >= FILL_BUSY
    }

    /// Stripes of this brick's groups with overlays, the oldest in the journal first; then those of which only others know.
    fn fold_candidates(&self) -> Vec<(StripeKey, GroupId)> {
        let primary = self.primary.borrow();
        let serves =
            |id: GroupId| primary.epoch(id).is_some_and(|epoch| primary.serving(id, epoch).is_some());
        let mine = |id: GroupId| serves(id) && primary.accepts(id);
        let mut candidates = self.slot.borrow().overlaid(mine, PER_LOOK);
        candidates.extend(self.take_unfolded(mine, PER_LOOK));
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
