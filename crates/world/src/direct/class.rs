//! For whom a task uses the disk. Like a trace, it belongs to the task that is being polled, so functions need not hand it down.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pace::IoClass;

thread_local! {
    static CURRENT: Cell<Option<IoClass>> = const { Cell::new(None) };
}

/// The class of the task that is being polled. [`None`]: a client's.
pub(crate) fn current() -> Option<IoClass> {
    CURRENT.get()
}

/// Runs `work`; its requests to direct disks are of `class`. A task that it spawns is not in the class.
pub fn in_class<F: Future>(class: IoClass, work: F) -> impl Future<Output = F::Output> + use<F> {
    InClass { class, work }
}

struct InClass<F> {
    class: IoClass,
    work: F,
}

/// Restores the class when it is dropped, also if the task panics.
struct Restore(Option<IoClass>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

impl<F: Future> Future for InClass<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `work` is pinned structurally: it is never moved out, and is dropped in place; the class is only read.
        let (class, work) = unsafe {
            let InClass { class, work } = self.get_unchecked_mut();
            (*class, Pin::new_unchecked(work))
        };
        let _restore = Restore(CURRENT.replace(Some(class)));
        work.poll(cx)
    }
}
