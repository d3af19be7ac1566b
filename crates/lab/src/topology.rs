//! Nodes on a switch, as the commands that make them. No command is run here.
//!
//! ```text
//!   node1: eth0 ──tbf──▶ ┌────────┐            Each node is a network namespace, the switch a bridge in one of its
//! own.          ◀──tbf─────── │ switch │            A pair of virtual interfaces is a cable; the token bucket at
//! each of its   node2: eth0 ──tbf──▶ │        │            ends is what that end may send: full duplex, as on a
//! switching hub.          ◀──tbf─────── └────────┘
//! ```

use std::net::Ipv4Addr;

/// Namespace of the switch.
pub const SWITCH: &str = "switch";
/// The interface of a node.
pub const INTERFACE: &str = "eth0";
/// Addresses of nodes: 198.18.0.0/15, set aside for measurements by RFC 2544.
const FIRST: u32 = 0xc612_0000;
const PREFIX: u32 = 15;
/// Most nodes of a switch.
pub const NODES_MAX: u32 = 250;
/// Burst of a link, in bytes: more than a frame, but less than a bundle of frames (GSO), so that tbf splits bundles.
const BURST: u32 = 16 << 10;

/// The properties of a link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Megabits per second, all headers counted.
    pub mbit: u32,
    /// Size of the queue at each end, in bytes; further packets are dropped.
    pub queue: u32,
}

/// A command of iproute2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// `ip` or `tc`.
    pub program: &'static str,
    /// Its arguments.
    pub words: Vec<String>,
}

fn step(program: &'static str, line: &str) -> Step {
    Step { program, words: line.split(' ').map(str::to_owned).collect() }
}

/// The namespace of a node; nodes count from 1.
pub fn name(node: u32) -> String {
    format!("node{node}")
}

/// The address of a node.
pub fn address(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST + node)
}

/// The addresses of all nodes, as a network.
pub fn addresses() -> String {
    format!("{}/{PREFIX}", Ipv4Addr::from_bits(FIRST))
}

/// The commands that make a switch with `nodes` nodes.
pub fn build(nodes: u32, link: Link) -> Vec<Step> {
    let mut steps = vec![
        step("ip", &format!("netns add {SWITCH}")),
        // Without the spanning tree protocol, because with it a port would not forward for 30 s.
        step("ip", &format!("-n {SWITCH} link add hub type bridge stp_state 0")),
        step("ip", &format!("-n {SWITCH} link set hub up")),
    ];
    for node in 1..=nodes.min(NODES_MAX) {
        let (name, address) = (name(node), address(node));
        steps.extend([
            step("ip", &format!("netns add {name}")),
            step("ip", &format!("-n {SWITCH} link add {name} type veth peer name {INTERFACE} netns {name}")),
            step("ip", &format!("-n {SWITCH} link set {name} master hub up")),
            step("ip", &format!("-n {name} address add {address}/{PREFIX} dev {INTERFACE}")),
            step("ip", &format!("-n {name} link set lo up")),
            step("ip", &format!("-n {name} link set {INTERFACE} up")),
        ]);
    }
    steps.extend(shape(nodes, link));
    steps
}

/// The commands that set rate and queue of all links.
pub fn shape(nodes: u32, link: Link) -> Vec<Step> {
    let Link { mbit, queue } = link;
    let mut steps = Vec::new();
    for node in 1..=nodes.min(NODES_MAX) {
        let name = name(node);
        for (space, port) in [(SWITCH, &*name), (&*name, INTERFACE)] {
            let line = format!(
                "-n {space} qdisc replace dev {port} root tbf rate {mbit}mbit burst {BURST} limit {queue}"
            );
            steps.push(step("tc", &line));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { mbit: 10, queue: 65536 };

    fn lines(steps: &[Step]) -> Vec<String> {
        steps.iter().map(|step| format!("{} {}", step.program, step.words.join(" "))).collect()
    }

    #[test]
    fn a_node_has_a_cable_and_both_ends_of_it_are_shaped() {
        let lines = lines(&build(1, LINK));
        let expected = [
            "ip netns add switch",
            "ip -n switch link add hub type bridge stp_state 0",
            "ip -n switch link set hub up",
            "ip netns add node1",
            "ip -n switch link add node1 type veth peer name eth0 netns node1",
            "ip -n switch link set node1 master hub up",
            "ip -n node1 address add 198.18.0.1/15 dev eth0",
            "ip -n node1 link set lo up",
            "ip -n node1 link set eth0 up",
            "tc -n switch qdisc replace dev node1 root tbf rate 10mbit burst 16384 limit 65536",
            "tc -n node1 qdisc replace dev eth0 root tbf rate 10mbit burst 16384 limit 65536",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn nodes_differ_in_name_and_address_and_fit_the_range() {
        let names: std::collections::BTreeSet<_> = (1..=NODES_MAX).map(|n| (name(n), address(n))).collect();
        assert_eq!(names.len() as u32, NODES_MAX);
        assert!((1..=NODES_MAX).all(|n| address(n).octets()[0] == 198 && name(n).len() <= 15));
        assert_eq!(addresses(), "198.18.0.0/15");
        assert_eq!(shape(3, LINK).len(), 6);
    }
}
