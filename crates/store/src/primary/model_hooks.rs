//! For the model checker: a fingerprint of a primary's state.

use std::hash::{Hash, Hasher};

use types::GroupId;
use types::messages::brick::DedupWindow;

use super::{Phase, PrimaryCore};

impl PrimaryCore {
    /// The seen writes of every client.
    pub(crate) fn windows(&self, id: GroupId) -> Vec<DedupWindow> {
        self.groups.get(&id).map_or_else(Vec::new, |group| group.clients.windows())
    }

    /// Feeds the state that determines the next steps of this primary to a hasher, for the model checker. The
    /// `SlotProgress` is left out, because in the model decisions may arrive at any time.
    pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
        for (id, group) in &self.groups {
            (id, group.config.epoch, group.me, group.counter, group.decided).hash(state);
            match &group.phase {
                Phase::Promising { tails } => (0u8, format!("{tails:?}")).hash(state),
                Phase::Settling { told } => (1u8, told).hash(state),
                Phase::Serving => 2u8.hash(state),
            }
            group.ops.iter().for_each(|(seq, op)| (seq, op.awaited).hash(state));
            (&group.committed, &group.unstable).hash(state);
            for (client, seen) in &group.clients.0 {
                (client, seen.acked, &seen.seqs).hash(state);
                seen.notes.values().for_each(|kept| kept.seq.hash(state));
            }
        }
    }
}
