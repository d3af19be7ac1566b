//! An output port: a rate, and a buffer with few bytes in front of it. What does not fit is dropped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::packet::{HEADERS, Packet};
use crate::time::{Rate, Time};

/// What a port is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortKind {
    /// Its rate.
    pub(crate) rate: Rate,
    /// From the end of a packet to its arrival at the next node, in picoseconds.
    pub(crate) delay: Time,
    /// Most bytes that wait here, the packet that is being sent included.
    pub(crate) buffer: u64,
    /// Bytes that may leave at once after a rest, as through a token bucket. 0 at a switch.
    pub(crate) burst: u64,
    /// The memory from which the buffer is taken, if several ports share one.
    pub(crate) memory: Option<u32>,
}

/// The memory of a switch, whose ports share it.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    held: u64,
    /// Packets in it, by when they leave.
    leaving: BinaryHeap<Reverse<(Time, u32)>>,
}

impl Memory {
    pub(crate) fn new(limit: u64) -> Memory {
        Memory { limit, held: 0, leaving: BinaryHeap::new() }
    }

    fn settle(&mut self, now: Time) {
        while let Some(&Reverse((leaves, bytes))) = self.leaving.peek()
            && leaves <= now
        {
            self.leaving.pop();
            self.held -= u64::from(bytes);
        }
    }

    /// Bytes in it.
    #[cfg(test)]
    pub(crate) fn held(&mut self, now: Time) -> u64 {
        self.settle(now);
        self.held
    }
}

/// A packet with its end at this port.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    leaves: Time,
    packet: Packet,
}

/// A port, and the packets that wait in it or are between it and the next node.
///
/// # Invariants
/// `held` is the sum of the packets from `left` on. It is at most the buffer.
#[derive(Debug)]
pub(crate) struct Port {
    kind: PortKind,
    packets: VecDeque<Waiting>,
    /// How many of them have left the buffer.
    left: usize,
    held: u64,
    /// When the token bucket was empty, or will be.
    empty: Time,
    /// How long the burst takes.
    burst: Time,
    dropped: u64,
    sent: u64,
}

impl Port {
    pub(crate) fn new(kind: PortKind) -> Port {
        let burst = kind.rate.span(kind.burst);
        Port { kind, packets: VecDeque::new(), left: 0, held: 0, empty: 0, burst, dropped: 0, sent: 0 }
    }

    /// Takes a packet, or drops it. Returns when the first packet arrives at the next node, if it is this one.
    pub(crate) fn push(
        &mut self,
        now: Time,
        packet: Packet,
        memories: &mut [Memory],
    ) -> Result<Option<Time>, ()> {
        self.settle(now);
        let bytes = u64::from(packet.wire);
        let memory = self.kind.memory.and_then(|memory| memories.get_mut(memory as usize));
        let has_room = memory.as_ref().is_none_or(|memory| memory.held + bytes <= memory.limit);
        if !has_room || self.held + bytes > self.kind.buffer {
            // Only now, because it costs time: others may have left the memory meanwhile.
            let freed = memory.is_some_and(|memory| {
                memory.settle(now);
                memory.held + bytes <= memory.limit
            });
            if !freed || self.held + bytes > self.kind.buffer {
                self.dropped += 1;
                return Err(());
            }
        }
        self.empty = self.empty.max(now.saturating_sub(self.burst)) + self.kind.rate.span(bytes);
        let leaves = self.empty.max(now);
        self.held += bytes;
        if let Some(memory) = self.kind.memory.and_then(|memory| memories.get_mut(memory as usize)) {
            memory.held += bytes;
            memory.leaving.push(Reverse((leaves, packet.wire.into())));
        }
        self.packets.push_back(Waiting { leaves, packet });
        Ok((self.packets.len() == 1).then_some(leaves + self.kind.delay))
    }

    /// The first packet, which arrives at the next node now; and when the one behind it does.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Packet, Option<Time>)> {
        self.settle(now);
        let first = self.packets.pop_front()?;
        debug_assert!(first.leaves + self.kind.delay == now && self.left > 0, "packets arrive in order");
        self.left -= 1;
        self.sent += 1;
        Some((first.packet, self.packets.front().map(|next| next.leaves + self.kind.delay)))
    }

    fn settle(&mut self, now: Time) {
        while let Some(waiting) = self.packets.get(self.left)
            && waiting.leaves <= now
        {
            self.left += 1;
            self.held -= u64::from(waiting.packet.wire);
        }
    }

    /// Packets that were dropped here.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Packets that were sent from here and have arrived at the next node.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// How long a packet without payload takes to the next node if nothing waits.
    pub(crate) fn empty_trip(&self) -> Time {
        self.kind.rate.span(u64::from(HEADERS)) + self.kind.delay
    }

    /// What it is like.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> &PortKind {
        &self.kind
    }

    /// Bytes that wait in it.
    #[cfg(test)]
    pub(crate) fn held(&mut self, now: Time) -> u64 {
        self.settle(now);
        self.held
    }

    /// The packets that wait in it, and those between it and the next node.
    #[cfg(test)]
    pub(crate) fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().map(|waiting| &waiting.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{SECOND, US};
    use proptest::prelude::*;

    fn kind(buffer: u64, burst: u64, memory: Option<u32>) -> PortKind {
        // A byte takes a microsecond.
        PortKind { rate: Rate::mbit(8), delay: 10 * US, buffer, burst, memory }
    }

    fn packet(wire: u16) -> Packet {
        Packet { connection: 0, way: 0, hops: 0, is_up: false, wire, number: 0 }
    }

    #[test]
    fn packets_leave_one_after_the_other_and_what_does_not_fit_is_dropped() {
        let mut port = Port::new(kind(250, 0, None));
        assert_eq!(port.push(0, packet(100), &mut []), Ok(Some(110 * US)));
        assert_eq!(port.push(0, packet(100), &mut []), Ok(None));
        assert_eq!(port.push(99 * US, packet(100), &mut []), Err(()), "300 of 250 bytes");
        assert_eq!(port.push(100 * US, packet(100), &mut []), Ok(None), "the first has left");
        assert_eq!(port.pop(110 * US).map(|(_, next)| next), Some(Some(210 * US)));
        assert_eq!(port.pop(210 * US).map(|(_, next)| next), Some(Some(310 * US)));
        assert_eq!(port.pop(310 * US).map(|(_, next)| next), Some(None));
        assert_eq!((port.dropped(), port.sent(), port.held(310 * US)), (1, 3, 0));
    }

    #[test]
    fn a_burst_leaves_at_once_after_a_rest() {
        let mut port = Port::new(kind(1000, 250, None));
        let arrivals: Vec<_> = (0..4).map(|_| port.push(SECOND, packet(100), &mut [])).collect();
        assert_eq!(arrivals[0], Ok(Some(SECOND + 10 * US)), "tokens for two and a half of them");
        let mut at = SECOND + 10 * US;
        let mut seen = Vec::new();
        while let Some((_, next)) = port.pop(at) {
            seen.push((at - SECOND) / US);
            let Some(next) = next else { break };
            at = next;
        }
        assert_eq!(seen, [10, 10, 60, 160]);
    }

    #[test]
    fn ports_that_share_a_memory_take_it_from_each_other() {
        let mut memories = [Memory::new(250)];
        let (mut one, mut two) = (Port::new(kind(1000, 0, Some(0))), Port::new(kind(1000, 0, Some(0))));
        assert!(one.push(0, packet(100), &mut memories).is_ok());
        assert!(one.push(0, packet(100), &mut memories).is_ok());
        assert!(two.push(0, packet(100), &mut memories).is_err());
        assert!(two.push(100 * US, packet(100), &mut memories).is_ok());
        assert_eq!(memories[0].held(100 * US), 200);
        assert_eq!(memories[0].held(SECOND), 0);
    }

    proptest! {
        /// Whatever comes: no more than the buffer waits, nothing leaves before it has come, and everything that was
        /// taken leaves in order.
        #[test]
        fn any_arrivals(
            steps in proptest::collection::vec((0u64..400, 1u16..200), 1..200),
            buffer in 200u64..1000, burst in 0u64..500, shared in proptest::option::of(200u64..1000),
        ) {
            let mut memories: Vec<Memory> = shared.into_iter().map(Memory::new).collect();
            let mut port = Port::new(kind(buffer, burst, shared.map(|_| 0)));
            let (mut now, mut next, mut taken, mut seen) = (0, None, 0u64, 0u64);
            for (later, wire) in steps {
                now += later * US;
                while let Some(at) = next.filter(|at| *at <= now) {
                    let popped = port.pop(at);
                    prop_assert!(popped.is_some());
                    seen += 1;
                    let following = popped.and_then(|(_, following)| following);
                    prop_assert!(following.is_none_or(|following| following >= at));
                    next = following;
                }
                if let Ok(first) = port.push(now, packet(wire), &mut memories) {
                    taken += 1;
                    prop_assert!(first.is_none_or(|first| first >= now + 10 * US));
                    next = next.or(first);
                }
                prop_assert!(port.held(now) <= buffer);
                prop_assert!(shared.is_none_or(|limit| memories[0].held(now) <= limit));
                prop_assert_eq!(port.packets().count() as u64, taken - seen);
            }
        }
    }
}
