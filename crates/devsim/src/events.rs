//! The queue of events. Events of one moment happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// A process goes on.
    Wake(u32),
    /// A command of the device has something to send over the link, or can take something.
    Ready(u32),
    /// The link has moved a chunk.
    Moved(u32),
    /// The buffer of the device has room again.
    Room,
    /// All that was written is on the flash: a flush is complete.
    Flushed(u32),
    /// The scheduler asked to be asked again.
    Dispatch,
    /// Write-back looks for old bytes.
    WriteBack,
    /// The next request of a trace.
    Replay,
}

#[derive(Default, Debug)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
}

impl Events {
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((at, self.count, event)));
    }

    /// The next event, if it is not later than `until`.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, Event)> {
        if self.heap.peek()?.0.0 > until {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_a_moment_in_order() {
        let mut events = Events::default();
        for (at, event) in [(5, Event::Wake(1)), (3, Event::Room), (5, Event::Ready(0))] {
            events.push(at, event);
        }
        assert_eq!(events.pop(2), None);
        let order: Vec<_> = std::iter::from_fn(|| events.pop(5)).collect();
        assert_eq!(order, [(3, Event::Room), (5, Event::Wake(1)), (5, Event::Ready(0))]);
    }
}
