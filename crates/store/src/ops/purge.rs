//! Objects are gone for good: their space comes back.
//!
//! The brick goes by what it holds, never by what the length of a file says. Units go in parts, in turns with everything
//! else: what is loaded of them, and what their erasing needs, is bounded. Nothing but the units themselves says how far a
//! purge has come, so it goes on after a restart as soon as it is asked for again.

use types::limits::PURGE_MAX;
use types::messages::brick::{Purge, Purged};
use types::{ObjectId, Refusal, StripeKey};

use crate::checkpoint::ERASED_MAX;
use crate::journal::Priority;
use crate::record;
use crate::server::Server;

/// Units of an object that are forgotten at once.
const PART: usize = 256;
/// How long a purge goes on before it is answered, in microseconds: the caller asks again for what is left.
const ANSWER_US: u64 = 500_000;
/// While clients ask for something, a purge takes one part of the time in so many.
const BUSY_SHARE: u64 = 3;
/// So long after a client's last request the brick counts as idle, in microseconds.
const IDLE_US: u64 = 100_000;
/// Longest pause for the sake of clients, in microseconds.
const PAUSE_MAX_US: u64 = 100_000;

impl Server {
    /// Forgets objects durably, or as much of them as there is time for.
    pub(crate) async fn purge(&self, purge: Purge) -> Result<Purged, Refusal> {
        if purge.objects.len() > PURGE_MAX {
            return Err(Refusal::Malformed);
        }
        let _one = self.purging.lock().await;
        let until = self.world.now() + ANSWER_US;
        let mut left = purge.objects;
        loop {
            let begun = self.world.now();
            left = self.purge_round(left).await?;
            if left.is_empty() || self.world.now() >= until {
                break;
            }
            self.give_way(self.world.now() - begun).await;
        }
        self.journal.request_sync();
        self.journal.durable(self.journal.last()).await?;
        Ok(Purged { left })
    }

    /// Forgets a part of each object, so that a long one keeps no other waiting. Returns those of which something is left.
    async fn purge_round(&self, objects: Vec<ObjectId>) -> Result<Vec<ObjectId>, Refusal> {
        let mut left = Vec::new();
        for object in objects {
            if self.purge_part(object).await? {
                left.push(object);
            }
            self.world.yield_now().await;
        }
        // Nobody waits for these records before the answer: they share the syncs of others.
        if self.slot.borrow().erased() >= ERASED_MAX {
            self.erase_or_fail().await?;
        }
        Ok(left)
    }

    /// Forgets some units of an object, those of its first stripes; tells whether there are more.
    async fn purge_part(&self, object: ObjectId) -> Result<bool, Refusal> {
        let stripes = loop {
            self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
            // RAM may run short while units are loaded, so that some leave it again: once all are there, nothing waits.
            let (stripes, missing) = self.part_of(object);
            if missing.is_empty() {
                break stripes;
            }
            for key in missing {
                self.load(key).await?;
            }
        };
        let record = record::Drop { object, stripes };
        let appended = self.journal.append(&record, &types::Buf::empty());
        self.mark_units_behind(&record);
        self.slot.borrow_mut().apply_drop(object, stripes, self.stamp(appended));
        tracing::debug!(%object, stripes, brick = %self.options.brick, "an object is forgotten up to here");
        Ok(stripes < u64::MAX)
    }

    /// So many stripes of an object that at most [`PART`] of their units are in RAM, and as many at rest: all of them if
    /// there are no more. And which of them are at rest only.
    fn part_of(&self, object: ObjectId) -> (u64, Vec<StripeKey>) {
        let slot = self.slot.borrow();
        let at_rest = self.table.stripes_of(object, 0, PART, |key| !slot.is_erased(key));
        let in_ram = slot.stripes_of(object, 0, PART);
        let end = |keys: &[StripeKey]| match keys.len() < PART {
            true => u64::MAX,
            false => keys[PART - 1].stripe + 1,
        };
        let stripes = end(&at_rest).min(end(&in_ram));
        let missing = at_rest.into_iter().filter(|key| key.stripe < stripes && !slot.is_resident(*key));
        (stripes, missing.collect())
    }

    /// A slot that is brought level may have been given units of the object by this primary, after it was asked to forget
    /// them: those stripes are looked at again.
    fn mark_units_behind(&self, drop: &record::Drop) {
        let mut primary = self.primary.borrow_mut();
        if primary.joins() > 0 {
            let slot = self.slot.borrow();
            slot.units_of(drop.object, drop.stripes).for_each(|(key, group)| primary.mark_behind(group, key));
        }
    }

    /// Lets clients go first: a purge has time.
    async fn give_way(&self, took: u64) {
        if self.busy_at.get() + IDLE_US > self.world.now() {
            self.world.sleep((took * BUSY_SHARE).min(PAUSE_MAX_US)).await;
        }
    }
}
