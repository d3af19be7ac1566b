//! Hosts, switches and the ports between them, as data. Everything else only asks for the way from a host to another.
//!
//! ```text
//!  star:  brick --> switch --> client           fat tree:   spine  spine  spine  spine      every leaf has a cable
//!                                                              \  \   |    |   /  /          to every spine
//!                                                           leaf      leaf      leaf        ports / leaf of them
//!                                                           | | |     | | |     | | |       hosts
//! ```
//!
//! A way has as few cables as possible. Of several such ways a flow takes one by its hash, and keeps it (ECMP).

use std::collections::VecDeque;

use crate::port::PortKind;
use crate::random::mix;
use crate::time::{Rate, Time};

/// A host or a switch. Hosts come first.
type Node = u32;

/// A cable in one direction: an output port of a node, and where it leads.
#[derive(Clone, Copy, Debug)]
struct Cable {
    to: Node,
    kind: PortKind,
}

/// Bytes that wait for a host's own link: never the limit, because TCP keeps the rest in the socket.
const HOST_BUFFER: u64 = 64 << 20;

/// The buffers of switches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Buffers {
    /// Most bytes that wait for one port.
    pub(crate) port: u64,
    /// Most bytes that wait in a switch, if its ports share a memory.
    pub(crate) shared: Option<u64>,
    /// Bytes that a port sends at once after a rest.
    pub(crate) burst: u64,
}

/// A network.
#[derive(Debug)]
pub(crate) struct Topology {
    hosts: u32,
    /// The ports, in the order of their nodes.
    cables: Vec<Cable>,
    /// The ports of each node.
    ports: Vec<Vec<u32>>,
    /// The nodes from which cables lead to each node.
    before: Vec<Vec<Node>>,
    /// The size of each shared memory.
    memories: Vec<u64>,
    /// For each host to which a way was asked for: how many cables away each node is.
    distances: Vec<Option<Box<[u16]>>>,
}

impl Topology {
    fn new(hosts: usize, switches: usize) -> Topology {
        Topology {
            hosts: hosts as u32,
            cables: Vec::new(),
            ports: vec![Vec::new(); hosts + switches],
            before: vec![Vec::new(); hosts + switches],
            memories: Vec::new(),
            distances: vec![None; hosts],
        }
    }

    /// One switch. `rates`: of the hosts, of which the first `clients` are clients. `inside`: the rate at which the
    /// switch takes packets to the ports of the clients, if it is slow: a machine may be the switch itself.
    pub(crate) fn star(
        rates: &[Rate],
        clients: usize,
        inside: Option<Rate>,
        buffers: Buffers,
        delay: Time,
    ) -> Topology {
        let hosts = rates.len();
        let mut topology = Topology::new(hosts, 2);
        let (first, second) = (hosts as Node, hosts as Node + 1);
        let memory = topology.memory(buffers);
        for (host, rate) in rates.iter().enumerate() {
            let switch = if inside.is_some() && host < clients { second } else { first };
            topology.attach(host as Node, switch, *rate, buffers, memory, delay);
        }
        if let Some(rate) = inside {
            let kind = PortKind { rate, delay: 0, buffer: HOST_BUFFER, burst: 0, memory: None };
            topology.cable(first, second, kind);
            topology.cable(second, first, PortKind { rate: Rate::gbit(400), ..kind });
        }
        topology
    }

    /// Leaves with `leaf` hosts each, and `spines` above them. `up`: the rate of the cables between them.
    pub(crate) fn fat_tree(
        rates: &[Rate],
        leaf: usize,
        spines: usize,
        up: Rate,
        buffers: Buffers,
        delay: Time,
    ) -> Topology {
        let (hosts, leaf) = (rates.len(), leaf.max(1));
        let leaves = hosts.div_ceil(leaf);
        let mut topology = Topology::new(hosts, leaves + spines);
        let memories: Vec<Option<u32>> = (0..leaves + spines).map(|_| topology.memory(buffers)).collect();
        for (host, rate) in rates.iter().enumerate() {
            let at = host / leaf;
            topology.attach(host as Node, (hosts + at) as Node, *rate, buffers, memories[at], delay);
        }
        for below in 0..leaves {
            for above in leaves..leaves + spines {
                let port = |memory| PortKind { rate: up, delay, buffer: buffers.port, burst: 0, memory };
                let (low, high) = ((hosts + below) as Node, (hosts + above) as Node);
                topology.cable(low, high, port(memories[below]));
                topology.cable(high, low, port(memories[above]));
            }
        }
        topology
    }

    fn memory(&mut self, buffers: Buffers) -> Option<u32> {
        let limit = buffers.shared?;
        self.memories.push(limit);
        Some(self.memories.len() as u32 - 1)
    }

    fn cable(&mut self, from: Node, to: Node, kind: PortKind) {
        self.ports[from as usize].push(self.cables.len() as u32);
        self.before[to as usize].push(from);
        self.cables.push(Cable { to, kind });
    }

    /// A cable between a host and its switch.
    fn attach(
        &mut self,
        host: Node,
        switch: Node,
        rate: Rate,
        buffers: Buffers,
        memory: Option<u32>,
        delay: Time,
    ) {
        let Buffers { port: buffer, burst, .. } = buffers;
        self.cable(switch, host, PortKind { rate, delay, buffer, burst, memory });
        self.cable(host, switch, PortKind { rate, delay, buffer: HOST_BUFFER, burst: 0, memory: None });
    }

    /// What each port is like.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = PortKind> + '_ {
        self.cables.iter().map(|cable| cable.kind)
    }

    /// The sizes of the memories that ports share.
    pub(crate) fn memories(&self) -> &[u64] {
        &self.memories
    }

    /// Whether a port leads to a host.
    pub(crate) fn is_last(&self, port: u32) -> bool {
        self.cables[port as usize].to < self.hosts
    }

    /// The ports on the way of a flow between two hosts. `None` if there is none.
    pub(crate) fn path(&mut self, from: u32, to: u32, flow: u64) -> Option<Box<[u32]>> {
        if self.distances.get(to as usize)?.is_none() {
            let distances = self.measure(to);
            self.distances[to as usize] = Some(distances);
        }
        let distances = self.distances[to as usize].as_deref()?;
        let (mut at, mut path) = (from, Vec::new());
        let far = *distances.get(from as usize)?;
        if far == u16::MAX {
            return None;
        }
        while at != to {
            let nearer =
                |port: &&u32| distances[self.cables[**port as usize].to as usize] < distances[at as usize];
            let ports = &self.ports[at as usize];
            let ways = ports.iter().filter(nearer).count() as u64;
            // Each node has a hash of its own, or all flows of a port would choose the same one at the next.
            let chosen = mix(flow ^ mix(u64::from(at))) % ways.max(1);
            let port = *ports.iter().filter(nearer).nth(chosen as usize)?;
            path.push(port);
            at = self.cables[port as usize].to;
        }
        Some(path.into())
    }

    /// How many cables away from a host each node is; `u16::MAX` where no way leads to it.
    fn measure(&self, to: Node) -> Box<[u16]> {
        let mut distances = vec![u16::MAX; self.ports.len()];
        distances[to as usize] = 0;
        let mut open = VecDeque::from([to]);
        while let Some(node) = open.pop_front() {
            let next = distances[node as usize] + 1;
            for from in &self.before[node as usize] {
                if distances[*from as usize] == u16::MAX {
                    distances[*from as usize] = next;
                    open.push_back(*from);
                }
            }
        }
        distances.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BUFFERS: Buffers = Buffers { port: 1 << 16, shared: None, burst: 0 };

    #[test]
    fn a_star_has_one_switch_or_a_slow_inside() {
        let rates = [Rate::gbit(10); 4];
        let mut star = Topology::star(&rates, 1, None, BUFFERS, 7);
        let path = star.path(3, 0, 9).expect("a way");
        assert_eq!(path.len(), 2);
        assert!(!star.is_last(path[0]) && star.is_last(path[1]));
        let mut slow = Topology::star(&rates, 1, Some(Rate::gbit(1)), BUFFERS, 7);
        let kinds: Vec<PortKind> = slow.kinds().collect();
        let (down, up) = (slow.path(3, 0, 9).expect("a way"), slow.path(0, 3, 9).expect("a way"));
        assert_eq!((down.len(), up.len()), (3, 3));
        assert_eq!(kinds[down[1] as usize].rate, Rate::gbit(1));
        assert!(kinds[up[1] as usize].rate > Rate::gbit(1));
    }

    #[test]
    fn flows_of_a_fat_tree_use_all_its_spines_and_each_keeps_its_way() {
        let rates = [Rate::gbit(10); 64];
        let mut tree = Topology::fat_tree(&rates, 16, 8, Rate::gbit(10), BUFFERS, 7);
        assert_eq!(tree.kinds().count(), 2 * 64 + 2 * 4 * 8);
        assert_eq!(tree.path(0, 1, 5).map(|path| path.len()), Some(2), "of the same leaf");
        let mut seen = BTreeSet::new();
        for flow in 0..200 {
            let path = tree.path(0, 63, flow).expect("a way");
            assert_eq!(path.len(), 4);
            assert_eq!(Some(&path), tree.path(0, 63, flow).as_ref());
            seen.insert(path[1]);
        }
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn the_ports_of_a_switch_share_its_memory() {
        let buffers = Buffers { shared: Some(1 << 20), ..BUFFERS };
        let tree = Topology::fat_tree(&[Rate::gbit(1); 8], 4, 2, Rate::gbit(1), buffers, 0);
        assert_eq!(tree.memories(), [1 << 20; 4]);
        let shared = tree.kinds().filter(|kind| kind.memory.is_some()).count();
        assert_eq!(shared, 8 + 2 * 2 * 2, "hosts have their own");
    }

    #[test]
    fn where_no_way_leads_there_is_none() {
        let mut topology = Topology::new(2, 0);
        assert_eq!(topology.path(0, 1, 0), None);
        assert_eq!(topology.path(0, 7, 0), None);
        assert_eq!(topology.path(1, 1, 0).map(|path| path.len()), Some(0));
    }
}
