//! Nodes on a switch or a router, as the commands that make them. No command is run here.
//!
//! ```text
//!   node1: eth0 ──tbf──▶ ┌────────┐    Each node is a network namespace, the switch a bridge in its own namespace.
//!          ◀──tbf─────── │ switch │    A pair of virtual interfaces is a cable. The token bucket at each end limits
//!   node2: eth0 ──tbf──▶ │        │    what that end sends: full duplex, as on a switching hub.
//!          ◀──tbf─────── └────────┘
//! ```
//!
//! A **router** takes the place of the switch where queues are measured. Behind a bridge the sender's socket goes on counting
//! the bytes that wait in a port's queue, and TCP slows down before the queue is full; a router takes them off its account
//! (`skb_orphan` in the kernel's `ip_rcv`). Packets go one by one, not in bundles (GSO), which a queue would keep or drop as
//! one.

use std::net::Ipv4Addr;

use crate::iproute::Step;

/// Namespace of the switch.
pub const SWITCH: &str = "switch";
/// Namespace of the router.
pub const ROUTER: &str = "router";
/// The router's address, the same on all its ports: the last one of the range.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
/// The router's device through which packets go whose ports share one memory.
pub(crate) const SHARED: &str = "shared";
/// Where the router looks what comes from there up.
const SHARED_TABLE: u32 = 100;
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

impl Link {
    /// Tokens that a port may save, in bytes.
    pub(crate) fn burst(self) -> u32 {
        // Rates of several Gbit/s need more tokens than a timer's delay lets pass: 100 us of them.
        BURST.max(self.mbit.saturating_mul(100) / 8)
    }
}

/// How the nodes of a router control congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// By loss; the usual one of Linux.
    Cubic,
    /// By loss, as most others are compared with.
    Reno,
    /// By measured rate and round trip.
    Bbr,
}

impl Control {
    /// All of them.
    pub const ALL: [Control; 3] = [Control::Cubic, Control::Reno, Control::Bbr];

    /// The kernel's name.
    pub fn title(self) -> &'static str {
        match self {
            Control::Cubic => "cubic",
            Control::Reno => "reno",
            Control::Bbr => "bbr",
        }
    }
}

fn step(program: &'static str, line: &str) -> Step {
    Step::new(program, line)
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
    let both = |node| {
        let name = name(node);
        [limit(SWITCH, &name, link, BURST), limit(&name, INTERFACE, link, BURST)]
    };
    (1..=nodes.min(NODES_MAX)).flat_map(both).collect()
}

/// Limits what a port sends.
fn limit(space: &str, port: &str, link: Link, burst: u32) -> Step {
    let Link { mbit, queue } = link;
    let line =
        format!("-n {space} qdisc replace dev {port} root tbf rate {mbit}mbit burst {burst} limit {queue}");
    step("tc", &line)
}

/// The commands that make a router with `nodes` nodes, whose links have no limit yet.
pub fn build_routed(nodes: u32, control: Control) -> Vec<Step> {
    let mut steps = vec![
        step("ip", &format!("netns add {ROUTER}")),
        step("ip", &format!("netns exec {ROUTER} sysctl -qw net.ipv4.ip_forward=1")),
    ];
    for node in 1..=nodes.min(NODES_MAX) {
        let (name, address) = (name(node), address(node));
        steps.extend([
            step("ip", &format!("netns add {name}")),
            step("ip", &format!("-n {ROUTER} link add {name} type veth peer name {INTERFACE} netns {name}")),
            step("ip", &format!("-n {ROUTER} address add {GATEWAY}/32 dev {name}")),
            step("ip", &format!("-n {ROUTER} link set {name} gso_max_segs 1 up")),
            step("ip", &format!("-n {ROUTER} route add {address}/32 dev {name}")),
            step("ip", &format!("-n {name} address add {address}/32 dev {INTERFACE}")),
            step("ip", &format!("-n {name} link set {INTERFACE} gso_max_segs 1 up")),
            step("ip", &format!("-n {name} link set lo up")),
        ]);
    }
    steps.extend(control_by(nodes, control));
    steps
}

/// The commands that set the congestion control of new connections between the nodes of a router.
pub fn control_by(nodes: u32, control: Control) -> Vec<Step> {
    let control = control.title();
    // By the route, because a namespace may not set what the machine has not allowed.
    let route = |node| {
        let name = name(node);
        let words = format!("via {GATEWAY} dev {INTERFACE} onlink congctl {control}");
        step("ip", &format!("-n {name} route replace default {words}"))
    };
    (1..=nodes.min(NODES_MAX)).map(route).collect()
}

/// The commands that limit the link of a router's node: `down` is towards the node, `up` from it.
pub fn shape_routed(node: u32, down: Link, up: Link) -> [Step; 2] {
    let name = name(node);
    [limit(ROUTER, &name, down, down.burst()), limit(&name, INTERFACE, up, up.burst())]
}

/// The commands by which a router sends what goes to `nodes` through [`SHARED`], which exists, and what comes from there to the
/// nodes.
pub(crate) fn share(nodes: &[u32]) -> Vec<Step> {
    let mut steps = vec![
        // What waits there is nobody's queue; it is taken away at once.
        step("ip", &format!("-n {ROUTER} link set {SHARED} txqueuelen 4096 up")),
        // All packets from there have the addresses of others.
        step("ip", &format!("netns exec {ROUTER} sysctl -qw net.ipv4.conf.all.rp_filter=0")),
        step("ip", &format!("netns exec {ROUTER} sysctl -qw net.ipv4.conf.{SHARED}.rp_filter=0")),
        step("ip", &format!("-n {ROUTER} rule add iif {SHARED} lookup {SHARED_TABLE}")),
    ];
    for &node in nodes {
        let (name, address) = (name(node), address(node));
        steps.extend([
            step("ip", &format!("-n {ROUTER} route replace {address}/32 dev {name} table {SHARED_TABLE}")),
            step("ip", &format!("-n {ROUTER} route replace {address}/32 dev {SHARED}")),
        ]);
    }
    steps
}

/// The commands that undo [`share`].
pub(crate) fn unshare(nodes: &[u32]) -> Vec<Step> {
    let back = |&node: &u32| {
        step("ip", &format!("-n {ROUTER} route replace {}/32 dev {}", address(node), name(node)))
    };
    let mut steps: Vec<Step> = nodes.iter().map(back).collect();
    steps.push(step("ip", &format!("-n {ROUTER} rule del iif {SHARED} lookup {SHARED_TABLE}")));
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
    fn a_node_of_a_router_has_an_address_of_its_own_and_all_its_ways_lead_there() {
        let lines = lines(&build_routed(1, Control::Bbr));
        let expected = [
            "ip netns add router",
            "ip netns exec router sysctl -qw net.ipv4.ip_forward=1",
            "ip netns add node1",
            "ip -n router link add node1 type veth peer name eth0 netns node1",
            "ip -n router address add 198.19.255.254/32 dev node1",
            "ip -n router link set node1 gso_max_segs 1 up",
            "ip -n router route add 198.18.0.1/32 dev node1",
            "ip -n node1 address add 198.18.0.1/32 dev eth0",
            "ip -n node1 link set eth0 gso_max_segs 1 up",
            "ip -n node1 link set lo up",
            "ip -n node1 route replace default via 198.19.255.254 dev eth0 onlink congctl bbr",
        ];
        assert_eq!(lines, expected);
        let shaped = shape_routed(1, LINK, Link { mbit: 5000, queue: 4 << 20 });
        let shaped: Vec<String> = shaped.iter().map(|step| step.words.join(" ")).collect();
        let expected = [
            "-n router qdisc replace dev node1 root tbf rate 10mbit burst 16384 limit 65536",
            "-n node1 qdisc replace dev eth0 root tbf rate 5000mbit burst 62500 limit 4194304",
        ];
        assert_eq!(shaped, expected);
    }

    #[test]
    fn what_goes_to_nodes_goes_through_a_device_and_comes_back() {
        let shared = lines(&share(&[2]));
        let expected = [
            "ip -n router link set shared txqueuelen 4096 up",
            "ip netns exec router sysctl -qw net.ipv4.conf.all.rp_filter=0",
            "ip netns exec router sysctl -qw net.ipv4.conf.shared.rp_filter=0",
            "ip -n router rule add iif shared lookup 100",
            "ip -n router route replace 198.18.0.2/32 dev node2 table 100",
            "ip -n router route replace 198.18.0.2/32 dev shared",
        ];
        assert_eq!(shared, expected);
        let expected = [
            "ip -n router route replace 198.18.0.2/32 dev node2",
            "ip -n router rule del iif shared lookup 100",
        ];
        assert_eq!(lines(&unshare(&[2])), expected);
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
