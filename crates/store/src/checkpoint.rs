//! Checkpoints move state from the journal to descriptors: they keep the journal short and RAM bounded.
//!
//! For the oldest segments: decided units go to their descriptor pages, records that are still needed are copied to
//! the end of the journal, and a snapshot of each group is written. Then the segments are free.

use std::rc::Rc;

use types::code_probe::{CodeProbe, hit};
use types::limits::{BLOCK, UNIT_DEFAULT};
use types::{Buf, Refusal, Seq, StripeKey};

use crate::error::BrickError;
use crate::journal::{DiskFailed, Priority};
use crate::server::Server;
use crate::slot::LiveRecord;
use crate::table::{Change, UNSYNCED_PAGES_MAX};

/// Time between looks, in microseconds.
const LOOK_US: u64 = 50_000;
/// Journal fill, in per cent, at which a checkpoint begins.
const FILL_BEGIN: u8 = 40;
/// Journal fill, in per cent, from which segments are emptied even if most of them must be copied.
const FILL_URGENT: u8 = 75;
/// Units that may be erased before their descriptors must be removed: until then they take RAM.
pub(crate) const ERASED_MAX: usize = 4096;
/// Free places for descriptors below which the places of erased units are freed at once.
const PLACES_MIN: usize = 1024;
/// Approximate bytes of RAM of a resident unit: checksums, runs, tree nodes.
const UNIT_BYTES: u64 = 512 + (UNIT_DEFAULT as u64 / BLOCK as u64) * 4;

/// Most units that may be resident.
const RESIDENT_MAX: u64 = 1 << 18;

impl From<DiskFailed> for BrickError {
    fn from(_: DiskFailed) -> BrickError {
        BrickError::Disk(std::io::Error::other("it counts as lost"))
    }
}

impl Server {
    /// Units that may be resident: a quarter of the memory for units, and a number that can be walked in one turn.
    fn resident_max(&self) -> usize {
        (self.units_memory / 4 / UNIT_BYTES).clamp(256, RESIDENT_MAX) as usize
    }

    /// How much of the room for overlays is taken, in per cent: of the journal or of their share of RAM (a quarter of
    /// it), whichever is fuller. With very small writes RAM runs short first.
    pub(crate) fn fill(&self) -> u8 {
        let share = (self.units_memory / 4).max(1);
        let taken = self.slot.borrow().overlay_bytes() as u64 * 100 / share;
        self.journal.fill().max(taken.min(100) as u8)
    }

    /// Whether less than half of the oldest segment would have to be copied forward. Folds reduce this part.
    fn is_oldest_mostly_free(&self) -> bool {
        let (oldest, _) = self.journal.oldest();
        self.slot.borrow().live_bytes(oldest) < self.superblock.segment / 2
    }

    /// Whether few places for descriptors are free, and some used ones are no longer needed.
    fn is_short_of_places(&self) -> bool {
        self.places() < PLACES_MIN && self.slot.borrow().erased() > 0
    }

    /// Checkpoints when the journal fills or too much is dirty.
    pub(crate) async fn checkpoint_for_ever(self: Rc<Server>) {
        while !self.journal.has_failed() {
            let resident = self.slot.borrow().resident_units();
            let fill = self.journal.fill();
            let worth = fill >= FILL_URGENT || (fill >= FILL_BEGIN && self.is_oldest_mostly_free());
            if !worth && resident <= self.resident_max() && !self.is_short_of_places() {
                self.world.sleep(LOOK_US).await;
                continue;
            }
            if let Err(error) = self.checkpoint().await {
                tracing::error!(%error, "a checkpoint failed: the brick counts as lost");
                self.journal.fail();
                return;
            }
            self.slot.borrow_mut().evict(self.resident_max() * 3 / 4);
            // The rest may be overlays, which only folds can free: give them time.
            self.world.sleep(LOOK_US / 10).await;
        }
    }

    /// Empties the oldest segment, or all but the current one if RAM is short.
    pub(crate) async fn checkpoint(&self) -> Result<(), BrickError> {
        let _one = self.checkpointing.lock().await;
        let (oldest, live) = self.journal.oldest();
        let current = self.journal.serial();
        let short_of_ram = self.slot.borrow().resident_units() > self.resident_max();
        let upto = if short_of_ram || live <= 1 || self.is_short_of_places() {
            hit(CodeProbe::CheckpointShort);
            current
        } else {
            oldest
        };
        // The journal may move on to another segment meanwhile. This checkpoint does not cover records and states in
        // the segment that was current when it began.
        let freed = upto.min(current.saturating_sub(1));
        let live_records = self.slot.borrow().live_records(freed);
        for (key, seq) in live_records {
            self.copy_forward(key, seq).await?;
        }
        self.snapshot_groups(upto).await?;
        self.slot.borrow_mut().drop_tombstones(self.journal.oldest_durable());
        // As much as the first pass finds; what became dirty meanwhile only where a segment would be freed.
        let mut serial = upto;
        while self.write_dirty(serial).await? {
            serial = freed;
        }
        self.journal.request_sync();
        self.journal.durable(self.journal.last()).await?;
        self.journal.free_upto(freed);
        Ok(())
    }

    /// Writes the descriptors of units whose records lie in segments up to `serial`. Returns whether there were any.
    async fn write_dirty(&self, serial: u64) -> Result<bool, BrickError> {
        let (mut after, mut any) = (None, false);
        loop {
            let max = UNSYNCED_PAGES_MAX as usize / 2;
            let changes = self.slot.borrow_mut().take_changes(serial, max, &mut after);
            if !changes.is_empty() {
                any = true;
                self.write_changes(changes).await?;
            }
            if after.is_none() {
                return Ok(any);
            }
        }
    }

    /// Removes the descriptors of erased units.
    async fn erase(&self) -> Result<(), BrickError> {
        let _one = self.checkpointing.lock().await;
        let mut erased = self.slot.borrow().erased();
        while erased > 0 {
            let changes = self.slot.borrow().erasures(erased.min(UNSYNCED_PAGES_MAX as usize / 2));
            erased -= changes.len().min(erased).max(1);
            self.write_changes(changes).await?;
        }
        Ok(())
    }

    /// Like `erase`; if it fails, the brick counts as lost.
    pub(crate) async fn erase_or_fail(&self) -> Result<(), Refusal> {
        self.erase().await.map_err(|error| {
            tracing::error!(%error, "descriptors cannot be erased: the brick counts as lost");
            self.journal.fail();
            Refusal::DiskFailed
        })
    }

    /// Writes descriptors, durably.
    async fn write_changes(&self, changes: Vec<Change>) -> Result<(), BrickError> {
        let new = changes.iter().filter(|change| change.is_new).count();
        self.described.set(Some(self.table.len() + new));
        // A descriptor must not be ahead of the durable journal: a lost decision could be made differently.
        self.journal.request_sync();
        self.journal.durable(self.journal.last()).await?;
        let erased: Vec<_> = changes.iter().filter(|c| c.descriptor.is_none()).map(|c| c.key).collect();
        self.table.write(changes).await?;
        self.disk.sync().await?;
        let mut slot = self.slot.borrow_mut();
        erased.into_iter().for_each(|key| slot.erased_written(key));
        self.described.set(None);
        Ok(())
    }

    /// Copies a record that is still needed to the end of the journal.
    async fn copy_forward(&self, key: StripeKey, seq: Seq) -> Result<(), BrickError> {
        let live = self.slot.borrow().live_record(key, seq);
        // The operation was folded or aborted meanwhile.
        let Some(LiveRecord { record, position }) = live else { return Ok(()) };
        let bytes = if position.len == 0 { Buf::empty() } else { self.journal.read(position).await? };
        self.journal.wait_for_space(Priority::Housekeeping, bytes.len() + 4096).await?;
        if !self.slot.borrow().is_record_live(record.key, record.seq) {
            return Ok(());
        }
        hit(CodeProbe::CopiedForward);
        let appended = self.journal.append(&record, &bytes);
        let stamp = self.stamp(appended);
        self.slot.borrow_mut().relocated(record.key, record.seq, appended.position, stamp);
        Ok(())
    }

    /// Writes snapshots of groups, so that their older records are no longer needed.
    async fn snapshot_groups(&self, upto: u64) -> Result<(), BrickError> {
        let stale = self.slot.borrow().stale_groups(upto);
        for id in stale {
            self.journal.wait_for_space(Priority::Housekeeping, 64 << 10).await?;
            let Some(snapshot) = self.slot.borrow().snapshot(id) else { continue };
            let (configured, floor) = self.slot.borrow().beside_snapshot(id);
            // The group counts as being in the segment of the first of these records: all are written again with it.
            let appended = self.journal.append(&snapshot, &Buf::empty());
            self.slot.borrow_mut().snapshotted(id, self.stamp(appended));
            configured.map(|configured| self.journal.append(&configured, &Buf::empty()));
            floor.map(|floor| self.journal.append(&floor, &Buf::empty()));
        }
        Ok(())
    }
}
