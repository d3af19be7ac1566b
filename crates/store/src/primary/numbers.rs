//! The numbers of an epoch, which end.

use types::{Epoch, GroupId, Seq};

use super::PrimaryCore;

impl PrimaryCore {
    /// Whether the epoch has no number for another operation: it takes a new epoch to go on.
    pub(crate) fn is_exhausted(&self, id: GroupId, epoch: Epoch) -> bool {
        self.in_epoch(id, epoch).is_some_and(|group| Seq::new(epoch, group.counter).is_last())
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectId;

    use super::*;
    use crate::primary::tests::{GROUP, serving};

    #[test]
    fn an_epoch_without_another_number_orders_nothing() {
        let mut core = serving(&[]);
        core.groups.get_mut(&GROUP).expect("served").counter = (1 << 40) - 2;
        let mut order = |stripe| {
            let key = types::StripeKey { object: ObjectId(1), stripe };
            core.order(GROUP, Epoch(1), key, 1, false, Vec::new()).map(|order| order.seq)
        };
        assert!(order(0).expect("one is left").is_last());
        assert_eq!(order(1), None);
        assert!(core.is_exhausted(GROUP, Epoch(1)));
        assert!(!core.is_exhausted(GROUP, Epoch(2)), "another epoch begins with the first number");
    }
}
