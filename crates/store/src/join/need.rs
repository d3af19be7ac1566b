//! What a slot that joins lacks of a stripe.

use std::collections::BTreeMap;

use types::messages::brick::UnitState;
use types::{Seq, StripeKey};

/// What a slot should have of each stripe, from the lists of the live slots that were asked. A parity slot knows
/// every unit. Data slots know only their own units; for a parity unit their lists are combined.
pub(super) fn expected(lists: Vec<Vec<UnitState>>) -> BTreeMap<StripeKey, UnitState> {
    let mut all: BTreeMap<StripeKey, UnitState> = BTreeMap::new();
    for unit in lists.into_iter().flatten() {
        let nothing = UnitState { key: unit.key, base: Seq::NONE, blocks: 0, dirty: false };
        let one = all.entry(unit.key).or_insert(nothing);
        one.base = one.base.max(unit.base);
        one.blocks = one.blocks.max(unit.blocks);
        one.dirty |= unit.dirty;
    }
    all
}

/// What a stripe needs for a slot to be level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    Nothing,
    Fold,
    Forget,
    /// The unit. A unit that counts as newer must be forgotten first.
    Fill {
        forget: bool,
    },
}

pub(super) fn need(expected: Option<&UnitState>, found: Option<&UnitState>) -> Need {
    let has_nothing = found.is_none_or(|found| found.blocks == 0 && !found.dirty);
    match (expected, found) {
        (Some(expected), _) if expected.dirty => Need::Fold,
        // Nobody else knows the stripe: it was purged, or is all zeros. A unit of zeros would count as one that is held.
        (None, Some(_)) => Need::Forget,
        (None, None) => Need::Nothing,
        // Each slot remembers units of zeros only for a while, independently of the others.
        (Some(UnitState { blocks: 0, .. }), _) => {
            if has_nothing {
                Need::Nothing
            } else {
                Need::Forget
            }
        }
        (Some(expected), Some(found)) if found.base == expected.base && !found.dirty => Need::Nothing,
        (Some(expected), Some(found)) => Need::Fill { forget: found.dirty || found.base >= expected.base },
        (Some(_), None) => Need::Fill { forget: false },
    }
}
