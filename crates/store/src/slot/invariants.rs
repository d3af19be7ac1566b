//! What must hold of a slot between two calls. It is asserted in release builds too: a brick that ends can be replaced, one
//! that goes on with a wrong account of its blocks or its promises cannot be believed any more.
//!
//! # Invariants
//! - An epoch is served only if it is the one that was promised last.
//! - What is held, or known of from a replay, is not decided yet.
//! - A unit is in RAM or noted as erased, never both; what has changed of it is noted, or stands in a descriptor at rest.
//! - An operation that is held has as many blocks as it says, and a checksum for each of them, or for each of its ranges.
//! - Overlays in RAM, blocks that wait for an operation and descriptors without a place add up to what is counted.
//!
//! Only what this code has established itself is asserted. What a message says is compared before, and refused.

use types::StripeKey;
use types::messages::brick::OpKind;

use super::patch::blocks_of;
use super::{KEPT_BYTES, SlotCore, SlotGroup};
use crate::record::Hold;
use crate::space::RUNS_MAX;

impl SlotGroup {
    /// What must hold of a group.
    pub(super) fn check(&self) {
        assert!(
            self.served.is_none_or(|served| served == self.promised),
            "writes of an old primary would be taken beside those of the one that was promised a newer epoch"
        );
        assert!(
            self.held.first_key_value().is_none_or(|(first, _)| *first > self.decided),
            "a take-over would be told that a decided operation is open, and could abort what was shown"
        );
        assert!(
            self.past.first_key_value().is_none_or(|(first, _)| *first > self.decided),
            "whose writes a decided operation carries would be forgotten, and a repeated one take effect again"
        );
    }
}

impl SlotCore {
    /// What must hold of a unit that was changed, loaded or dropped.
    pub(super) fn check_unit(&self, key: StripeKey) {
        let is_unplaced = self.unplaced.contains(&key);
        let Some(unit) = self.units.get(&key) else {
            assert!(!is_unplaced, "a place among the descriptors would be kept for a unit that is gone");
            return;
        };
        assert!(
            !self.erased.contains_key(&key),
            "the next checkpoint would take away the descriptor of a unit that exists"
        );
        assert!(
            unit.base.is_some() || !unit.pend.is_empty() || !unit.overlays.is_empty(),
            "a unit without any content would stay in RAM, and be listed as if there were something"
        );
        assert!(
            unit.base.is_none() || unit.dirty.is_some() || unit.at_rest,
            "no checkpoint would write the unit, and its place be lost when its journal segment is freed"
        );
        assert!(
            !is_unplaced || unit.dirty.is_some() || !unit.pend.is_empty(),
            "a place among the descriptors would be kept for ever for a unit that has its own"
        );
        assert!(
            unit.overlays.len() * KEPT_BYTES <= self.overlay_bytes,
            "overlays would take RAM that nobody counts, and writers not be held up before it is gone"
        );
    }
}

/// What must hold of an operation before it is held.
pub(super) fn check_hold(hold: &Hold) {
    let Hold { kind, blocks, runs, fresh, crcs, spans, .. } = hold;
    let lies_over = matches!(kind, OpKind::Overlay | OpKind::Zero);
    assert!(
        hold.slot < 64 && hold.participants & 1 << hold.slot != 0,
        "a take-over would not count this slot's copy, and forward the operation without it"
    );
    assert_eq!(spans.is_empty(), !lies_over, "bytes would be laid nowhere, or over the unit that they replace");
    assert_eq!(blocks_of(runs), u64::from(*blocks), "a read would end early, or show blocks of another unit");
    let sums = if lies_over { spans.len() } else { *blocks as usize };
    assert_eq!(crcs.len(), sums, "bytes without a checksum could be damaged, and nobody would see it");
    assert!(runs.len() <= RUNS_MAX, "a descriptor has no room for so many runs: the unit could never be at rest");
    assert!(!lies_over || runs.is_empty(), "the blocks of an overlay would never be given back");
    assert!(*kind == OpKind::Patch || fresh == runs, "some blocks would have no owner after an abort");
    assert!(blocks_of(fresh) <= u64::from(*blocks), "blocks would be taken that no byte of the unit lies in");
    assert!(*kind != OpKind::Patch || hold.base < hold.seq, "a patch would be made of what comes after it");
}

/// Takes the weight of overlays that are gone from what is counted.
pub(super) fn uncount(overlay_bytes: &mut usize, gone: usize) {
    assert!(gone <= *overlay_bytes, "overlays would weigh more than all RAM, and no write be accepted any more");
    *overlay_bytes -= gone;
}
