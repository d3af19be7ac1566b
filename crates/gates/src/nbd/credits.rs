//! Limits what one connection may have in progress: requests, and bytes of requests and replies.

use std::cell::Cell;
use std::rc::Rc;

use world::Notify;

/// Most requests in progress on one connection.
const REQUESTS_MAX: usize = 128;
/// Most bytes of them. A larger request must be the only one with bytes.
const BYTES_MAX: usize = 8 << 20;

/// The credits of one connection.
#[derive(Default)]
pub(super) struct Credits {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    changed: Notify,
}

/// A request's share; returned when dropped.
pub(super) struct Credit {
    credits: Rc<Credits>,
    bytes: usize,
}

impl Drop for Credit {
    fn drop(&mut self) {
        let credits = &self.credits;
        credits.requests.set(credits.requests.get() - 1);
        credits.bytes.set(credits.bytes.get() - self.bytes);
        credits.changed.notify();
    }
}

impl Credits {
    /// Waits until there is room for a request with `bytes` bytes.
    pub(super) async fn take(self: &Rc<Credits>, bytes: usize) -> Credit {
        loop {
            let changed = self.changed.wait();
            let (requests, taken) = (self.requests.get(), self.bytes.get());
            let fits = bytes == 0 || taken == 0 || taken + bytes <= BYTES_MAX;
            if requests < REQUESTS_MAX && fits {
                self.requests.set(requests + 1);
                self.bytes.set(taken + bytes);
                return Credit { credits: Rc::clone(self), bytes };
            }
            changed.await;
        }
    }

    /// Waits until nothing is in progress.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.changed.wait();
            if self.requests.get() == 0 {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn bounded_and_a_large_request_goes_alone() {
        let credits = Rc::new(Credits::default());
        let large = credits.take(4 * BYTES_MAX).now_or_never().expect("nothing is under way");
        assert!(credits.take(0).now_or_never().is_some(), "what has no bytes finds room");
        assert!(credits.take(1).now_or_never().is_none());
        drop(large);
        let all: Vec<Credit> =
            (0..REQUESTS_MAX).map(|_| credits.take(1).now_or_never().expect("room")).collect();
        assert!(credits.take(0).now_or_never().is_none());
        assert!(credits.idle().now_or_never().is_none());
        drop(all);
        assert!(credits.idle().now_or_never().is_some());
    }
}
