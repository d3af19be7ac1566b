//! A network as it is planned: who has which port, address and cable.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use layout::topology::{Addressing, CableEnd, Cabling, Topology, Vertex};
use types::NodeId;

use crate::problem::problem;

/// Bits that both addresses of a cable share (RFC 3021).
pub(super) const CABLE_PREFIX: u8 = 31;

/// See the module.
#[derive(Debug)]
pub(super) struct PlannedNetwork {
    pub(super) topology: Topology,
    pub(super) cabling: Cabling,
    pub(super) addressing: Addressing,
    pub(super) names: PortNames,
    /// What the MTU of all ports is to be.
    pub(super) mtu: Option<u32>,
}

/// What ports are called.
#[derive(Debug, Default)]
pub(super) struct PortNames {
    /// Those of all nodes, in the order of the ports; none: `port1`, `port2` and so on.
    pub(super) all: Vec<String>,
    /// Those of nodes that have others.
    pub(super) by_node: BTreeMap<NodeId, Vec<String>>,
}

/// A port of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PlannedPort {
    /// Its interface.
    pub(super) name: String,
    /// The cable in it.
    pub(super) cable: usize,
    /// Its address, and the prefix of it.
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u8,
    /// Where the cable leads.
    pub(super) far: CableEnd,
    /// The address there; a switch has none.
    pub(super) far_address: Option<Ipv4Addr>,
}

impl PlannedNetwork {
    /// Whether nodes forward packets of others.
    pub(super) fn is_routed(&self) -> bool {
        self.topology.shape().is_switchless()
    }

    /// The ports of a node, in their order.
    pub(super) fn ports(&self, node: NodeId) -> Vec<PlannedPort> {
        let cables = self.cabling.of(Vertex::Node(node));
        let port = |(cable, near, far): (&layout::topology::Cable, CableEnd, CableEnd)| {
            let [lower, upper] = match self.addressing.cable(cable.number) {
                Some(addresses) => addresses.map(Some),
                None => [Some(self.addressing.node(node)), None],
            };
            let is_first = near == cable.ends[0];
            let (own, far_address) = if is_first { (lower, upper) } else { (upper, lower) };
            PlannedPort {
                name: self.port_name(near),
                cable: cable.number,
                address: own.expect("a node's end of a cable has an address"),
                prefix: if self.is_routed() { CABLE_PREFIX } else { self.addressing.node_prefix() },
                far,
                far_address,
            }
        };
        cables.into_iter().map(port).collect()
    }

    /// What a port is called.
    pub(super) fn port_name(&self, end: CableEnd) -> String {
        let Vertex::Node(node) = end.vertex else { return format!("port {}", end.port) };
        let names = self.names.by_node.get(&node).unwrap_or(&self.names.all);
        names.get(end.port - 1).cloned().unwrap_or_else(|| format!("port{}", end.port))
    }

    /// A port and what it is at: `n2 eth1`.
    pub(super) fn end_name(&self, end: CableEnd) -> String {
        format!("{} {}", end.vertex, self.port_name(end))
    }

    /// The end of a cable that has an address.
    pub(super) fn end_at(&self, address: Ipv4Addr) -> Option<CableEnd> {
        self.cabling.cables().iter().find_map(|cable| {
            let at = self.addressing.cable(cable.number)?.into_iter().position(|end| end == address)?;
            Some(cable.ends[at])
        })
    }

    /// Routers and the target itself, on the shortest way between two nodes: what the time to live of a packet counts.
    pub(super) fn hops(&self, from: NodeId, to: NodeId) -> u32 {
        let hops = self.topology.hops(from, to).unwrap_or(0);
        // Switches do not count.
        if self.is_routed() { hops } else { hops.min(1) }
    }

    /// What the network is, in a few words.
    pub(super) fn title(&self) -> String {
        let (shape, nodes) = (self.topology.shape(), self.topology.nodes().len());
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let cables = self.cabling.cables().len();
        format!("{shape}: {}, {}, {}", count(nodes, "node"), count(cables, "cable"), self.addressing.range())
    }

    /// Refuses names that are too few for the ports of a node.
    pub(super) fn check_names(&self) -> anyhow::Result<()> {
        for &node in self.topology.nodes().keys() {
            let own = self.names.by_node.get(&node);
            let names = own.unwrap_or(&self.names.all);
            let ports = self.topology.neighbours(Vertex::Node(node)).len();
            if names.is_empty() || names.len() >= ports {
                continue;
            }
            let given =
                if names.len() == 1 { "1 name is".to_owned() } else { format!("{} names are", names.len()) };
            let what = format!("{node} has {ports} ports, and {given} given: {}", names.join(", "));
            let node = own.map(|_| format!("{}=", node.0)).unwrap_or_default();
            let more = ",NAME".repeat(ports - names.len());
            return Err(problem(what, format!("--interfaces {node}{}{more}", names.join(","))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::network_args::tests::planned;
    use super::*;

    #[test]
    fn both_ends_of_a_cable_agree() {
        for line in ["--torus 3x3", "--mesh 4", "--torus 2x2"] {
            let planned = planned(line).expect(line);
            for &node in planned.topology.nodes().keys() {
                for port in planned.ports(node) {
                    let Vertex::Node(other) = port.far.vertex else { panic!("{line}: a switch") };
                    let back = &planned.ports(other)[port.far.port - 1];
                    assert_eq!((back.cable, back.far.vertex), (port.cable, Vertex::Node(node)), "{line}");
                    assert_eq!(Some(back.address), port.far_address, "{line}");
                    assert_eq!(planned.end_at(back.address), Some(port.far), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_node_on_a_switch_has_one_address() {
        let planned = planned("--fat-tree 2x2 --range 10.1.0.0/24").expect("a tree");
        let ports = planned.ports(NodeId(3));
        assert_eq!(ports.len(), 1);
        assert_eq!((ports[0].address.to_string(), ports[0].prefix), ("10.1.0.3".to_owned(), 24));
        assert_eq!((ports[0].far.vertex, ports[0].far_address), (Vertex::Rack(1), None));
        assert_eq!(planned.hops(NodeId(1), NodeId(3)), 1);
        assert_eq!(planned.title(), "fat-tree: 4 nodes, 6 cables, 10.1.0.0/24");
    }
}
