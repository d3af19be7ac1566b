//! The files of a node: what systemd-networkd, sysctl and a routing daemon read, as texts by their paths.

use types::NodeId;

use super::routing::{bird, frr, static_routes};
use super::{Files, Routing};
use crate::commands::net::planned::{PlannedNetwork, PlannedPort};

/// What the files of a node say first.
const HEAD: &str = "# From `shoal net plan`.\n";

/// The files of a node; `check` is the command that compares the node with the plan.
pub(super) fn of_node(planned: &PlannedNetwork, node: NodeId, routing: Routing, check: &str) -> Files {
    let ports = planned.ports(node);
    let mut files = Files::new();
    for port in &ports {
        let mut text = port_network(planned, node, port);
        if routing == Routing::Static && planned.is_routed() {
            text += &static_routes(planned, node, port);
        }
        files.insert(format!("etc/systemd/network/10-shoal-{}.network", port.name), text);
    }
    if planned.is_routed() {
        files.insert("etc/systemd/network/10-shoal-lo.network".to_owned(), identity_network(planned, node));
        files.insert("etc/sysctl.d/90-shoal-net.conf".to_owned(), sysctl(&ports));
        if routing != Routing::Static {
            files.insert("etc/systemd/networkd.conf.d/90-shoal-net.conf".to_owned(), keep_routes());
        }
        match routing {
            Routing::Frr => drop(files.insert("etc/frr/frr.conf".to_owned(), frr(planned, node))),
            Routing::Bird => drop(files.insert("etc/bird/bird.conf".to_owned(), bird(planned, node))),
            Routing::Static => {}
        }
    }
    files.insert("README".to_owned(), readme(planned, node, routing, check));
    files
}

/// A port, as systemd.network(5) has it.
fn port_network(planned: &PlannedNetwork, node: NodeId, port: &PlannedPort) -> String {
    let PlannedPort { name, cable, address, prefix, far, .. } = port;
    let far = planned.end_name(*far);
    let mut text = format!("{HEAD}# Cable {cable}: {node} {name} to {far}\n[Match]\nName={name}\n\n[Link]\n");
    if let Some(mtu) = planned.mtu {
        text += &format!("MTUBytes={mtu}\n");
    }
    // A machine starts with a cable cut too. LLDP tells `networkctl lldp` who is at the other end.
    text +=
        &format!("RequiredForOnline=no\n\n[Network]\nAddress={address}/{prefix}\nEmitLLDP=yes\nLLDP=yes\n");
    if planned.is_routed() {
        // The address stays when the cable is cut: the kernel passes over routes without carrier, see sysctl.
        text += "ConfigureWithoutCarrier=yes\n";
    }
    text
}

/// The node's own address, which is on no port: it stays when any cable is cut.
fn identity_network(planned: &PlannedNetwork, node: NodeId) -> String {
    let address = planned.addressing.node(node);
    format!(
        "{HEAD}# The address by which others know {node}\n[Match]\nName=lo\n\n[Network]\nAddress={address}/32\n"
    )
}

/// systemd-networkd removes routes that are not its own when it starts; those of the daemon are to stay. Versions before 256 do
/// not know the second setting, and say so in their log.
fn keep_routes() -> String {
    format!("{HEAD}[Network]\nManageForeignRoutes=no\nManageForeignNextHops=no\n")
}

fn sysctl(ports: &[PlannedPort]) -> String {
    let mut text = format!(
        "{HEAD}# Connections to one node take all ways that are equally short.\n\
         net.ipv4.fib_multipath_hash_policy = 1\n\
         # Only what comes in at these ports is forwarded. Ways there and back may differ. A port answers for its own\n\
         # address only. Routes through a cut cable do not count.\n"
    );
    let settings =
        [("forwarding", 1), ("rp_filter", 2), ("arp_ignore", 1), ("ignore_routes_with_linkdown", 1)];
    for port in ports {
        for (name, value) in settings {
            // A dot in a name would be read as the next part of the key, so slashes divide them.
            text += &format!("net/ipv4/conf/{}/{name} = {value}\n", port.name);
        }
    }
    text
}

fn readme(planned: &PlannedNetwork, node: NodeId, routing: Routing, check: &str) -> String {
    let (install, restart) = match routing {
        _ if !planned.is_routed() => ("", ""),
        Routing::Frr => {
            ("apt-get install -y frr && sed -i -E 's/^(ospfd|bfdd)=.*/\\1=yes/' /etc/frr/daemons\n", " frr")
        }
        Routing::Bird => ("apt-get install -y bird2\n", " bird"),
        Routing::Static => ("", ""),
    };
    let sysctl = if planned.is_routed() { "sysctl -q -p /etc/sysctl.d/90-shoal-net.conf && " } else { "" };
    format!(
        "At {node}, in this directory, as root:\n\n{install}\
         cp -r etc/. /etc/ && {sysctl}systemctl enable systemd-networkd && systemctl restart systemd-networkd{restart}\n\
         {check} --node {}\n",
        node.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::net::network_args::tests::planned;

    fn files(line: &str, routing: Routing) -> Files {
        of_node(&planned(line).expect(line), NodeId(1), routing, "shoal net check --topology ../topology")
    }

    #[test]
    fn a_node_of_a_mesh_has_two_ports_and_an_identity() {
        let files = files("--mesh 3 --interfaces eth1,eth2.7 --mtu 9000", Routing::Frr);
        let paths: Vec<&String> = files.keys().collect();
        assert_eq!(
            paths,
            [
                "README",
                "etc/frr/frr.conf",
                "etc/sysctl.d/90-shoal-net.conf",
                "etc/systemd/network/10-shoal-eth1.network",
                "etc/systemd/network/10-shoal-eth2.7.network",
                "etc/systemd/network/10-shoal-lo.network",
                "etc/systemd/networkd.conf.d/90-shoal-net.conf",
            ]
        );
        let expected = "\
# From `shoal net plan`.
# Cable 1: n1 eth1 to n2 eth1
[Match]
Name=eth1

[Link]
MTUBytes=9000
RequiredForOnline=no

[Network]
Address=10.99.0.128/31
EmitLLDP=yes
LLDP=yes
ConfigureWithoutCarrier=yes
";
        assert_eq!(files["etc/systemd/network/10-shoal-eth1.network"], expected);
        assert!(
            files["etc/systemd/network/10-shoal-lo.network"]
                .ends_with("Name=lo\n\n[Network]\nAddress=10.99.0.1/32\n")
        );
        assert!(files["etc/sysctl.d/90-shoal-net.conf"].contains("\nnet/ipv4/conf/eth2.7/forwarding = 1\n"));
        let readme: Vec<&str> = files["README"].lines().skip(2).collect();
        assert_eq!(readme.len(), 3);
        assert_eq!(readme[2], "shoal net check --topology ../topology --node 1");
    }

    #[test]
    fn a_node_on_a_switch_has_one_file_and_forwards_nothing() {
        let files = files("--flat 3", Routing::Frr);
        let paths: Vec<&String> = files.keys().collect();
        assert_eq!(paths, ["README", "etc/systemd/network/10-shoal-port1.network"]);
        assert!(files["etc/systemd/network/10-shoal-port1.network"].contains("Address=10.99.0.1/16\n"));
        assert!(!files["README"].contains("frr"));
    }

    #[test]
    fn static_routes_are_in_the_files_of_their_ports() {
        let files = files("--mesh 3", Routing::Static);
        let port = &files["etc/systemd/network/10-shoal-port1.network"];
        let routes: Vec<&str> = port.split("[Route]\n").skip(1).collect();
        let expected = [
            "Destination=10.99.0.2/32\nGateway=10.99.0.129\nPreferredSource=10.99.0.1\nMetric=100\n\n",
            "Destination=10.99.0.3/32\nGateway=10.99.0.129\nPreferredSource=10.99.0.1\nMetric=200\n",
        ];
        assert_eq!(routes, expected);
    }
}
