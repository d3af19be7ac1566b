//! The queue of events: what happens next. Events of one moment happen in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Time;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// The first packet of a port reaches the next node.
    Arrive(u32),
    /// A timer of a connection's sender may have run out.
    Timeout(u32),
    /// The receiver of a connection acknowledges what it has held back.
    Acknowledge(u32),
    /// The client of a connection looks at the next frame.
    Take(u32),
    /// The brick of a connection looks at the next frame.
    Serve(u32),
    /// The brick of a connection has the bytes of an answer in its RAM.
    Answer(u32),
    /// A frame to a brick that was dropped is sent once more.
    Repeat(u32),
    /// A thread of a client gives out credit: others have left some, or it has expired.
    Grant { client: u32, thread: u32 },
    /// A task of a client begins its next record.
    Begin { client: u32, task: u32 },
    /// A thread of a client has given the bytes of its record away.
    Finish { client: u32, thread: u32 },
}

/// When something happens, its number among all that was planned, and what it is.
type Entry<E> = (Time, u64, E);

/// A bucket has the events of 2^18 ps, a quarter of a microsecond, if nothing else is said.
const BUCKET_BITS: u32 = 18;
/// Buckets. What is later than all of them waits in a heap.
const BUCKETS: u64 = 1024;

/// Events, by time. Nearly all are packets that arrive within some microseconds: these are put into buckets of short
/// spans, and each bucket is sorted when its time has come (a calendar queue; Brown, 1988).
#[derive(Debug)]
pub(crate) struct Queue<E = Event> {
    /// A bucket has the events of 2^bits ps.
    bits: u32,
    /// The events of the present bucket and of earlier ones, the next one at the end.
    present: Vec<Entry<E>>,
    /// The number of the present bucket.
    at: u64,
    buckets: Vec<Vec<Entry<E>>>,
    /// Events in buckets.
    near: usize,
    far: BinaryHeap<Reverse<Entry<E>>>,
    count: u64,
}

impl<E: Copy + Ord> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue::with_buckets(BUCKET_BITS)
    }
}

impl<E: Copy + Ord> Queue<E> {
    /// A queue whose buckets have the events of 2^bits ps: nearly all should be planned for less than 1,000 times that.
    pub(crate) fn with_buckets(bits: u32) -> Queue<E> {
        let buckets = (0..BUCKETS).map(|_| Vec::new()).collect();
        Queue { bits, present: Vec::new(), at: 0, buckets, near: 0, far: BinaryHeap::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, event: E) {
        self.count += 1;
        let (entry, bucket) = ((at, self.count, event), at >> self.bits);
        if bucket <= self.at {
            let place = self.present.partition_point(|other| *other > entry);
            self.present.insert(place, entry);
        } else if bucket - self.at < BUCKETS {
            self.buckets[(bucket % BUCKETS) as usize].push(entry);
            self.near += 1;
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// The next event, if it is not later than `until`.
    pub(crate) fn pop(&mut self, until: Time) -> Option<(Time, E)> {
        while self.present.is_empty() && self.near > 0 {
            self.at += 1;
            let bucket = &mut self.buckets[(self.at % BUCKETS) as usize];
            self.near -= bucket.len();
            std::mem::swap(bucket, &mut self.present);
            self.present.sort_unstable_by(|one, other| other.cmp(one));
        }
        let near = self.present.last();
        let is_far = match (near, self.far.peek()) {
            (Some(near), Some(Reverse(far))) => far < near,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let (at, _, event) = if is_far { self.far.peek()?.0 } else { *near? };
        if at > until {
            return None;
        }
        if is_far {
            self.far.pop();
            // Nothing is in a bucket: go on from here.
            if self.near == 0 && self.present.is_empty() {
                self.at = self.at.max(at >> self.bits);
            }
        } else {
            self.present.pop();
        }
        Some((at, event))
    }

    /// Events that are planned.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.present.len() + self.near + self.far.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_come_by_time_and_those_of_a_moment_in_order() {
        let mut queue: Queue = Queue::default();
        let timer = Event::Timeout;
        for (at, event) in [(5, timer(1)), (3, timer(9)), (5, Event::Arrive(0)), (4, timer(2)), (5, timer(7))]
        {
            queue.push(at, event);
        }
        assert_eq!(queue.pop(2), None);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(5)).collect();
        let expected = [(3, timer(9)), (4, timer(2)), (5, timer(1)), (5, Event::Arrive(0)), (5, timer(7))];
        assert_eq!(order, expected);
        assert_eq!(queue.len(), 0);
    }

    proptest! {
        /// Whatever is planned meanwhile: events come by time, and by their numbers within a moment.
        #[test]
        fn any_plans(
            steps in proptest::collection::vec((0u64..4, 0u64..1 << 20, any::<bool>()), 1..200),
            bits in 10u32..24,
        ) {
            let mut queue: Queue = Queue::with_buckets(bits);
            let (mut known, mut now) = (std::collections::BTreeSet::new(), 0);
            for ((scale, later, pops), number) in steps.into_iter().zip(0u32..) {
                let at = now + (later << (scale * 6));
                queue.push(at, Event::Arrive(number));
                known.insert((at, number));
                if pops {
                    let next = queue.pop(Time::MAX);
                    prop_assert_eq!(next, known.pop_first().map(|(at, port)| (at, Event::Arrive(port))));
                    now = next.map_or(now, |(at, _)| at);
                }
                prop_assert_eq!(queue.len(), known.len());
            }
            while let Some((at, port)) = known.pop_first() {
                prop_assert_eq!(queue.pop(at.saturating_sub(1)), None);
                prop_assert_eq!(queue.pop(at), Some((at, Event::Arrive(port))));
            }
        }
    }
}
