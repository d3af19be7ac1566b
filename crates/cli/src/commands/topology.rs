//! `shoal topology`: what the network between the nodes is, so that groups lie near their primaries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use layout::topology::{NodeTier, Shape, Topology, TopologyError, Vertex, draw};
use serde_json::{Value, json};
use types::limits::TOPOLOGY_MAX;
use types::messages::cluster::{BrickState, ClusterMap, TopologySet};
use types::{NodeId, Refusal};

use crate::output::Output;
use crate::problem::problem;
use crate::remote::{ConnectionArgs, Remote};

/// Most nodes that a sentence names.
const NAMED_MAX: usize = 8;

/// Says and shows what the network between the nodes is
#[derive(Args)]
#[command(after_help = "\
Shapes: `flat` (all nodes on one switch), `fat-tree` (racks with a switch each), `torus:4x4`
or `torus:4x4x4` (nodes cabled to each other in rings), `mesh` (every node cabled to every
other), `links` (the cables are listed).

A file says where each node is, whether clients are beside it, and its addresses, one per port:

  torus 2x2
  node 1 at 0,0 front 10.0.0.1
  node 2 at 1,0
  node 3 at 0,1
  node 4 at 1,1

A fat tree has `node 1 at RACK`; a list of links has `node 1` and `link 1 2`. Volumes made from
then on have their groups near their primaries (`shoal volume create --domain`); volumes that
exist stay where they are.

Examples:
  shoal topology set torus:4x4            the nodes take the places in the order of their ids
  shoal topology set --file network.txt
  shoal topology show
  shoal topology show --text > network.txt
  shoal topology set none                 forgets it")]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    cluster: ConnectionArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Says what the network is
    Set {
        /// A shape whose places the nodes take in the order of their ids: flat, mesh, torus:4x4, torus:4x4x4; or `none`
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        shape: Option<String>,
        /// Reads it from a file, `-` for standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Nodes may have other places than before; their units stay where they are
        #[arg(long)]
        may_move: bool,
    },
    /// Draws the network and the state of its nodes
    Show {
        /// Prints it as `set --file` reads it
        #[arg(long)]
        text: bool,
    },
}

pub(crate) fn run(args: &TopologyArgs, output: &Output) -> anyhow::Result<()> {
    let remote = Remote::new(&args.cluster.target()?)?;
    match &args.action {
        Action::Set { shape, file, may_move } => {
            let map = remote.status()?.map;
            let topology = match file {
                Some(file) => from_file(file)?,
                None => from_shape(shape.as_deref().unwrap_or_default(), &map)?,
            };
            set(&topology, *may_move, &map, &remote, output)
        }
        Action::Show { text } => show(*text, &remote.status()?.map, output),
    }
}

/// The topology that the cluster keeps.
pub(crate) fn topology_of(map: &ClusterMap) -> anyhow::Result<Topology> {
    if map.topology.is_empty() {
        return Ok(Topology::default());
    }
    map.topology.parse().context("this program cannot read the cluster's topology")
}

fn from_file(file: &Path) -> anyhow::Result<Topology> {
    let (mut bytes, limit) = (Vec::new(), TOPOLOGY_MAX as u64 + 1);
    let read = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(limit).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let remedy = "`shoal topology set --help` shows how such a file looks";
    if bytes.len() > TOPOLOGY_MAX {
        return Err(problem(format!("{} has more than {TOPOLOGY_MAX} bytes", file.display()), remedy));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| problem(format!("{} is no text", file.display()), remedy))?;
    text.parse().map_err(|error: TopologyError| problem(format!("{}: {error}", file.display()), remedy))
}

/// A shape whose places the nodes take that have bricks.
fn from_shape(shape: &str, map: &ClusterMap) -> anyhow::Result<Topology> {
    if shape == "none" {
        return Ok(Topology::default());
    }
    let file = "--file with a file that says where each node is";
    let parsed: Shape =
        shape.parse().map_err(|why: String| problem(why, "`shoal topology set torus:4x4`"))?;
    if matches!(parsed, Shape::FatTree | Shape::Links) {
        return Err(problem(format!("a topology `{parsed}` cannot be guessed from the nodes' ids"), file));
    }
    let nodes: BTreeSet<NodeId> = map.bricks.iter().map(|brick| brick.node).collect();
    Topology::numbered(parsed, &nodes)
        .map_err(|error| problem(format!("the nodes that have bricks do not fit: {error}"), file))
}

fn set(
    topology: &Topology,
    may_move: bool,
    map: &ClusterMap,
    remote: &Remote,
    output: &Output,
) -> anyhow::Result<()> {
    let text = if topology.is_default() { String::new() } else { topology.to_string() };
    match remote.meta_or_refusal(&TopologySet { topology: text, may_move })? {
        Ok(_) => {}
        Err(Refusal::Busy) => {
            let moved = topology_of(map).map(|old| old.moved(topology)).unwrap_or_default();
            let what = format!("{} would have another place, or none", some_of(&moved));
            let remedy = "--may-move if the nodes are cabled so now: no unit moves, and groups may be farther apart than \
                          `shoal topology show` promised";
            return Err(problem(what, remedy));
        }
        Err(Refusal::TooMany) => {
            let what = "the cluster's map has no room for a topology of this length";
            return Err(problem(what, "fewer addresses, or delete volumes that are not needed"));
        }
        Err(refusal) => anyhow::bail!("the topology is not accepted: {refusal}"),
    }
    output.answer(&document(topology, map), || {
        let mut said = match topology.is_default() {
            true => "nothing is known about the network any more".to_owned(),
            false => format!("{}; new volumes are placed by it", summary(topology)),
        };
        if let Some(warning) = without_place(topology, map) {
            said += &format!("\n{warning}");
        }
        said
    });
    Ok(())
}

fn show(text: bool, map: &ClusterMap, output: &Output) -> anyhow::Result<()> {
    let topology = topology_of(map)?;
    if topology.is_default() {
        output.answer(&document(&topology, map), || {
            "nothing is known about the network: it counts as flat; `shoal topology set` says what it is"
                .to_owned()
        });
        return Ok(());
    }
    output.answer(&document(&topology, map), || {
        if text {
            return topology.to_string();
        }
        let states = states(map);
        let node = |id: NodeId| match states.get(&id) {
            None => format!("{id} no brick"),
            Some((up, all)) if up == all => id.to_string(),
            Some((up, all)) => format!("{id} {up}/{all} up"),
        };
        let drawing = draw(&topology, node, |_, _| String::new());
        let mut said = format!("{}\n\n{drawing}", summary(&topology));
        let front = topology.front();
        if front.len() < topology.nodes().len() {
            said += &format!("\nclients are beside {}\n", some_of(&front));
        }
        if let Some(warning) = without_place(&topology, map) {
            said += &format!("\n{warning}\n");
        }
        said
    });
    Ok(())
}

/// The shape, its size, its distances.
fn summary(topology: &Topology) -> String {
    let (nodes, links) = (topology.nodes().len(), topology.links().len());
    let ids: Vec<NodeId> = topology.nodes().keys().copied().collect();
    let pairs = ids.iter().flat_map(|&a| ids.iter().filter(move |&&b| a != b).map(move |&b| (a, b)));
    let (sum, count) = pairs.fold((0, 0u64), |(sum, count), (a, b)| {
        (sum + u64::from(topology.hops(a, b).unwrap_or(0)), count + 1)
    });
    let mean = if count == 0 { 0.0 } else { sum as f64 / count as f64 };
    let (shape, diameter) = (topology.shape(), topology.diameter());
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut text = format!("{shape}: {}, {}", counted(nodes, "node"), counted(links, "link"));
    if count > 0 {
        text += &format!("; two nodes are at most {diameter} hops apart, {mean:.1} on average");
    }
    text
}

/// For each node, how many of its bricks are up, and how many it has.
fn states(map: &ClusterMap) -> BTreeMap<NodeId, (u32, u32)> {
    let mut states: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
    for brick in &map.bricks {
        let (up, all) = states.entry(brick.node).or_default();
        *up += u32::from(brick.state == BrickState::Up);
        *all += 1;
    }
    states
}

/// Says which nodes with bricks the topology does not have.
fn without_place(topology: &Topology, map: &ClusterMap) -> Option<String> {
    let missing: Vec<NodeId> =
        states(map).into_keys().filter(|node| topology.hops(*node, *node).is_none()).collect();
    if missing.is_empty() {
        return None;
    }
    let have = if missing.len() == 1 { "has" } else { "have" };
    Some(format!(
        "{} {have} bricks but no place in the topology: no volume can be placed by it until then",
        some_of(&missing)
    ))
}

fn some_of(nodes: &[NodeId]) -> String {
    let shown: Vec<String> = nodes.iter().take(NAMED_MAX).map(NodeId::to_string).collect();
    let more = nodes.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}{more}", shown.join(", "))
}

fn document(topology: &Topology, map: &ClusterMap) -> Value {
    let states = states(map);
    let node = |(&id, entry): (&NodeId, &layout::topology::NodeEntry)| {
        let (up, all) = states.get(&id).copied().unwrap_or_default();
        let neighbours = topology.neighbours(Vertex::Node(id));
        json!({
            "node": id.0,
            "at": entry.at.0,
            "front": entry.tier == NodeTier::Front,
            "addresses": entry.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "bricks": all,
            "bricks_up": up,
            "neighbours": neighbours.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    let links = topology.links().into_iter().map(|(a, b)| json!([a.to_string(), b.to_string()]));
    let missing: Vec<u32> =
        states.keys().filter(|id| topology.hops(**id, **id).is_none()).map(|id| id.0).collect();
    json!({
        "shape": topology.shape().to_string(),
        "known": !topology.is_default(),
        "text": if topology.is_default() { String::new() } else { topology.to_string() },
        "diameter": topology.diameter(),
        "nodes": topology.nodes().iter().map(node).collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
        "nodes_without_place": missing,
    })
}
