//! Invariants of a slot between two calls. They are asserted in release builds too: a brick that stops can be
//! replaced, but one that goes on with wrong blocks or promises cannot be trusted.
//!
//! # Invariants
//! - An epoch is served only if it is the one that was promised last.
//! - Operations that are held, or applied by a replay, are not decided yet.
//! - A unit is in RAM or noted as erased, never both. Its changes are marked as dirty, or are in its descriptor.
//! - A held operation has as many blocks as it says, and a checksum for each block or each of its spans.
//! - The counters of overlay bytes, blocks of staged units and descriptors without a place are exact.
//!
//! Only facts that this code has established itself are asserted. Contents of messages are checked before, and
//! refused.

use types::StripeKey;
use types::messages::brick::OpKind;

use super::patch::blocks_of;
use super::{ENTRY_BYTES, SlotCore, SlotGroup};
use crate::record::PrepareRecord;
use crate::space::RUNS_MAX;

impl SlotGroup {
    /// Asserts the invariants of a group.
    pub(super) fn check(&self) {
        assert!(
            self.served.is_none_or(|served| served == self.promised),
            "writes of an old primary would be taken beside those of the one that was promised a newer epoch"
        );
        assert!(
            self.held.first_key_value().is_none_or(|(first, _)| *first > self.decided),
            "a take-over would take a decided operation for an open one, and could abort it after it was shown"
        );
        assert!(
            self.applied.first_key_value().is_none_or(|(first, _)| *first > self.decided),
            "the writes of a decided operation would be forgotten, and a repeated one would take effect again"
        );
    }
}

impl SlotCore {
    /// Asserts the invariants of a unit that was changed, loaded or dropped.
    pub(super) fn check_unit(&self, key: StripeKey) {
        let is_unplaced = self.unplaced.contains(&key);
        let Some(unit) = self.units.get(&key) else {
            assert!(!is_unplaced, "a place among the descriptors would be reserved for a unit that is gone");
            return;
        };
        assert!(
            !self.erased.contains_key(&key),
            "the next checkpoint would take away the descriptor of a unit that exists"
        );
        assert!(
            unit.base.is_some() || !unit.pending.is_empty() || !unit.overlays.is_empty(),
            "a unit without any content would stay in RAM and be listed as existing"
        );
        assert!(
            unit.base.is_none() || unit.dirty.is_some() || unit.at_rest,
            "no checkpoint would write the unit, and it would be lost when its journal segment is freed"
        );
        assert!(
            !is_unplaced || unit.dirty.is_some() || !unit.pending.is_empty(),
            "a place among the descriptors would be reserved forever for a unit that has one"
        );
        assert!(
            unit.overlays.len() * ENTRY_BYTES <= self.overlay_bytes,
            "overlays would take RAM that nobody counts, and writers would not wait before RAM runs out"
        );
    }
}

/// Asserts the invariants of an operation before it is held.
pub(super) fn check_record(record: &PrepareRecord) {
    let PrepareRecord { kind, blocks, runs, fresh, crcs, spans, .. } = record;
    let lies_over = matches!(kind, OpKind::Overlay | OpKind::Zero);
    assert!(
        record.slot < 64 && record.participants & 1 << record.slot != 0,
        "a take-over would not count this slot's copy, and forward the operation without it"
    );
    assert_eq!(
        spans.is_empty(),
        !lies_over,
        "bytes would be laid nowhere, or over the unit that they should replace"
    );
    assert_eq!(blocks_of(runs), u64::from(*blocks), "a read would end early, or show blocks of another unit");
    let sums = if lies_over { spans.len() } else { *blocks as usize };
    assert_eq!(crcs.len(), sums, "bytes without a checksum could be damaged, and nobody would see it");
    assert!(
        runs.len() <= RUNS_MAX,
        "a descriptor has no room for so many runs: the unit could never be at rest"
    );
    assert!(!lies_over || runs.is_empty(), "the blocks of an overlay would never be freed");
    assert!(*kind == OpKind::Patch || fresh == runs, "some blocks would have no owner after an abort");
    assert!(
        blocks_of(fresh) <= u64::from(*blocks),
        "blocks would be allocated that hold no byte of the unit"
    );
    assert!(*kind != OpKind::Patch || record.base < record.seq, "a patch would be made of a later base");
}

/// Subtracts the weight of overlays that are gone.
pub(super) fn uncount(overlay_bytes: &mut usize, gone: usize) {
    assert!(
        gone <= *overlay_bytes,
        "the counter of overlay bytes would wrap around, and no write would be accepted any more"
    );
    *overlay_bytes -= gone;
}
