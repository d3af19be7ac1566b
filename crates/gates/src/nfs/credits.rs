//! How much may be under way at once: requests, and the bytes that they and their answers hold.

use std::cell::Cell;
use std::rc::Rc;

use world::Notify;

/// A bound, shared by tasks of one thread.
pub(super) struct Credits {
    requests_max: usize,
    bytes_max: usize,
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// Given whenever something is given back.
    freed: Notify,
}

/// A part of the bound, given back when dropped.
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

    /// Takes room for so many requests with so many bytes, when there is. Whoever needs more bytes than there can ever be
    /// gets them alone.
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

    /// Requests that have room now.
    pub(super) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// Waits until something is given back.
    pub(super) fn freed(&self) -> impl Future<Output = ()> {
        self.freed.wait()
    }

    /// Waits until everything has been given back.
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
