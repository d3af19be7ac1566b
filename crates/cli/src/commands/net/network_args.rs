//! Which network is planned, as a command line says it: the same words for `shoal net plan` and `shoal net check`.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use clap::Args;
use layout::topology::{
    AddressRange, Addressing, AddressingError, Cabling, Coordinates, NodeEntry, Shape, Topology,
};
use types::NodeId;

use super::planned::{PlannedNetwork, PortNames};
use crate::problem::problem;

/// Longest name of an interface (`IFNAMSIZ` of Linux, without the zero).
const NAME_MAX: usize = 15;
/// Smallest and largest MTU that the plan takes: what IPv4 asks for, and the most that Ethernet cards can.
const MTU: std::ops::RangeInclusive<u32> = 576..=16_384;

/// The network.
#[derive(Args)]
pub(super) struct NetworkArgs {
    /// A torus: each node has two cables along each dimension
    #[arg(long, value_name = "4x4", help_heading = "Network")]
    torus: Option<String>,
    /// A full mesh of so many nodes: every node has a cable to every other
    #[arg(long, value_name = "NODES", help_heading = "Network")]
    mesh: Option<u32>,
    /// So many nodes on one switch
    #[arg(long, value_name = "NODES", help_heading = "Network")]
    flat: Option<u32>,
    /// Racks with a switch each, and a switch above them
    #[arg(long, value_name = "RACKSxNODES", help_heading = "Network")]
    fat_tree: Option<RackSizes>,
    /// A file that lists nodes and links, or a shape as one word: torus:4x4, mesh, flat
    #[arg(long, value_name = "FILE|SHAPE", help_heading = "Network")]
    topology: Option<String>,
    /// Nodes of `--topology mesh` or `--topology flat`
    #[arg(long, value_name = "N", requires = "topology", help_heading = "Network")]
    nodes: Option<u32>,
    /// IPv4 addresses for nodes and cables
    #[arg(long, value_name = "RANGE", default_value = DEFAULT_RANGE, help_heading = "Network")]
    pub(super) range: AddressRange,
    /// Names of the ports in their order, for all nodes, or for one: 3=eno1,eno2 [default: port1,port2,...]
    #[arg(long, value_name = "[NODE=]NAME,...", help_heading = "Network")]
    interfaces: Vec<InterfaceNames>,
    /// Largest packet of the ports, in bytes; the same at both ends of every cable [default: left as it is]
    #[arg(long, value_name = "BYTES", help_heading = "Network")]
    mtu: Option<u32>,
}

/// The range that is taken if none is given.
pub(super) const DEFAULT_RANGE: &str = "10.99.0.0/16";

/// Racks, and nodes of each: `4x8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RackSizes {
    racks: u16,
    nodes: u16,
}

impl FromStr for RackSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<RackSizes, String> {
        let sizes =
            text.split_once('x').and_then(|(racks, nodes)| Some((racks.parse().ok()?, nodes.parse().ok()?)));
        match sizes {
            Some((racks, nodes)) if racks > 0 && nodes > 0 => Ok(RackSizes { racks, nodes }),
            _ => Err(format!("`{text}` is not RACKSxNODES, as in 4x8: four racks of eight nodes")),
        }
    }
}

/// Names of ports, for all nodes or for one.
#[derive(Clone, PartialEq, Eq, Debug)]
struct InterfaceNames {
    node: Option<NodeId>,
    names: Vec<String>,
}

impl FromStr for InterfaceNames {
    type Err = String;

    fn from_str(text: &str) -> Result<InterfaceNames, String> {
        let (node, list) = match text.split_once('=') {
            Some((node, list)) => (Some(node_id(node)?), list),
            None => (None, text),
        };
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        // What Linux takes (`dev_valid_name`), without what would end a word of a configuration.
        let is_name = |name: &&String| {
            // Not the loopback interface, nor what means all interfaces to sysctl.
            let is_other = [".", "..", "lo", "all", "default"].contains(&name.as_str());
            let fits = (1..=NAME_MAX).contains(&name.len()) && !is_other;
            fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte))
        };
        if let Some(bad) = names.iter().find(|name| !is_name(name)) {
            return Err(format!("`{bad}` is no name of an interface: `ip link` shows them"));
        }
        let distinct: BTreeSet<&String> = names.iter().collect();
        if distinct.len() < names.len() {
            return Err(format!("`{list}` names an interface twice"));
        }
        Ok(InterfaceNames { node, names })
    }
}

/// A node as people write it: `3` or `n3`.
pub(super) fn node_id(text: &str) -> Result<NodeId, String> {
    let number = text.strip_prefix('n').unwrap_or(text).parse();
    number.map(NodeId).map_err(|_| format!("`{text}` is no node: nodes are numbers, as in --node 3"))
}

impl NetworkArgs {
    /// The network with its cables, addresses and names.
    pub(super) fn planned(&self) -> anyhow::Result<PlannedNetwork> {
        let topology = self.topology()?;
        if topology.nodes().is_empty() {
            return Err(problem("a network without nodes has no cables", "a line `node 1`, or --nodes 3"));
        }
        if let Some(mtu) = self.mtu.filter(|mtu| !MTU.contains(mtu)) {
            let what = format!("--mtu {mtu} is not from {} to {}", MTU.start(), MTU.end());
            return Err(problem(what, "9000 is usual where all ports can do so, 1500 elsewhere"));
        }
        let cabling = Cabling::new(&topology);
        let addressing =
            Addressing::new(&topology, &cabling, self.range).map_err(|error| not_addressed(&error))?;
        let names = self.names(&topology)?;
        let planned = PlannedNetwork { topology, cabling, addressing, names, mtu: self.mtu };
        planned.check_names()?;
        Ok(planned)
    }

    /// Whether the names of ports were given.
    pub(super) fn has_names(&self) -> bool {
        !self.interfaces.is_empty()
    }

    /// The same network in the words of a command line that has the topology's file at `file`.
    pub(super) fn words(&self, file: &str) -> String {
        let mut words = format!("--topology {file}");
        if self.range.to_string() != DEFAULT_RANGE {
            words += &format!(" --range {}", self.range);
        }
        for InterfaceNames { node, names } in &self.interfaces {
            let node = node.map(|node| format!("{}=", node.0)).unwrap_or_default();
            words += &format!(" --interfaces {node}{}", names.join(","));
        }
        if let Some(mtu) = self.mtu {
            words += &format!(" --mtu {mtu}");
        }
        words
    }

    /// The network that is meant. It is said in one way.
    fn topology(&self) -> anyhow::Result<Topology> {
        let ways = [
            self.torus.is_some(),
            self.mesh.is_some(),
            self.flat.is_some(),
            self.fat_tree.is_some(),
            self.topology.is_some(),
        ];
        let remedy = "one of --torus 4x4, --mesh 3, --flat 5, --fat-tree 2x4, --topology FILE";
        match ways.into_iter().filter(|given| *given).count() {
            0 => return Err(problem("it is not said which network is meant", remedy)),
            1 => {}
            _ => return Err(problem("a network is described in one way only", remedy)),
        }
        if let Some(sizes) = &self.torus {
            let shape: Shape = format!("torus:{sizes}").parse().map_err(|why| problem(why, "--torus 4x4"))?;
            return numbered(shape);
        }
        if let Some(nodes) = self.mesh {
            return of_nodes(Shape::Mesh, nodes);
        }
        if let Some(nodes) = self.flat {
            return of_nodes(Shape::Flat, nodes);
        }
        if let Some(sizes) = self.fat_tree {
            return racks(sizes);
        }
        let text = self.topology.as_deref().expect("one way is given");
        match (text.parse(), self.nodes) {
            (Ok(shape @ (Shape::Mesh | Shape::Flat)), Some(nodes)) => of_nodes(shape, nodes),
            (_, Some(_)) => Err(problem(
                format!("--nodes does not go with `--topology {text}`, which says how many there are"),
                "without --nodes",
            )),
            (Ok(shape @ Shape::Torus(_)), None) => numbered(shape),
            (Ok(shape @ (Shape::Mesh | Shape::Flat)), None) => {
                Err(problem(format!("it is not said how many nodes the {shape} has"), "--nodes 3"))
            }
            (Ok(shape), None) => Err(problem(
                format!("`{shape}` alone does not say where the nodes are"),
                "--topology FILE, with a line `node ID at RACK` for each node of a fat-tree, and `link ID ID` for each cable of links",
            )),
            (Err(why), None) => read(text, &why),
        }
    }

    fn names(&self, topology: &Topology) -> anyhow::Result<PortNames> {
        let mut port_names = PortNames::default();
        for InterfaceNames { node, names } in &self.interfaces {
            match node {
                Some(node) if !topology.nodes().contains_key(node) => return Err(no_node(*node, topology)),
                Some(node) => drop(port_names.by_node.insert(*node, names.clone())),
                None => port_names.all.clone_from(names),
            }
        }
        Ok(port_names)
    }
}

/// A node is meant that is not there.
pub(super) fn no_node(node: NodeId, topology: &Topology) -> anyhow::Error {
    let nodes: Vec<String> = topology.nodes().keys().map(NodeId::to_string).collect();
    problem(format!("the topology has no node {node}"), format!("one of {}", nodes.join(", ")))
}

fn not_addressed(error: &AddressingError) -> anyhow::Error {
    let remedy = match error {
        AddressingError::TooSmall { .. } => "--range with a shorter prefix, such as 10.99.0.0/16",
        AddressingError::NodeZero => "another id for the node",
        AddressingError::Other { .. } => {
            "--range with the range that these addresses are from, or a file without addresses"
        }
    };
    problem(error.to_string(), remedy)
}

/// Nodes 1, 2 and so on at the places of a torus.
fn numbered(shape: Shape) -> anyhow::Result<Topology> {
    // Limits are checked before so many nodes are made.
    let places = shape.places().take(usize::from(u16::MAX)).count() as u32;
    of_nodes(shape, places)
}

fn of_nodes(shape: Shape, nodes: u32) -> anyhow::Result<Topology> {
    let made = Topology::numbered(shape, &(1..=nodes.min(u32::from(u16::MAX))).map(NodeId).collect());
    made.map_err(|error| problem(error.to_string(), "a smaller network"))
}

/// Nodes 1, 2 and so on, rack by rack.
fn racks(sizes: RackSizes) -> anyhow::Result<Topology> {
    let places = (0..sizes.racks).flat_map(|rack| (0..sizes.nodes).map(move |_| rack));
    let entry = |(rack, id)| (NodeId(id), NodeEntry { at: Coordinates(vec![rack]), ..NodeEntry::default() });
    let nodes = places.take(usize::from(u16::MAX)).zip(1..).map(entry).collect();
    let made = Topology::new(Shape::FatTree, nodes, &[]);
    made.map_err(|error| problem(error.to_string(), "a smaller network"))
}

fn read(file: &str, no_shape: &str) -> anyhow::Result<Topology> {
    let remedy = "a file with a shape in its first line and `node ID` in the others, such as `shoal net plan --out` writes";
    match std::fs::read_to_string(Path::new(file)) {
        Ok(text) => text.parse().map_err(|error| problem(format!("{file}: {error}"), remedy)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(problem(format!("there is no file `{file}`, and {no_shape}"), remedy))
        }
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Err(problem(format!("{file} is no text"), remedy))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {file}")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;
    use crate::problem::remedy;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NetworkArgs,
    }

    /// The network of a command line.
    pub(in crate::commands::net) fn planned(line: &str) -> anyhow::Result<PlannedNetwork> {
        let words = std::iter::once("net").chain(line.split_whitespace());
        Line::try_parse_from(words)?.args.planned()
    }

    #[test]
    fn a_network_is_said_in_several_ways() {
        for (line, shape, nodes, cables) in [
            ("--torus 4x4", "torus 4x4", 16, 32),
            ("--topology torus:4x4", "torus 4x4", 16, 32),
            ("--mesh 3", "mesh", 3, 3),
            ("--topology mesh --nodes 3", "mesh", 3, 3),
            ("--flat 5", "flat", 5, 5),
            ("--fat-tree 2x3", "fat-tree", 6, 8),
        ] {
            let planned = planned(line).expect(line);
            assert_eq!(planned.topology.shape().to_string(), shape, "{line}");
            assert_eq!(planned.topology.nodes().len(), nodes, "{line}");
            assert_eq!(planned.cabling.cables().len(), cables, "{line}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_what_to_do() {
        for (line, what, to_do) in [
            ("", "which network is meant", "--mesh 3"),
            ("--mesh 3 --torus 4x4", "in one way only", "--mesh 3"),
            ("--torus 1x4", "numbers from 2 to 1024", "--torus 4x4"),
            ("--torus 2x2x2x2", "one to 3 numbers", "--torus 4x4"),
            ("--torus 64x64", "4096 nodes, at most 1024", "smaller"),
            ("--mesh 200", "19900 links, at most 8192", "smaller"),
            ("--mesh 4000000000", "nodes, at most 1024", "smaller"),
            ("--mesh 0", "without nodes", "node 1"),
            ("--fat-tree 60000x60000", "nodes, at most 1024", "smaller"),
            ("--topology mesh", "how many nodes the mesh has", "--nodes 3"),
            ("--topology torus:4x4 --nodes 16", "--nodes does not go with", "without --nodes"),
            ("--topology fat-tree", "where the nodes are", "node ID at RACK"),
            (
                "--topology no-such-file",
                "no file `no-such-file`, and `no-such-file` is no shape",
                "first line",
            ),
            ("--topology /", "cannot read /", ""),
            ("--mesh 3 --range 10.0.0.0/25", "128 addresses, 134 are needed", "shorter prefix"),
            ("--mesh 3 --interfaces eth0", "n1 has 2 ports, and 1 name is given: eth0", "eth0,NAME"),
            ("--mesh 3 --interfaces eth0,eth1 --interfaces 3=eno1", "n3 has 2 ports", "3=eno1,NAME"),
            ("--mesh 3 --interfaces 4=eth0,eth1", "no node n4", "n1, n2, n3"),
            ("--mesh 3 --mtu 9", "--mtu 9 is not from 576 to", "1500"),
        ] {
            let error = planned(line).expect_err(line);
            assert!(error.to_string().contains(what), "{line}: {error}");
            assert!(remedy(&error).unwrap_or_default().contains(to_do), "{line}: {:?}", remedy(&error));
        }
        for (line, what) in [
            ("--mesh 3 --interfaces eth0,eth0", "twice"),
            ("--mesh 3 --interfaces eth0,", "no name of an interface"),
            ("--mesh 3 --interfaces ../x,eth0", "no name of an interface"),
            ("--mesh 3 --interfaces x=eth0,eth1", "is no node"),
            ("--mesh 3 --range fd00::/64", "no range of IPv4"),
            ("--fat-tree 4", "RACKSxNODES"),
            ("--mesh 3 --nodes 3", "--topology"),
        ] {
            let error = planned(line).expect_err(line).to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn names_are_those_of_the_node() {
        let planned =
            planned("--mesh 3 --interfaces eth1,eth2,eth3 --interfaces 2=eno1,eno2").expect("a mesh");
        let names = |node| planned.ports(NodeId(node)).into_iter().map(|port| port.name).collect::<Vec<_>>();
        assert_eq!(names(1), ["eth1", "eth2"]);
        assert_eq!(names(2), ["eno1", "eno2"]);
    }

    #[test]
    fn the_network_is_said_again_for_another_command() {
        let line = "net --mesh 3 --range 10.1.0.0/16 --interfaces a,b --interfaces 2=c,d --mtu 9000";
        let args = Line::try_parse_from(line.split_whitespace()).expect("a line").args;
        let words = "--topology topology --range 10.1.0.0/16 --interfaces a,b --interfaces 2=c,d --mtu 9000";
        assert_eq!(args.words("topology"), words);
    }
}
