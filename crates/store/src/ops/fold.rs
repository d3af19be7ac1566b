//! Folding: a stripe with overlays is read as it stands and written whole, and the overlays' records are free.
//!
//! The new units go to fresh space by the same operation as any full write, so folding needs no protocol of its own.

use std::rc::Rc;

use types::{GroupId, Refusal, StripeKey};

use super::stripe::Stripe;
use crate::server::{Server, count};

/// Time between looks, in microseconds.
const LOOK_US: u64 = 200_000;
/// Without writes or reads for so long the brick is idle: it folds everything.
const IDLE_US: u64 = 1_000_000;
/// Journal fill, in per cent, from which stripes are folded although the brick is busy.
const FILL_BUSY: u8 = 40;
/// Stripes folded at once.
const TOGETHER: usize = 4;
/// Stripes folded per look.
const PER_LOOK: usize = 64;

impl Server {
    /// Folds stripes when there is time, or need.
    pub(crate) async fn fold_for_ever(self: Rc<Server>) {
        let mut cursor = None;
        while !self.journal.has_failed() {
            let pressed = self.journal.fill() >= FILL_BUSY;
            if !pressed {
                self.world.sleep(LOOK_US).await;
            }
            let idle = self.world.now() >= self.busy_at.get() + IDLE_US;
            if !pressed && !idle {
                continue;
            }
            let candidates = self.fold_candidates(pressed, &mut cursor);
            let mut folded = 0;
            for together in candidates.chunks(TOGETHER) {
                let folds = together.iter().map(|(key, id)| self.fold(*key, *id));
                for fold in futures_util::future::join_all(folds).await {
                    match fold {
                        Ok(done) => folded += usize::from(done),
                        Err(refusal) => tracing::debug!(%refusal, "a fold is put off"),
                    }
                }
            }
            if pressed && folded == 0 {
                self.world.sleep(LOOK_US).await;
            }
        }
    }

    /// Stripes of this brick's groups with overlays: the oldest in the journal first if it is pressed.
    fn fold_candidates(&self, pressed: bool, cursor: &mut Option<StripeKey>) -> Vec<(StripeKey, GroupId)> {
        let slot = self.slot.borrow();
        let found = if pressed {
            slot.overlaid_upto(self.journal.older_half(), PER_LOOK * 8)
        } else {
            slot.overlaid(*cursor, PER_LOOK * 8)
        };
        *cursor = found.last().filter(|_| found.len() == PER_LOOK * 8).map(|(key, _)| *key);
        let primary = self.primary.borrow();
        let mine =
            |id: &GroupId| primary.epoch(*id).is_some_and(|epoch| primary.serving(*id, epoch).is_some());
        found.into_iter().filter(|(_, id)| mine(id)).take(PER_LOOK).collect()
    }

    /// Folds one stripe. False if there was nothing to fold.
    async fn fold(&self, key: StripeKey, id: GroupId) -> Result<bool, Refusal> {
        let turn = self.lanes.enter(key);
        turn.come().await;
        let epoch = self.primary.borrow().epoch(id).ok_or(Refusal::NotPrimary)?;
        let stripe = Stripe::look(self, id, epoch, key).await?;
        if stripe.shape.overlays.is_empty() || self.slot.borrow().is_dropped(key.object) {
            return Ok(false);
        }
        let units = stripe.units().await?;
        let plan = self.plan_full(&stripe, units);
        self.carry(&stripe, plan, Vec::new()).await?;
        count(&self.counters.folded);
        Ok(true)
    }
}
