//! Purge: frees the space of removed objects.
//!
//! The brick goes by the units that it holds, never by the length of a file. Units are forgotten in parts, over
//! several turns, so that the loaded units and the pending erasures are bounded. The progress of a purge is recorded
//! nowhere except in the units that are left, so after a restart it goes on when it is asked for again.

use types::limits::PURGE_MAX;
use types::messages::brick::{Purge, Purged};
use types::{ObjectId, Refusal, StripeKey};

use crate::checkpoint::ERASED_MAX;
use crate::journal::Priority;
use crate::record;
use crate::server::Server;

/// Most units of an object that are forgotten in one part.
const PART: usize = 256;
/// How long a purge works before its answer, in microseconds: the caller asks again for the rest.
const ANSWER_US: u64 = 500_000;
/// While clients send requests, a purge takes this fraction (1/n) of the time.
const BUSY_SHARE: u64 = 3;
/// The brick counts as idle so long after the last request of a client, in microseconds.
const IDLE_US: u64 = 100_000;
/// Longest pause that lets clients go first, in microseconds.
const PAUSE_MAX_US: u64 = 100_000;

impl Server {
    /// Forgets objects durably, or as many of their units as time allows.
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
        let lsn = self.journal.last();
        self.journal.request_sync();
        self.journal.durable(lsn).await?;
        assert!(
            self.journal.durable_upto() >= lsn,
            "a power cut could bring back units that nobody asks to purge again"
        );
        Ok(Purged { left })
    }

    /// Forgets a part of each object, so that a long one does not delay the others. Returns the objects that are not
    /// done.
    async fn purge_round(&self, objects: Vec<ObjectId>) -> Result<Vec<ObjectId>, Refusal> {
        let mut left = Vec::new();
        for object in objects {
            if self.purge_part(object).await? {
                left.push(object);
            }
            self.world.yield_now().await;
        }
        // Nobody waits for these records before the answer, so they share the syncs of other operations.
        if self.slot.borrow().erased() >= ERASED_MAX {
            self.erase_or_fail().await?;
        }
        Ok(left)
    }

    /// Forgets the units of an object's first stripes; returns whether there are more.
    async fn purge_part(&self, object: ObjectId) -> Result<bool, Refusal> {
        let stripes = loop {
            self.journal.wait_for_space(Priority::Housekeeping, 4096).await?;
            // If RAM runs short, some units are evicted while others are loaded. Once all are resident, no await
            // follows.
            let (stripes, missing) = self.part_of(object);
            if missing.is_empty() {
                break stripes;
            }
            for key in missing {
                self.load(key).await?;
            }
        };
        assert!(stripes > 0, "a purge that forgets nothing would be asked for without end");
        let record = record::Drop { object, stripes };
        let appended = self.journal.append(&record, &types::Buf::empty());
        self.mark_units_behind(&record);
        {
            let mut slot = self.slot.borrow_mut();
            slot.apply_drop(object, stripes, self.stamp(appended));
            let left = slot.stripes_of(object, 0, 1);
            assert!(
                left.iter().all(|key| key.stripe >= stripes),
                "space would stay taken that nobody asks to free"
            );
            assert!(slot.is_dropped(object), "a late operation would bring the object back");
        }
        tracing::debug!(%object, stripes, brick = %self.options.brick, "object forgotten up to this stripe");
        Ok(stripes < u64::MAX)
    }

    /// Returns how many first stripes of an object to forget, such that at most [`PART`] of their units are in RAM
    /// and at most as many at rest; `u64::MAX` if this covers the whole object. Also returns those that are only at
    /// rest.
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

    /// This primary may have filled units of the object on a slot that joins, after that slot had forgotten them. So
    /// it compares these stripes again.
    fn mark_units_behind(&self, drop: &record::Drop) {
        let mut primary = self.primary.borrow_mut();
        if primary.has_joins() {
            let slot = self.slot.borrow();
            slot.units_of(drop.object, drop.stripes).for_each(|(key, group)| primary.mark_behind(group, key));
        }
    }

    /// Lets clients go first: a purge is not urgent.
    async fn give_way(&self, took: u64) {
        if self.busy_at.get() + IDLE_US > self.world.now() {
            self.world.sleep((took * BUSY_SHARE).min(PAUSE_MAX_US)).await;
        }
    }
}
