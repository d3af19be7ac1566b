//! Passes an answer from one task to another that waits for it.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Poll, Waker};

use types::Buf;

/// A future answer. If the waiting task gives up, the answer is dropped.
#[derive(Default)]
pub(super) struct Completion {
    answer: Cell<Option<io::Result<Buf>>>,
    waker: Cell<Option<Waker>>,
}

impl Completion {
    pub(super) fn complete(&self, answer: io::Result<Buf>) {
        self.answer.set(Some(answer));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    pub(super) async fn wait(&self) -> io::Result<Buf> {
        poll_fn(|cx| match self.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}
