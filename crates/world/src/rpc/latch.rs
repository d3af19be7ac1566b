//! A flag within one thread that is set once and stays set.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

/// A flag that any number of tasks can wait for.
#[derive(Default)]
pub(super) struct Latch {
    is_set: Cell<bool>,
    wakers: RefCell<BTreeMap<u64, Waker>>,
    count: Cell<u64>,
}

impl Latch {
    pub(super) fn is_set(&self) -> bool {
        self.is_set.get()
    }

    pub(super) fn set(&self) {
        self.is_set.set(true);
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_values().for_each(Waker::wake);
    }

    /// Waits until this is set.
    pub(super) async fn wait(&self) {
        self.or(std::future::pending::<()>()).await;
    }

    /// The output of `f`, or `None` (and `f` is dropped) once this is set.
    pub(super) async fn or<F: Future>(&self, f: F) -> Option<F::Output> {
        let mut f = pin!(f);
        let mut place = Place { latch: self, id: None };
        poll_fn(|cx| {
            if self.is_set() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = f.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            // `f` may have set the flag.
            if self.is_set() {
                return Poll::Ready(None);
            }
            place.keep(cx.waker());
            Poll::Pending
        })
        .await
    }
}

struct Place<'a> {
    latch: &'a Latch,
    id: Option<u64>,
}

impl Place<'_> {
    fn keep(&mut self, waker: &Waker) {
        let id = *self.id.get_or_insert_with(|| {
            self.latch.count.set(self.latch.count.get() + 1);
            self.latch.count.get()
        });
        let mut wakers = self.latch.wakers.borrow_mut();
        match wakers.get_mut(&id) {
            Some(kept) => kept.clone_from(waker),
            None => drop(wakers.insert(id, waker.clone())),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.latch.wakers.borrow_mut().remove(&id);
        }
    }
}

/// Wakes the one task that left its waker in `cell`.
pub(super) fn wake(cell: &Cell<Option<Waker>>) {
    if let Some(waker) = cell.take() {
        waker.wake();
    }
}
