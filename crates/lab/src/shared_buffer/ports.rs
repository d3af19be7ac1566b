//! Ports that share one memory.

use std::collections::VecDeque;

use crate::iproute::Counts;

/// What a packet has on a link before its IP header, in bytes. Token buckets of the kernel count it.
const ETHERNET: u64 = 14;

/// Ports with a rate each, and one memory for what waits at all of them: what does not fit is dropped.
///
/// # Invariants
/// `held` is the sum of all packets that wait, at most `memory`.
pub(crate) struct Ports {
    memory: u64,
    held: u64,
    ports: Vec<Port>,
}

struct Port {
    /// Time of a byte, in picoseconds.
    byte_ps: u64,
    /// How long it takes to fill its token bucket, in picoseconds.
    burst_ps: u64,
    /// When its token bucket was empty, or will be, in picoseconds.
    empty_ps: u64,
    packets: VecDeque<Vec<u8>>,
    counts: Counts,
}

impl Port {
    /// When its first packet may leave.
    fn due_ps(&self) -> Option<u64> {
        let first = self.packets.front()?;
        Some(self.empty_ps + self.byte_ps * length(first))
    }

    /// Its token bucket was empty at `empty_ps`, and has no room for more than its burst.
    fn emptied(&mut self, empty_ps: u64, now_ps: u64) {
        self.empty_ps = empty_ps.max(now_ps.saturating_sub(self.burst_ps));
    }
}

fn length(packet: &[u8]) -> u64 {
    packet.len() as u64 + ETHERNET
}

impl Ports {
    /// `count` ports of `mbit` Mbit/s, above 0, which may send `burst` bytes at once after a rest.
    pub(crate) fn new(count: usize, mbit: u32, burst: u32, memory: u32) -> Ports {
        let byte_ps = 8_000_000 / u64::from(mbit.max(1));
        let port = || Port {
            byte_ps,
            burst_ps: byte_ps * u64::from(burst),
            empty_ps: 0,
            packets: VecDeque::new(),
            counts: Counts::default(),
        };
        Ports { memory: memory.into(), held: 0, ports: (0..count).map(|_| port()).collect() }
    }

    /// A packet comes for a port.
    pub(crate) fn push(&mut self, now_ps: u64, port: usize, packet: Vec<u8>) {
        let (bytes, room) = (length(&packet), self.memory - self.held);
        let Some(port) = self.ports.get_mut(port) else { return };
        if bytes > room {
            port.counts.dropped += 1;
            return;
        }
        if port.packets.is_empty() {
            port.emptied(port.empty_ps, now_ps);
        }
        self.held += bytes;
        port.packets.push_back(packet);
    }

    /// A packet that leaves now.
    pub(crate) fn pop(&mut self, now_ps: u64) -> Option<Vec<u8>> {
        let due = |port: &Port| port.due_ps().filter(|due| *due <= now_ps);
        // The one that is late most, so that none waits for ever.
        let port =
            self.ports.iter_mut().filter_map(|port| Some((due(port)?, port))).min_by_key(|(due, _)| *due);
        let (due, port) = port?;
        let packet = port.packets.pop_front()?;
        port.emptied(due, now_ps);
        let bytes = length(&packet);
        self.held -= bytes;
        port.counts.bytes += bytes;
        port.counts.packets += 1;
        Some(packet)
    }

    /// When the next packet leaves, if one waits.
    pub(crate) fn next_ps(&self) -> Option<u64> {
        self.ports.iter().filter_map(Port::due_ps).min()
    }

    /// What each port has sent and dropped.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        self.ports.iter().map(|port| port.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A byte takes a microsecond.
    const MBIT: u32 = 8;
    const US: u64 = 1_000_000;

    fn packet(bytes: u64) -> Vec<u8> {
        vec![0; (bytes - ETHERNET) as usize]
    }

    fn left(ports: &mut Ports, now: u64) -> usize {
        std::iter::from_fn(|| ports.pop(now)).count()
    }

    #[test]
    fn a_port_sends_at_its_rate_and_a_burst_after_a_rest() {
        let mut ports = Ports::new(1, MBIT, 250, 10_000);
        (0..4).for_each(|_| ports.push(1000 * US, 0, packet(100)));
        assert_eq!(left(&mut ports, 1000 * US), 2);
        assert_eq!(ports.next_ps(), Some(1050 * US));
        assert_eq!((left(&mut ports, 1049 * US), left(&mut ports, 1050 * US)), (0, 1));
        assert_eq!(left(&mut ports, 1150 * US), 1);
        assert_eq!(ports.next_ps(), None);
        assert_eq!(ports.counts(), [Counts { bytes: 400, packets: 4, dropped: 0 }]);
    }

    #[test]
    fn one_port_takes_the_memory_from_the_other() {
        let mut ports = Ports::new(2, MBIT, 0, 250);
        [0, 0, 1, 7].into_iter().for_each(|port| ports.push(0, port, packet(100)));
        assert_eq!(ports.counts().iter().map(|port| port.dropped).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(left(&mut ports, 100 * US), 1);
        ports.push(100 * US, 1, packet(100));
        assert_eq!(left(&mut ports, 200 * US), 2, "the two ports send at the same time");
    }

    proptest! {
        #[test]
        fn the_memory_is_never_exceeded_and_nothing_vanishes(
            steps in proptest::collection::vec((0usize..4, 20u64..1500, 0u64..2000, any::<bool>()), 1..300),
            memory in 1000u32..20_000, burst in 0u32..5000,
        ) {
            let mut ports = Ports::new(4, MBIT, burst, memory);
            let (mut now, mut pushed, mut popped) = (0, 0, 0);
            for (port, bytes, us, pops) in steps {
                now += us * US;
                ports.push(now, port, packet(bytes));
                pushed += 1;
                if pops {
                    popped += left(&mut ports, now);
                }
                let waiting: u64 = ports.ports.iter().flat_map(|port| &port.packets).map(|packet| length(packet)).sum();
                prop_assert!(waiting == ports.held && waiting <= u64::from(memory));
            }
            while let Some(next) = ports.next_ps() {
                now = next.max(now);
                let some = left(&mut ports, now);
                prop_assert!(some > 0, "what is due leaves");
                popped += some;
            }
            let counts = ports.counts();
            let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
            prop_assert_eq!(sum(|port| port.packets), popped as u64);
            prop_assert_eq!(sum(|port| port.packets + port.dropped), pushed);
            // The rate and the burst bound what has left.
            prop_assert!(counts.iter().all(|port| port.bytes * US <= now + u64::from(burst) * US));
        }
    }
}
