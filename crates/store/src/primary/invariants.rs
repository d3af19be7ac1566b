//! Invariants of a group at its primary between two calls. They are asserted in release builds too.
//!
//! # Invariants
//! - Before the group is served, nothing is accepted, ordered or decided in the epoch.
//! - Every decided operation was ordered, and no operation up to it is open.
//! - An operation that is committed but not decided waits for an open operation with a smaller number.
//!
//! All of this is the primary's own state: no message of a slot, a client or the arbiter can make it false.

use types::Seq;

use super::{Phase, PrimaryGroup};

impl PrimaryGroup {
    /// Asserts the invariants.
    pub(super) fn check(&self) {
        let open = self.ops.first_key_value().map(|(seq, _)| *seq);
        if !matches!(self.phase, Phase::Serving) {
            assert!(
                self.counter == 0 && open.is_none() && self.unstable.is_empty() && self.joining.is_none(),
                "the take-over would settle without an operation that is already open"
            );
            return;
        }
        let last = Seq::new(self.config.epoch, self.counter);
        assert_eq!(
            self.decided.epoch(),
            self.config.epoch,
            "slots would take an operation of another epoch for decided in this one"
        );
        assert!(self.decided <= last, "an operation would count as decided before it is ordered");
        assert!(
            self.ops.last_key_value().is_none_or(|(seq, _)| *seq <= last)
                && self.committed.last_key_value().is_none_or(|(seq, _)| *seq <= last),
            "a number would be given twice, and one operation taken for the other"
        );
        assert!(
            open.is_none_or(|open| open > self.decided),
            "an operation that a live slot may lack would count as decided"
        );
        assert!(
            self.committed.first_key_value().is_none_or(|(seq, _)| open.is_some_and(|open| open < *seq)),
            "a decision would never be made, and readers and folds would wait for it forever"
        );
        if let Some(joining) = &self.joining {
            joining.check(&self.config);
        }
    }
}
