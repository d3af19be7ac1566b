//! `shoal net plan`: cables, addresses and ready configuration for a network.

mod drawing;
mod files;
mod routing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use layout::topology::{Cable, CableEnd, Vertex};
use serde_json::{Map, Value, json};
use types::NodeId;

use self::drawing::drawing;
use super::machine::Machine;
use super::network_args::NetworkArgs;
use super::planned::{CABLE_PREFIX, PlannedNetwork};
use crate::output::{Output, table};
use crate::problem::problem;

/// The file of a plan that describes the network to a cluster.
const TOPOLOGY: &str = "topology";

/// Prints the cables and addresses of a network, and writes ready configuration for its nodes
#[derive(Args)]
#[command(after_help = "\
Three to twenty nodes need no switch: cables from node to node will do. Each node has an address
of its own, which does not depend on a cable, and forwards packets of others. OSPF finds the
shortest ways, and other ways when a cable is cut.

Ports are counted in the order of --interfaces. With --out, each node has a directory with files
for systemd-networkd, sysctl and the routing daemon, and a README with the commands that apply them.

  --routing frr      OSPF and BFD by FRR; a cut cable costs a pause of less than a second
  --routing bird     the same by BIRD 2: one small daemon, a pause of one or two seconds
  --routing static   no daemon; a node goes around a cable of its own that has no carrier, if a
                     neighbour is near enough: always in a mesh, rarely in a large torus

Examples:
  shoal net plan --mesh 3
  shoal net plan --mesh 3 --interfaces enp1s0f0,enp1s0f1 --mtu 9000 --out plan
  shoal net plan --torus 4x4 --range 10.20.0.0/16 --routing bird --out plan
  shoal net plan --topology FILE --interfaces eno1,eno2 --interfaces 3=eth0,eth1 --json")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Who finds the ways, where there are no switches
    #[arg(long, value_enum, default_value_t = Routing::Frr)]
    routing: Routing,
    /// Directory for the files, new or empty
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Takes the range although this machine uses addresses of it, as after an earlier plan
    #[arg(long)]
    allow_overlap: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Routing {
    Frr,
    Bird,
    Static,
}

impl Routing {
    fn words(self) -> &'static str {
        match self {
            Routing::Frr => "OSPF by FRR",
            Routing::Bird => "OSPF by BIRD",
            Routing::Static => "static routes",
        }
    }
}

/// Files by their paths below the plan's directory.
type Files = BTreeMap<String, String>;

pub(super) fn run(args: &PlanArgs, output: &Output) -> anyhow::Result<()> {
    let planned = args.network.planned()?;
    if !args.allow_overlap
        && let Some(who) = Machine::read()?.use_of(args.network.range)
    {
        let what = format!("range {} is in use on this machine: {who}", args.network.range);
        return Err(problem(
            what,
            "--range with another one; --allow-overlap if an earlier plan gave it these addresses",
        ));
    }
    let files = args.files(&planned);
    if let Some(dir) = &args.out {
        write(dir, &files)?;
    }
    let document = || document(&planned, args.routing, &files);
    output.answer_by(document, || words(&planned, args));
    Ok(())
}

impl PlanArgs {
    fn files(&self, planned: &PlannedNetwork) -> Files {
        let topology = planned.addressing.with_addresses(&planned.topology).to_string();
        let mut files = Files::from([(TOPOLOGY.to_owned(), topology)]);
        let check = format!("shoal net check {}", self.network.words(&format!("../{TOPOLOGY}")));
        for &node in planned.topology.nodes().keys() {
            let own = files::of_node(planned, node, self.routing, &check).into_iter();
            files.extend(own.map(|(path, text)| (format!("{node}/{path}"), text)));
        }
        files
    }
}

/// Writes the files into a new or empty directory.
fn write(dir: &Path, files: &Files) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    if entries.next().is_some() {
        let what = format!("{} is not empty", dir.display());
        return Err(problem(what, "--out with a new directory"));
    }
    for (path, text) in files {
        let path = dir.join(path);
        let parent = path.parent().expect("a file of a plan is in its directory");
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn words(planned: &PlannedNetwork, args: &PlanArgs) -> String {
    let mut text = planned.title();
    if planned.is_routed() {
        text += &format!(", {}", args.routing.words());
    }
    text += "\n";
    if let Some(drawing) = drawing(&planned.topology) {
        text += &format!("\n{drawing}");
    }
    text += &format!("\n{}\n{}", table(&cable_rows(planned)), table(&node_rows(planned)));
    if args.routing == Routing::Static && planned.is_routed() {
        text += &format!("\n{}\n", without_detour(planned));
    }
    if !args.network.has_names() {
        text += "\n`--interfaces` gives the ports the names that they have, which `ip link` shows\n";
    }
    match &args.out {
        Some(dir) => {
            let dir = dir.display();
            text += &format!(
                "\n{dir} has a directory for each node: copy {dir} to all of them, and do what the README there says\n"
            );
        }
        None => text += "\n`--out DIR` writes the configuration of each node\n",
    }
    text
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

fn cable_rows(planned: &PlannedNetwork) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["cable", "from", "port", "address", "to", "port", "address"])];
    for cable in planned.cabling.cables() {
        let mut cells = vec![cable.number.to_string()];
        for (at, end) in cable.ends.into_iter().enumerate() {
            let address = end_address(planned, cable, at).unwrap_or_else(|| "-".to_owned());
            cells.extend([end.vertex.to_string(), planned.port_name(end), address]);
        }
        rows.push(cells);
    }
    rows
}

/// The address of a cable's end, with its prefix; the node's own one where there are switches.
fn end_address(planned: &PlannedNetwork, cable: &Cable, at: usize) -> Option<String> {
    match (planned.addressing.cable(cable.number), cable.ends[at].vertex) {
        (Some(addresses), _) => Some(format!("{}/{CABLE_PREFIX}", addresses[at])),
        (None, Vertex::Node(node)) => Some(node_address(planned, node)),
        (None, _) => None,
    }
}

fn node_address(planned: &PlannedNetwork, node: NodeId) -> String {
    format!("{}/{}", planned.addressing.node(node), planned.addressing.node_prefix())
}

fn node_rows(planned: &PlannedNetwork) -> Vec<Vec<String>> {
    let nodes = planned.topology.nodes();
    let ports = nodes.keys().map(|&node| planned.topology.neighbours(Vertex::Node(node)).len()).max();
    let mut head = row(&["node", "address"]);
    head.extend((1..=ports.unwrap_or(0)).map(|port| format!("port {port}")));
    let mut rows = vec![head];
    for &node in nodes.keys() {
        let mut cells = vec![node.to_string(), node_address(planned, node)];
        cells.extend(
            planned.ports(node).into_iter().map(|port| format!("{} to {}", port.name, port.far.vertex)),
        );
        rows.push(cells);
    }
    rows
}

/// How many ways static routes cannot replace.
fn without_detour(planned: &PlannedNetwork) -> String {
    let nodes: Vec<NodeId> = planned.topology.nodes().keys().copied().collect();
    let pairs = nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to)));
    let pairs: Vec<_> = pairs.filter(|(from, to)| from != to).collect();
    let stuck = pairs.iter().filter(|(from, to)| routing::detour(planned, *from, *to).is_none()).count();
    match stuck {
        0 => "every node can go around any one cut cable of its own".to_owned(),
        _ => format!(
            "{stuck} of {} ways have no other one when their first cable is cut; `--routing frr` finds one",
            pairs.len()
        ),
    }
}

fn document(planned: &PlannedNetwork, routing: Routing, files: &Files) -> Value {
    let end = |cable: &Cable, at: usize| {
        let CableEnd { vertex, port } = cable.ends[at];
        let node = if let Vertex::Node(node) = vertex { Some(node.0) } else { None };
        json!({
            "at": vertex.to_string(), "node": node, "port": port, "interface": node.map(|_| planned.port_name(cable.ends[at])),
            "address": end_address(planned, cable, at),
        })
    };
    let cable = |cable: &Cable| json!({ "cable": cable.number, "from": end(cable, 0), "to": end(cable, 1) });
    let node = |&node: &NodeId| {
        let ports = planned.ports(node).into_iter().map(|port| {
            json!({
                "interface": port.name, "cable": port.cable, "address": format!("{}/{}", port.address, port.prefix),
                "to": port.far.vertex.to_string(), "to_port": port.far.port, "to_address": port.far_address.map(|a| a.to_string()),
            })
        });
        json!({ "node": node.0, "address": node_address(planned, node), "ports": ports.collect::<Vec<_>>() })
    };
    let files: Map<String, Value> = files.iter().map(|(path, text)| (path.clone(), json!(text))).collect();
    json!({
        "shape": planned.topology.shape().to_string(),
        "range": planned.addressing.range().to_string(),
        "routing": planned.is_routed().then(|| routing.to_possible_value().map(|value| value.get_name().to_owned())),
        "cables": planned.cabling.cables().iter().map(cable).collect::<Vec<_>>(),
        "nodes": planned.topology.nodes().keys().map(node).collect::<Vec<_>>(),
        "drawing": drawing(&planned.topology),
        "files": files,
    })
}
