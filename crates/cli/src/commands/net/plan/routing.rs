//! Who finds the ways: the configurations of FRR and BIRD, and routes that never change.
//!
//! Both daemons speak OSPF version 2 (RFC 2328) in one area, over point-to-point links that cost the same, so ways are those
//! with the fewest hops. A cable without carrier is noticed at once. Where the carrier stays, BFD (RFC 5880) misses three
//! packets within 0.9 s. What a node sends has its own address as the source, not that of a port: connections stay when a
//! cable is cut.

use layout::topology::Vertex;
use types::NodeId;

use crate::commands::net::planned::{CABLE_PREFIX, PlannedNetwork, PlannedPort};

/// Seconds between two greetings of OSPF, and until a neighbour counts as gone if BFD does not notice before.
const HELLO_S: u32 = 1;
const DEAD_S: u32 = 4;
/// Milliseconds between two packets of BFD, and how many may be lost.
const BFD_MS: u32 = 300;
const BFD_LOST: u32 = 3;
/// What a cable costs.
const COST: u32 = 10;
/// Metrics of static routes, and of those that take their place while their cable has no carrier.
const METRIC: u32 = 100;
const METRIC_DETOUR: u32 = 200;

/// `frr.conf` of a node.
pub(super) fn frr(planned: &PlannedNetwork, node: NodeId) -> String {
    let address = planned.addressing.node(node);
    let mut text = format!(
        "! From `shoal net plan`: {node}. /etc/frr/daemons needs ospfd=yes and bfdd=yes.\n\
         frr defaults traditional\nlog syslog informational\nservice integrated-vtysh-config\n!\n\
         ! systemd-networkd before 256 removes groups of next hops that are not its own.\n\
         no zebra nexthop kernel enable\n!\n\
         bfd\n profile shoal\n  detect-multiplier {BFD_LOST}\n  receive-interval {BFD_MS}\n  transmit-interval {BFD_MS}\n exit\nexit\n!\n\
         interface lo\n ip ospf area 0\n ip ospf passive\nexit\n!\n"
    );
    for port in planned.ports(node) {
        text += &format!(
            "interface {}\n description cable {} to {}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf cost {COST}\n \
             ip ospf hello-interval {HELLO_S}\n ip ospf dead-interval {DEAD_S}\n ip ospf bfd\n ip ospf bfd profile shoal\nexit\n!\n",
            port.name,
            port.cable,
            planned.end_name(port.far),
        );
    }
    text + &format!(
        "router ospf\n ospf router-id {address}\nexit\n!\n\
         route-map shoal permit 10\n set src {address}\nexit\n!\nip protocol ospf route-map shoal\n"
    )
}

/// `bird.conf` of a node.
pub(super) fn bird(planned: &PlannedNetwork, node: NodeId) -> String {
    let address = planned.addressing.node(node);
    let ports = planned.ports(node);
    let own: Vec<String> = ports.iter().map(own_range).collect();
    let names: Vec<String> = ports.iter().map(|port| format!("\"{}\"", port.name)).collect();
    let mut text = format!(
        "# From `shoal net plan`: {node}.\nrouter id {address};\nlog syslog all;\n\nprotocol device {{\n}}\n\n\
         protocol kernel {{\n  ipv4 {{\n    import none;\n    export filter {{\n      \
         if source !~ [ RTS_OSPF, RTS_OSPF_IA ] then reject;\n      \
         # The kernel knows these itself.\n      if net ~ [ {address}/32, {} ] then reject;\n      \
         krt_prefsrc = {address};\n      accept;\n    }};\n  }};\n}}\n\n\
         protocol bfd {{\n  interface {} {{\n    interval {BFD_MS} ms;\n    multiplier {BFD_LOST};\n  }};\n}}\n\n\
         protocol ospf v2 shoal {{\n  ipv4 {{\n    import all;\n    export none;\n  }};\n  ecmp yes;\n  area 0 {{\n    \
         interface \"lo\" {{\n      stub yes;\n    }};\n",
        own.join(", "),
        names.join(", "),
    );
    for port in &ports {
        text += &format!(
            "    # Cable {} to {}\n    interface \"{}\" {{\n      type ptp;\n      cost {COST};\n      hello {HELLO_S};\n      \
             dead {DEAD_S};\n      bfd yes;\n    }};\n",
            port.cable,
            planned.end_name(port.far),
            port.name,
        );
    }
    text + "  };\n}\n"
}

fn own_range(port: &PlannedPort) -> String {
    let lower = std::net::Ipv4Addr::from_bits(port.address.to_bits() & !1);
    format!("{lower}/{CABLE_PREFIX}")
}

/// The routes of a node through one of its ports, as systemd.network(5) has them.
pub(super) fn static_routes(planned: &PlannedNetwork, node: NodeId, port: &PlannedPort) -> String {
    let (Some(gateway), source) = (port.far_address, planned.addressing.node(node)) else {
        return String::new();
    };
    let mut text = String::new();
    for &to in planned.topology.nodes().keys().filter(|&&to| to != node) {
        let metric = if planned.topology.next_hop(Vertex::Node(node), to) == Some(port.far.vertex) {
            METRIC
        } else if detour(planned, node, to) == Some(port.far.vertex) {
            METRIC_DETOUR
        } else {
            continue;
        };
        let to = planned.addressing.node(to);
        text += &format!(
            "\n[Route]\nDestination={to}/32\nGateway={gateway}\nPreferredSource={source}\nMetric={metric}\n"
        );
    }
    text
}

/// The neighbour that takes what cannot go the usual way because its first cable is cut, and that does not send it back: none
/// of its own shortest ways leads here (a loop-free alternate, RFC 5286, 3.1). The nearest one to the target, if there are several.
pub(super) fn detour(planned: &PlannedNetwork, from: NodeId, to: NodeId) -> Option<Vertex> {
    let topology = &planned.topology;
    let usual = topology.next_hop(Vertex::Node(from), to)?;
    let distance = |a, b| topology.hops(a, b).unwrap_or(u32::MAX);
    let others = topology.neighbours(Vertex::Node(from)).into_iter().filter(|&neighbour| neighbour != usual);
    let safe = others.filter_map(|neighbour| {
        let Vertex::Node(id) = neighbour else { return None };
        let way = distance(id, to);
        (way < distance(id, from) + distance(from, to)).then_some((way, neighbour))
    });
    safe.min().map(|(_, neighbour)| neighbour)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::commands::net::network_args::tests::planned;

    #[test]
    fn each_port_speaks_ospf_and_the_source_is_the_node() {
        let planned = planned("--torus 3x3 --interfaces a,b,c,d --range 10.1.0.0/16").expect("a torus");
        let text = frr(&planned, NodeId(5));
        assert_eq!(text.matches(" ip ospf network point-to-point\n").count(), 4);
        assert_eq!(text.matches(" ip ospf area 0\n").count(), 5);
        assert!(text.contains("interface a\n description cable 9 to n6 b\n"), "{text}");
        assert!(
            text.contains(" ospf router-id 10.1.0.5\n") && text.contains(" set src 10.1.0.5\n"),
            "{text}"
        );
        let text = bird(&planned, NodeId(5));
        assert_eq!(text.matches("type ptp;").count(), 4);
        assert!(text.contains("krt_prefsrc = 10.1.0.5;"), "{text}");
        assert!(text.contains("interface \"a\", \"b\", \"c\", \"d\" {"), "{text}");
        assert!(text.contains("if net ~ [ 10.1.0.5/32, 10.1.0.144/31, "), "{text}");
    }

    /// Follows routes of all nodes, with the cable between two nodes cut.
    fn arrives(planned: &PlannedNetwork, from: NodeId, to: NodeId, cut: [Vertex; 2]) -> bool {
        let is_cut = |a: Vertex, b: Vertex| cut == [a, b] || cut == [b, a];
        let mut at = Vertex::Node(from);
        for _ in 0..2 * planned.topology.nodes().len() {
            if at == Vertex::Node(to) {
                return true;
            }
            let Vertex::Node(node) = at else { return false };
            let usual = planned.topology.next_hop(at, to).expect("a way");
            match detour(planned, node, to) {
                _ if !is_cut(at, usual) => at = usual,
                Some(other) => at = other,
                None => return false,
            }
        }
        panic!("{from} to {to}, cut {cut:?}: packets go round and round");
    }

    #[test]
    fn static_routes_never_loop_and_a_mesh_survives_any_cut() {
        let mut lost = BTreeMap::new();
        for line in ["--mesh 3", "--mesh 5", "--torus 3x3", "--torus 4x4", "--torus 5"] {
            let planned = planned(line).expect(line);
            let nodes: Vec<NodeId> = planned.topology.nodes().keys().copied().collect();
            for (a, b) in planned.topology.links() {
                for &from in &nodes {
                    for &to in nodes.iter().filter(|&&to| to != from) {
                        *lost.entry(line).or_insert(0) += usize::from(!arrives(&planned, from, to, [a, b]));
                    }
                }
            }
        }
        assert_eq!((lost["--mesh 3"], lost["--mesh 5"]), (0, 0));
        assert!(lost["--torus 5"] > 0, "a long ring needs a daemon: {lost:?}");
    }
}
