//! The one task that commits.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use types::Refusal;
use types::wire::{Codec, from_bytes};

use super::Shared;
use crate::state::{Change, Outcome};

/// Most changes of one commit: a batch is held in memory.
const BATCH_MAX: usize = 1024;

/// A change that waits, and where its answer goes.
pub(super) struct Queued {
    change: Change,
    seat: Rc<RefCell<Seat>>,
}

/// Where somebody waits for an answer.
#[derive(Default)]
struct Seat {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Shared {
    /// Has a change done and made durable.
    pub(super) async fn submit<R: Codec>(&self, change: Change) -> Result<R, Refusal> {
        let seat = Rc::new(RefCell::new(Seat::default()));
        self.queue.borrow_mut().push(Queued { change, seat: Rc::clone(&seat) });
        self.queued.notify();
        let outcome = poll_fn(|context| {
            let mut seat = seat.borrow_mut();
            match seat.outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    seat.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        from_bytes(&outcome.await?).map_err(|_| Refusal::MetaFailed)
    }

    /// Tells the tasks what a change may have set off.
    pub(super) fn look_around(&self, purges_before: u64) {
        let state = self.state.borrow();
        if state.live.purges > purges_before {
            self.purges.notify();
        }
        if state.has_failed() {
            self.failed.notify();
        }
    }
}

/// Commits whatever waits, again and again.
pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let queued = shared.queued.wait();
        if shared.queue.borrow().is_empty() {
            queued.await;
        }
        // Whoever is ready to ask does so first, and shares the commit.
        shared.world.yield_now().await;
        let batch: Vec<Queued> = {
            let mut queue = shared.queue.borrow_mut();
            let count = queue.len().min(BATCH_MAX);
            queue.drain(..count).collect()
        };
        let (changes, seats): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|queued| (queued.change, queued.seat)).unzip();
        let purges = shared.state.borrow().live.purges;
        let outcomes = shared.state.borrow_mut().run_batch(changes);
        for (seat, outcome) in seats.into_iter().zip(outcomes) {
            let mut seat = seat.borrow_mut();
            seat.outcome = Some(outcome);
            if let Some(waker) = seat.waker.take() {
                waker.wake();
            }
        }
        shared.look_around(purges);
    }
}
