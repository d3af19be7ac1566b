//! Limits what may be in progress: requests, and bytes of requests and answers.

use std::cell::Cell;
use std::rc::Rc;

use world::Notify;

/// A limit that tasks of one thread share.
pub(super) struct Credits {
    requests_max: usize,
    bytes_max: usize,
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// Notified when a credit is returned.
    freed: Notify,
}

/// A share of the limit; returned when dropped.
pub(super) struct Credit {
    from: Rc<Credits>,
    requests: usize,
    bytes: usize,
}

impl Credits {
    pub(super) fn new(requests_max: usize, bytes_max: usize) -> Rc<Credits> {
        let (requests, bytes) = (Cell::new(0), Cell::new(0));
        Rc::new(Credits { requests_max, bytes_max, requests, bytes, freed: Notify::new() })
    }

    /// Waits for room for some requests and bytes, and takes it. A request with more bytes than the limit waits until
    /// no others have bytes.
    pub(super) async fn take(self: &Rc<Credits>, requests: usize, bytes: usize) -> Credit {
        loop {
            let freed = self.freed.wait();
            let room = self.requests.get() + requests <= self.requests_max
                && (self.bytes.get() == 0 || self.bytes.get() + bytes <= self.bytes_max);
            if room {
                self.requests.set(self.requests.get() + requests);
                self.bytes.set(self.bytes.get() + bytes);
                return Credit { from: Rc::clone(self), requests, bytes };
            }
            freed.await;
        }
    }

    /// Requests in progress.
    pub(super) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// Waits until a credit is returned.
    pub(super) fn freed(&self) -> impl Future<Output = ()> {
        self.freed.wait()
    }

    /// Waits until all credits are returned.
    pub(super) async fn all_back(&self) {
        loop {
            let freed = self.freed.wait();
            if self.requests.get() == 0 && self.bytes.get() == 0 {
                return;
            }
            freed.await;
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.from.requests.set(self.from.requests.get() - self.requests);
        self.from.bytes.set(self.from.bytes.get() - self.bytes);
        self.from.freed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn room_is_given_back() {
        let credits = Credits::new(2, 100);
        let take = |bytes| credits.take(1, bytes).now_or_never();
        let first = take(500).expect("alone it may be larger than all");
        assert!(take(1).is_none());
        drop(first);
        let (first, second) = (take(60), take(40));
        assert!(first.is_some() && second.is_some() && take(0).is_none(), "two requests at most");
        drop(first);
        assert!(take(61).is_none() && take(60).is_some());
        drop(second);
        assert!(credits.all_back().now_or_never().is_some());
    }
}
