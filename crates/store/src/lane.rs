//! Lanes: one operation at a time on a stripe, in the order in which they entered.
//!
//! Taking a place never waits and fixes the order. The wait for the turn comes later.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use types::{ObjectId, StripeKey};
use world::Notify;

#[derive(Default)]
struct Lane {
    /// Places in the order of entry: a number, and whether the place is shared.
    queue: VecDeque<(u64, bool)>,
    moved: Notify,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<StripeKey, Lane>,
    next: u64,
}

/// The lanes of all stripes.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Rc<RefCell<State>>);

/// A place in a lane, given up when dropped.
pub(crate) struct Ticket {
    lanes: Lanes,
    key: StripeKey,
    number: u64,
}

impl Lanes {
    /// Takes an exclusive place.
    pub(crate) fn enter(&self, key: StripeKey) -> Ticket {
        self.place(key, false)
    }

    /// Takes a place that is shared with adjacent shared places.
    pub(crate) fn enter_shared(&self, key: StripeKey) -> Ticket {
        self.place(key, true)
    }

    /// Stripes of a part of an object whose lanes are not empty.
    pub(crate) fn occupied(&self, object: ObjectId, stripes: Range<u64>) -> Vec<u64> {
        let key = |stripe| StripeKey { object, stripe };
        self.0.borrow().lanes.range(key(stripes.start)..key(stripes.end)).map(|(key, _)| key.stripe).collect()
    }

    fn place(&self, key: StripeKey, shared: bool) -> Ticket {
        let mut state = self.0.borrow_mut();
        state.next += 1;
        let number = state.next;
        state.lanes.entry(key).or_default().queue.push_back((number, shared));
        Ticket { lanes: self.clone(), key, number }
    }
}

impl Ticket {
    /// Waits until no place comes before this one except those that it may share with.
    pub(crate) async fn wait(&self) {
        loop {
            let moved = {
                let state = self.lanes.0.borrow();
                let Some(lane) = state.lanes.get(&self.key) else { return };
                let moved = lane.moved.wait();
                let mut before = lane.queue.iter().take_while(|(number, _)| *number < self.number);
                let shares = lane.queue.iter().any(|(number, shared)| *number == self.number && *shared);
                if before.all(|(_, shared)| *shared && shares) {
                    return;
                }
                moved
            };
            moved.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.lanes.0.borrow_mut();
        let Some(lane) = state.lanes.get_mut(&self.key) else { return };
        lane.queue.retain(|(number, _)| *number != self.number);
        if lane.queue.is_empty() {
            state.lanes.remove(&self.key);
        } else {
            lane.moved.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_lane_is_entered_in_order_and_shared_where_asked() {
        let lanes = Lanes::default();
        let key = StripeKey::default();
        let (first, second) = (lanes.enter(key), lanes.enter(key));
        let (third, fourth) = (lanes.enter_shared(key), lanes.enter_shared(key));
        assert!(second.wait().now_or_never().is_none());
        assert!(first.wait().now_or_never().is_some());
        drop(first);
        assert!(third.wait().now_or_never().is_none());
        assert!(second.wait().now_or_never().is_some());
        drop(second);
        assert!(third.wait().now_or_never().is_some());
        assert!(fourth.wait().now_or_never().is_some());
    }
}
