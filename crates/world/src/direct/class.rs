//! For whom a task uses the disk. Like a trace, it belongs to the task that is being polled, so functions need not hand it down.
//! Requests to other servers tell it, so that what a rebuild reads elsewhere counts as a rebuild there.

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

/// The class of the task that is being polled, as a request to another server tells it.
pub(crate) fn on_the_wire() -> u8 {
    match current() {
        None | Some(IoClass::Journal | IoClass::ClientRead | IoClass::ClientWrite) => 0,
        Some(IoClass::Fold) => 1,
        Some(IoClass::Rebuild) => 2,
        Some(IoClass::Scrub) => 3,
    }
}

/// The class that a request has told; [`None`]: it is for a client. Nobody can ask for the journal's.
pub(crate) fn from_the_wire(class: u8) -> Option<IoClass> {
    match class {
        1 => Some(IoClass::Fold),
        2 => Some(IoClass::Rebuild),
        3 => Some(IoClass::Scrub),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_tells_what_a_request_is_for() {
        assert_eq!((current(), on_the_wire()), (None, 0));
        for class in IoClass::ALL {
            let mut told = None;
            let work = in_class(class, async { (current(), on_the_wire()) });
            let waker = std::task::Waker::noop();
            if let Poll::Ready(found) = std::pin::pin!(work).poll(&mut Context::from_waker(waker)) {
                told = Some(found);
            }
            let (inside, wire) = told.expect("nothing to wait for");
            assert_eq!(inside, Some(class));
            let expected = (class > IoClass::ClientWrite).then_some(class);
            assert_eq!(from_the_wire(types::wire::Flags::of_class(wire).class()), expected);
        }
        assert_eq!(current(), None, "a task's class ends with it");
    }
}
