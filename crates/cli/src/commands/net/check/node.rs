//! A node's own address, its ports, and what is at the other ends of its cables.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::{fs, io};

use layout::topology::{CableEnd, Vertex};
use nix::libc;
use types::NodeId;

use super::arp::Prober;
use super::echo::{Echo, Question};
use super::{Finding, ways};
use crate::commands::net::machine::{Interface, Machine};
use crate::commands::net::planned::{PlannedNetwork, PlannedPort};
use crate::problem::problem;

/// How long the other end of a cable may take to answer, and how often it is asked.
const PATIENCE: Duration = Duration::from_millis(300);
const TRIES: usize = 3;

/// A node that is compared with the plan.
pub(super) struct NodeCheck<'n> {
    planned: &'n PlannedNetwork,
    machine: &'n Machine,
    node: NodeId,
    ports: Vec<PlannedPort>,
}

impl<'n> NodeCheck<'n> {
    pub(super) fn new(planned: &'n PlannedNetwork, machine: &'n Machine, node: NodeId) -> NodeCheck<'n> {
        NodeCheck { planned, machine, node, ports: planned.ports(node) }
    }

    /// Compares everything.
    pub(super) fn run(&self) -> anyhow::Result<Vec<Finding>> {
        let mut findings = Vec::new();
        if self.planned.is_routed() {
            findings.push(self.identity());
        }
        for port in &self.ports {
            findings.extend(self.port(port)?);
        }
        findings.extend(self.same_mtu());
        let own = self.planned.addressing.node(self.node);
        let source = self.machine.holder(own).map(|_| own);
        let asked = Echo::open(source).and_then(|echo| ways::compare(&echo, self.planned, self.node));
        findings.extend(asked.map_err(|error| not_asked("the nodes", &error))?);
        Ok(findings)
    }

    /// The address by which others know this node.
    fn identity(&self) -> Finding {
        let address = self.planned.addressing.node(self.node);
        let what = format!("{} {address}", self.node);
        match self.machine.holder(address) {
            Some(interface) => Finding::right(what, format!("on {}", interface.name)),
            None => {
                Finding::wrong(what, "no interface has it", format!("ip address add {address}/32 dev lo"))
            }
        }
    }

    /// A port. One line if all is well, else one for each thing that is not.
    fn port(&self, port: &PlannedPort) -> anyhow::Result<Vec<Finding>> {
        let far = self.planned.end_name(port.far);
        let what = format!("{}, cable {} to {far}", port.name, port.cable);
        let wrong = |found: String, remedy: String| Finding::wrong(what.clone(), found, remedy);
        let Some(interface) = self.machine.interface(&port.name) else {
            let names: Vec<&str> = self
                .machine
                .interfaces
                .iter()
                .map(|interface| &*interface.name)
                .filter(|name| *name != "lo")
                .collect();
            let remedy = format!("--interfaces with the right names; there are {}", names.join(", "));
            return Ok(vec![wrong("there is no such interface".into(), remedy)]);
        };
        if !interface.is_up {
            return Ok(vec![wrong("is down".into(), format!("ip link set {} up", port.name))]);
        }
        let mut findings = Vec::new();
        if !interface.addresses.contains(&(port.address, port.prefix)) {
            let (found, remedy) = self.address_elsewhere(port, interface);
            findings.push(wrong(found, remedy));
        }
        if self.planned.is_routed() {
            findings.extend(not_forwarding(port).map(|(found, remedy)| wrong(found, remedy)));
        }
        findings.extend(self.other_mtu(port).map(|(found, remedy)| wrong(found, remedy)));
        let no_carrier = || {
            let remedy = format!("is cable {} in at both ends, and {} on?", port.cable, port.far.vertex);
            wrong("has no carrier".into(), remedy)
        };
        if !interface.has_carrier {
            findings.push(no_carrier());
            return Ok(findings);
        }
        let mut end = format!("has {}", port.address);
        if let Some(far_address) = port.far_address {
            end = format!("leads to {}", port.far.vertex);
            match self.far_end(port, interface, far_address) {
                Ok(odd) => findings.extend(odd.map(|(found, remedy)| wrong(found, remedy))),
                // The kernel tells of a lost carrier up to a second after it takes no more packets (`linkwatch`).
                Err(error) if is_cut(&error) => findings.push(no_carrier()),
                Err(error) => return Err(not_asked(&port.name, &error)),
            }
        }
        if findings.is_empty() {
            findings.push(Finding::right(what, end));
        }
        Ok(findings)
    }

    fn address_elsewhere(&self, port: &PlannedPort, interface: &Interface) -> (String, String) {
        let PlannedPort { name, address, prefix, .. } = port;
        let others: Vec<String> =
            interface.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
        let has = if others.is_empty() { String::new() } else { format!(" but {}", others.join(" ")) };
        let found = format!("has no {address}/{prefix}{has}");
        match self.machine.holder(*address).filter(|holder| holder.name != *name) {
            Some(holder) => {
                (format!("{found}; {} has it", holder.name), "are the names in the right order?".into())
            }
            None => (found, format!("ip address add {address}/{prefix} dev {name}")),
        }
    }

    /// An MTU that is not the planned one.
    fn other_mtu(&self, port: &PlannedPort) -> Option<(String, String)> {
        let (planned, found) = (self.planned.mtu?, mtu(&port.name)?);
        (planned != found).then(|| {
            (
                format!("has MTU {found}, planned {planned}"),
                format!("ip link set {} mtu {planned}", port.name),
            )
        })
    }

    /// Ports whose MTUs differ, if the plan does not say what they are to be: OSPF has to send through all of them.
    fn same_mtu(&self) -> Option<Finding> {
        let mtus: Vec<(u32, &str)> =
            self.ports.iter().filter_map(|port| Some((mtu(&port.name)?, &*port.name))).collect();
        let (least, most) = (mtus.iter().min()?, mtus.iter().max()?);
        let differ = self.planned.mtu.is_none() && least.0 < most.0;
        differ.then(|| {
            let found = format!("{} has {}, {} has {}", least.1, least.0, most.1, most.0);
            Finding::wrong("MTU of the ports", found, format!("ip link set {} mtu {}", least.1, most.0))
        })
    }

    /// What is odd about the other end of a cable.
    fn far_end(
        &self,
        port: &PlannedPort,
        interface: &Interface,
        far_address: Ipv4Addr,
    ) -> io::Result<Option<(String, String)>> {
        let Some(link) = &interface.link else {
            return Ok(Some(("is no Ethernet port".into(), "--interfaces with the right names".into())));
        };
        let prober = Prober::open(link)?;
        for _ in 0..TRIES {
            if !prober.ask(&[far_address], PATIENCE)?.is_empty() {
                return self.small_far_mtu(port, far_address);
            }
        }
        let all: Vec<Ipv4Addr> = self
            .planned
            .cabling
            .cables()
            .iter()
            .flat_map(|cable| self.planned.addressing.cable(cable.number))
            .flatten()
            .collect();
        let mut found = prober.ask(&all, PATIENCE)?;
        if found.is_empty() {
            found = prober.ask(&all, PATIENCE)?;
        }
        let ends: Vec<CableEnd> = found.iter().filter_map(|&address| self.planned.end_at(address)).collect();
        Ok(Some(self.crossed(port, far_address, &ends)))
    }

    /// A cable that leads elsewhere: to whoever has answered for the addresses of `ends`.
    fn crossed(&self, port: &PlannedPort, far_address: Ipv4Addr, ends: &[CableEnd]) -> (String, String) {
        let (far, planned) = (port.far.vertex, self.planned.end_name(port.far));
        let nodes: BTreeSet<Vertex> = ends.iter().map(|end| end.vertex).collect();
        let Some(&node) = nodes.first() else {
            let remedy = format!("has {far} the address {far_address} there? `shoal net check` at {far}");
            return ("nobody there has an address of the plan".into(), remedy);
        };
        if nodes.len() > 1 {
            let names: Vec<String> = nodes.iter().map(Vertex::to_string).collect();
            let found = format!("leads to {}", names.join(" and "));
            return (found, format!("a cable to {planned} alone: is there a switch?"));
        }
        // A node that answers for all its addresses does not tell at which port.
        let there = match ends {
            [end] => self.planned.end_name(*end),
            _ => node.to_string(),
        };
        let found = format!("leads to {there}, the plan says {planned}");
        let remedy = if node == Vertex::Node(self.node) {
            format!("both ends are here: plug one into {planned}")
        } else if node == far {
            let [from, to] = [ends[0], port.far].map(|end| self.planned.port_name(end));
            format!("at {far}: move the cable from {from} to {to}")
        } else if let Some(other) = self.ports.iter().find(|other| other.far.vertex == node) {
            format!("swap the cables in {} and {}", port.name, other.name)
        } else {
            format!("plug the other end of cable {} into {planned}", port.cable)
        };
        (found, remedy)
    }

    /// Packets as large as this end sends them do not arrive, smaller ones do.
    fn small_far_mtu(&self, port: &PlannedPort, to: Ipv4Addr) -> io::Result<Option<(String, String)>> {
        let Some(own) = mtu(&port.name) else { return Ok(None) };
        // What is larger than the largest packet of IP is split anyway.
        let size = (own as usize).min(usize::from(u16::MAX));
        let echo = Echo::open(None)?;
        let (small, large) = (Question { to, hops: 1, size: 64 }, Question { to, hops: 1, size });
        for _ in 0..TRIES {
            let answered = echo.ask(&[small, large], PATIENCE)?;
            if answered.contains(&large) {
                return Ok(None);
            }
            if !answered.contains(&small) {
                // It does not answer echo requests, or not to this address: others say why.
                return Ok(None);
            }
        }
        let far = self.planned.end_name(port.far);
        Ok(Some((
            format!("packets of {own} bytes do not arrive"),
            format!("the MTU of {far} is smaller: make it {own}"),
        )))
    }
}

/// What keeps packets of others from being forwarded.
fn not_forwarding(port: &PlannedPort) -> Option<(String, String)> {
    let path = format!("/proc/sys/net/ipv4/conf/{}/forwarding", port.name);
    let is_on = fs::read_to_string(path).is_ok_and(|value| value.trim() == "1");
    let remedy = format!("sysctl -w net/ipv4/conf/{}/forwarding=1", port.name);
    (!is_on).then(|| ("does not forward".to_owned(), remedy))
}

/// The largest packet of an interface, in bytes.
fn mtu(interface: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

/// Errors of sending into a port without carrier.
fn is_cut(error: &io::Error) -> bool {
    let cut = [libc::ENOBUFS, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| cut.contains(&code))
}

fn not_asked(whom: &str, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "as root, with CAP_NET_RAW",
        _ => "the same again",
    };
    problem(format!("{whom} cannot be asked: {error}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::net::network_args::tests::planned;

    #[test]
    fn who_has_answered_tells_where_a_cable_leads() {
        let planned = planned("--torus 4x4").expect("a torus");
        let machine = Machine::default();
        let check = NodeCheck::new(&planned, &machine, NodeId(1));
        let end = |node, port| CableEnd { vertex: Vertex::Node(NodeId(node)), port };
        let port = &check.ports[0];
        let said = |ends: &[CableEnd]| {
            let (found, remedy) = check.crossed(port, Ipv4Addr::LOCALHOST, ends);
            format!("{found}; {remedy}")
        };
        assert_eq!(planned.end_name(port.far), "n2 port2");
        let planned_end = "the plan says n2 port2";
        for (ends, found, remedy) in [
            (vec![end(4, 1)], "n4 port1", "swap the cables in port1 and port2"),
            (vec![end(4, 1), end(4, 3)], "n4", "swap the cables in port1 and port2"),
            (vec![end(2, 4)], "n2 port4", "at n2: move the cable from port4 to port2"),
            (vec![end(11, 1)], "n11 port1", "plug the other end of cable 1 into n2 port2"),
            (vec![end(1, 3)], "n1 port3", "both ends are here: plug one into n2 port2"),
        ] {
            assert_eq!(said(&ends), format!("leads to {found}, {planned_end}; {remedy}"));
        }
        let two = said(&[end(2, 1), end(4, 1)]);
        assert_eq!(two, "leads to n2 and n4; a cable to n2 port2 alone: is there a switch?");
        assert!(
            said(&[]).starts_with("nobody there has an address of the plan; has n2 the address 127.0.0.1")
        );
    }

    #[test]
    fn a_machine_without_the_ports_is_told_so() {
        let planned = planned("--mesh 3 --interfaces eth7,eth8").expect("a mesh");
        let machine = Machine::default();
        let check = NodeCheck::new(&planned, &machine, NodeId(1));
        assert_eq!(check.identity().found, "no interface has it");
        let findings = check.port(&check.ports[1]).expect("nothing is asked");
        assert_eq!(findings.len(), 1);
        let Finding { what, found, .. } = &findings[0];
        assert_eq!((&**what, &**found), ("eth8, cable 2 to n3 eth7", "there is no such interface"));
    }
}
