//! The commands of iproute2 that make a fabric, as plain text. No command is run here.
//!
//! Those of [`spaces`] and [`cables`] are for the namespace in which the fabric is made, the others for the namespace of one
//! node or switch.

use std::net::Ipv4Addr;
use std::time::Duration;

use layout::topology::{Topology, Vertex};
use types::NodeId;

use super::cable::Cable;
use crate::star::{self, GATEWAY, Link};

/// First address of the switches of racks.
const RACKS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// Least packet that counts for the queue of a delay, in bytes.
const PACKET_MIN: u64 = 64;

/// What every cable of a fabric is like, in each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CablePlan {
    /// Rate and queue.
    pub link: Link,
    /// How long a packet is on its way, besides the time that it waits and is sent; zero for none.
    pub delay: Duration,
}

/// The namespace of a node or switch. An interface has the name of the namespace at its other end.
pub fn space(vertex: Vertex) -> String {
    match vertex {
        Vertex::Node(node) => star::name(node.0),
        Vertex::Core => "switch".to_owned(),
        Vertex::Rack(rack) => format!("rack{rack}"),
    }
}

/// The address of a node or switch.
pub fn address(vertex: Vertex) -> Ipv4Addr {
    match vertex {
        Vertex::Node(node) => star::address(node.0),
        Vertex::Core => GATEWAY,
        Vertex::Rack(rack) => Ipv4Addr::from_bits(RACKS.to_bits() + u32::from(rack)),
    }
}

/// Makes the namespaces. For `ip`.
pub fn spaces(topology: &Topology) -> Vec<String> {
    topology.vertices().iter().map(|vertex| format!("netns add {}", space(*vertex))).collect()
}

/// Removes the namespaces, and the cables with them. For `ip`.
pub fn no_spaces(topology: &Topology) -> Vec<String> {
    topology.vertices().iter().map(|vertex| format!("netns del {}", space(*vertex))).collect()
}

/// Lays the cables. For `ip`.
pub fn cables(topology: &Topology) -> Vec<String> {
    let lay = |cable: Cable| {
        let (a, b) = cable.ends();
        let (a, b) = (space(a), space(b));
        format!("link add {b} netns {a} type veth peer name {a} netns {b}")
    };
    Cable::all(topology).into_iter().map(lay).collect()
}

/// Gives a node or switch its address, and sets its ports up. For `ip`.
pub fn ports(topology: &Topology, vertex: Vertex) -> Vec<String> {
    let mut lines = vec!["link set lo up".to_owned(), format!("address add {}/32 dev lo", address(vertex))];
    // One packet at a time: a queue would keep or drop a bundle (GSO) as one.
    let up = |to| format!("link set {} gso_max_segs 1 up", space(to));
    lines.extend(topology.neighbours(vertex).into_iter().map(up));
    lines
}

/// Limits what the ports of a node or switch send. For `tc`.
pub fn limits(topology: &Topology, vertex: Vertex, plan: CablePlan) -> Vec<String> {
    limits_by(topology, vertex, plan, plan.link.burst())
}

/// The same, with buckets of so many bytes: what may leave at once after a pause, at least a packet.
pub fn limits_by(topology: &Topology, vertex: Vertex, plan: CablePlan, burst: u32) -> Vec<String> {
    let Link { mbit, queue } = plan.link;
    let bucket = format!("tbf rate {mbit}mbit burst {burst} limit {queue}");
    let delay = plan.delay.as_micros() as u64;
    let of_port = |to: Vertex| {
        let port = space(to);
        if delay == 0 {
            return vec![format!("qdisc replace dev {port} root {bucket}")];
        }
        // Packets wait out the delay first: as many as the link can send meanwhile must have room.
        let packets = 1000 + u64::from(mbit) * delay / 8 / PACKET_MIN;
        vec![
            format!("qdisc replace dev {port} root handle 1: netem delay {delay}us limit {packets}"),
            format!("qdisc replace dev {port} parent 1:1 handle 2: {bucket}"),
        ]
    };
    topology.neighbours(vertex).into_iter().flat_map(of_port).collect()
}

/// Sets a port up or down. For `ip`.
pub fn port_state(to: Vertex, is_up: bool) -> String {
    format!("link set {} {}", space(to), if is_up { "up" } else { "down" })
}

/// Leads packets at `from` for a node to a neighbour. For `ip`.
pub fn route(from: Vertex, to: NodeId, by: Vertex) -> String {
    let (source, target) = (address(from), address(Vertex::Node(to)));
    // `onlink`, because no network is at the interface of which the neighbour's address would be a part.
    format!("route replace {target}/32 via {} dev {} onlink src {source}", address(by), space(by))
}

/// Removes the route to a node. For `ip`.
pub fn no_route(to: NodeId) -> String {
    format!("route del {}/32", address(Vertex::Node(to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shape::topology;

    const PLAN: CablePlan =
        CablePlan { link: Link { mbit: 1000, queue: 65536 }, delay: Duration::from_micros(0) };

    #[test]
    fn a_torus_of_two_by_two_has_four_cables_between_nodes() {
        let torus = topology(4, "torus:2x2").expect("a torus");
        assert_eq!(
            spaces(&torus),
            ["netns add node1", "netns add node2", "netns add node3", "netns add node4"]
        );
        let expected = [
            "link add node2 netns node1 type veth peer name node1 netns node2",
            "link add node3 netns node1 type veth peer name node1 netns node3",
            "link add node4 netns node2 type veth peer name node2 netns node4",
            "link add node4 netns node3 type veth peer name node3 netns node4",
        ];
        assert_eq!(cables(&torus), expected);
        let ends: Vec<String> = spaces(&torus).iter().map(|line| line.replace("add", "del")).collect();
        assert_eq!(no_spaces(&torus), ends);
        let first = Vertex::Node(NodeId(1));
        let expected = [
            "link set lo up",
            "address add 198.18.0.1/32 dev lo",
            "link set node2 gso_max_segs 1 up",
            "link set node3 gso_max_segs 1 up",
        ];
        assert_eq!(ports(&torus, first), expected);
        let expected = [
            "qdisc replace dev node2 root tbf rate 1000mbit burst 16384 limit 65536",
            "qdisc replace dev node3 root tbf rate 1000mbit burst 16384 limit 65536",
        ];
        assert_eq!(limits(&torus, first, PLAN), expected);
    }

    #[test]
    fn a_delay_comes_before_the_bucket() {
        let torus = topology(2, "mesh").expect("a cable");
        let plan = CablePlan { delay: Duration::from_micros(50), ..PLAN };
        let expected = [
            "qdisc replace dev node2 root handle 1: netem delay 50us limit 1097",
            "qdisc replace dev node2 parent 1:1 handle 2: tbf rate 1000mbit burst 16384 limit 65536",
        ];
        assert_eq!(limits(&torus, Vertex::Node(NodeId(1)), plan), expected);
    }

    #[test]
    fn a_fat_tree_has_switches_with_ports_towards_nodes_and_racks() {
        let tree = topology(4, "fat-tree:2").expect("a tree");
        let made: Vec<&str> = ["node1", "node2", "node3", "node4", "rack0", "rack1", "switch"].into();
        let spaces = spaces(&tree);
        assert!(spaces.iter().map(|line| &line["netns add ".len()..]).eq(made), "{spaces:?}");
        let expected = [
            "link add rack0 netns node1 type veth peer name node1 netns rack0",
            "link add rack0 netns node2 type veth peer name node2 netns rack0",
            "link add rack1 netns node3 type veth peer name node3 netns rack1",
            "link add rack1 netns node4 type veth peer name node4 netns rack1",
            "link add rack0 netns switch type veth peer name switch netns rack0",
            "link add rack1 netns switch type veth peer name switch netns rack1",
        ];
        assert_eq!(cables(&tree), expected);
        let expected = [
            "link set lo up",
            "address add 198.19.0.1/32 dev lo",
            "link set node3 gso_max_segs 1 up",
            "link set node4 gso_max_segs 1 up",
            "link set switch gso_max_segs 1 up",
        ];
        assert_eq!(ports(&tree, Vertex::Rack(1)), expected);
        let routed = route(Vertex::Rack(1), NodeId(2), Vertex::Core);
        assert_eq!(routed, "route replace 198.18.0.2/32 via 198.19.255.254 dev switch onlink src 198.19.0.1");
    }
}
