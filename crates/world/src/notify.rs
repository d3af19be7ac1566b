//! A wake-up across threads and executors.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Wakes all waiters, on any thread and executor. Clones share the same signal.
#[derive(Clone, Default)]
pub struct Notify {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Number of calls of `notify`.
    count: u64,
    wakers: BTreeMap<u64, Waker>,
    next: u64,
}

impl Notify {
    /// A signal without waiters.
    pub fn new() -> Notify {
        Notify::default()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every wait that has begun.
    pub fn notify(&self) {
        let mut shared = self.lock();
        shared.count += 1;
        let wakers = std::mem::take(&mut shared.wakers);
        drop(shared);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Waits for the next [`Notify::notify`] after this call (not after the first poll). To lose no wake-up: call
    /// this, then check the condition, then await.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut shared = self.lock();
        shared.next += 1;
        let (seen, id) = (shared.count, shared.next);
        drop(shared);
        Wait { signal: self.clone(), seen, id }
    }
}

struct Wait {
    signal: Notify,
    seen: u64,
    id: u64,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.signal.lock();
        if shared.count != self.seen {
            return Poll::Ready(());
        }
        shared.wakers.insert(self.id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.signal.lock().wakers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_between_wait_and_poll_is_not_lost() {
        let signal = Notify::new();
        let mut wait = Box::pin(signal.wait());
        let mut late = Box::pin(signal.wait());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        signal.notify();
        assert!(wait.as_mut().poll(&mut cx).is_ready());
        assert!(late.as_mut().poll(&mut cx).is_ready());
        assert!(Box::pin(signal.wait()).as_mut().poll(&mut cx).is_pending());
    }
}
