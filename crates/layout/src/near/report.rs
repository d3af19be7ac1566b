//! What a table of groups costs on a network.

use std::collections::{BTreeMap, BTreeSet};

use types::{BrickId, Code, NodeId};

use super::relay::Relay;
use crate::groups::PlacementError;
use crate::mix;
use crate::topology::{Topology, Vertex};

/// Most trees computed for one number; with more groups times entry nodes, some entry nodes of each group stand for all.
const TREES_MAX: usize = 8192;
/// Most sets of nodes that are compared one by one.
const SETS_MAX: f64 = 2e6;

/// What it costs to write whole stripes by one route. A unit-hop is one unit over one link.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RouteCost {
    /// Unit-hops of a stripe, the mean over groups and senders.
    pub unit_hops: f64,
    /// Units that leave the client's node for a stripe.
    pub sent: f64,
    /// Units on a link in one direction if each group has one stripe: the mean over all links.
    pub mean_link: f64,
    /// The same: the most loaded link.
    pub worst_link: f64,
}

/// The costs of the three routes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RouteCosts {
    /// The client encodes and sends each unit to its brick.
    pub client: RouteCost,
    /// The client sends the data units to the primary, which encodes and sends each unit to its brick.
    pub primary: RouteCost,
    /// The units go along the tree of [`Relay`]. If some entry nodes stand for all, the load of the worst link is too high by
    /// chance.
    pub chain: RouteCost,
}

/// What a table of groups costs on a network.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacementReport {
    /// With clients on all nodes in front ([`Topology::front`]), each of them as busy.
    pub from_entry: RouteCosts,
    /// With each client on the node of the primary that it writes to.
    pub from_primary: RouteCosts,
    /// The longest way from a primary to a member, in hops.
    pub radius: u32,
    /// Other bricks with which a brick shares groups: the mean.
    pub peers_mean: f64,
    /// The same: the most.
    pub peers_most: usize,
    /// Sets of M+1 nodes that have units of one group. If all nodes of such a set are lost, data are lost. Where one node has
    /// several units of a group, fewer nodes are enough; those sets are not counted.
    pub fatal_sets: f64,
    /// Whether `fatal_sets` is exact. If there are too many to compare, a set in several groups is counted for each of them.
    pub fatal_sets_exact: bool,
    /// The probability that M+1 nodes chosen by chance are such a set, if it is exact; at most 1.
    pub loss_probability: f64,
}

impl PlacementReport {
    /// What `table` costs. `bricks` says on which node each brick is.
    ///
    /// # Errors
    /// Nodes that are not part of the topology.
    ///
    /// # Panics
    /// If the table has no group, or names a brick that is not among `bricks`.
    pub fn new(
        topology: &Topology,
        code: Code,
        table: &[Vec<BrickId>],
        bricks: &[(BrickId, NodeId)],
    ) -> Result<PlacementReport, PlacementError> {
        let node_of: BTreeMap<BrickId, NodeId> = bricks.iter().copied().collect();
        let nodes: BTreeSet<NodeId> = node_of.values().copied().collect();
        let outside: Vec<NodeId> =
            nodes.iter().copied().filter(|&node| topology.hops(node, node).is_none()).collect();
        if !outside.is_empty() {
            return Err(PlacementError::NotInTopology(outside));
        }
        let groups: Vec<Vec<NodeId>> =
            table.iter().map(|group| group.iter().map(|brick| node_of[brick]).collect()).collect();
        assert!(!groups.is_empty(), "a table has groups");
        let mut entries = topology.front();
        if entries.is_empty() {
            // A network of which nothing was said: clients may be anywhere.
            entries = nodes.iter().copied().collect();
        }
        let routes = Routes { topology, code, groups: &groups };
        let primary = primary_slot(code);
        let hops = |group: &Vec<NodeId>| {
            group.iter().filter_map(|&node| topology.hops(group[primary], node)).max().unwrap_or(0)
        };
        let peers = peers(table);
        let (fatal_sets, fatal_sets_exact) = fatal_sets(&groups, code.m() + 1);
        Ok(PlacementReport {
            from_entry: routes.by_clients_on(&entries),
            from_primary: routes.by_clients_at_primaries(),
            radius: groups.iter().map(hops).max().unwrap_or(0),
            peers_mean: peers.iter().sum::<usize>() as f64 / node_of.len() as f64,
            peers_most: peers.iter().copied().max().unwrap_or(0),
            fatal_sets,
            fatal_sets_exact,
            loss_probability: if fatal_sets > 0.0 {
                (fatal_sets / choose(nodes.len(), code.m() + 1)).min(1.0)
            } else {
                0.0
            },
        })
    }
}

/// The slot of the primary while all slots are live.
fn primary_slot(code: Code) -> usize {
    if code.m() > 0 { code.k() } else { 0 }
}

struct Routes<'a> {
    topology: &'a Topology,
    code: Code,
    groups: &'a [Vec<NodeId>],
}

impl Routes<'_> {
    /// The costs if clients on `entries` write in equal parts to each group.
    fn by_clients_on(&self, entries: &[NodeId]) -> RouteCosts {
        let part = 1.0 / entries.len() as f64;
        let (mut client, mut primary) = (Sends::new(entries), Sends::new(entries));
        for group in self.groups {
            group.iter().for_each(|&node| client.each_sends(node, part));
            primary.each_sends(group[primary_slot(self.code)], part * self.code.k() as f64);
        }
        self.scatter(&mut primary);
        let trees = (TREES_MAX / self.groups.len()).clamp(1, entries.len());
        let senders = |at: usize| {
            let start = mix(at as u64) as usize % entries.len();
            (0..trees).map(move |tree| entries[(start + tree * entries.len() / trees) % entries.len()])
        };
        self.costs(client, primary, self.chain(|at| senders(at).collect()))
    }

    /// The costs if the clients of each group are on its primary's node.
    fn by_clients_at_primaries(&self) -> RouteCosts {
        let leader = |group: &[NodeId]| group[primary_slot(self.code)];
        let mut client = Sends::new(&[]);
        for group in self.groups {
            group.iter().for_each(|&node| client.client_sends(leader(group), node, 1.0));
        }
        let mut primary = Sends::new(&[]);
        self.scatter(&mut primary);
        self.costs(client, primary, self.chain(|at| vec![leader(&self.groups[at])]))
    }

    /// Each primary sends to the members of its groups.
    fn scatter(&self, sends: &mut Sends<'_>) {
        for group in self.groups {
            group.iter().for_each(|&node| sends.node_sends(group[primary_slot(self.code)], node, 1.0));
        }
    }

    /// Each group gets its stripe along trees from its senders.
    fn chain(&self, senders: impl Fn(usize) -> Vec<NodeId>) -> Sends<'static> {
        let mut sends = Sends::new(&[]);
        for (at, group) in self.groups.iter().enumerate() {
            let senders = senders(at);
            for &sender in &senders {
                let relay = Relay::new(self.topology, self.code, sender, group).expect("all nodes are known");
                for (step, (from, to, units)) in relay.steps.iter().zip(relay.sends(sender, group)) {
                    let units = units as f64 / senders.len() as f64;
                    match step.source {
                        None => sends.client_sends(from, to, units),
                        Some(_) => sends.node_sends(from, to, units),
                    }
                }
            }
        }
        sends
    }

    fn costs(&self, client: Sends<'_>, primary: Sends<'_>, chain: Sends<'_>) -> RouteCosts {
        let cost = |sends: Sends<'_>| sends.cost(self.topology, self.groups.len());
        RouteCosts { client: cost(client), primary: cost(primary), chain: cost(chain) }
    }
}

/// Units sent between nodes.
struct Sends<'a> {
    /// Nodes each of which sends what is in `by_each`.
    entries: &'a [NodeId],
    by_each: BTreeMap<NodeId, f64>,
    pairs: BTreeMap<(NodeId, NodeId), f64>,
    /// Units that left a client's node, but for those in `by_each`.
    sent: f64,
}

impl<'a> Sends<'a> {
    fn new(entries: &'a [NodeId]) -> Sends<'a> {
        Sends { entries, by_each: BTreeMap::new(), pairs: BTreeMap::new(), sent: 0.0 }
    }

    /// Each of the entry nodes sends `units`.
    fn each_sends(&mut self, to: NodeId, units: f64) {
        *self.by_each.entry(to).or_default() += units;
    }

    fn client_sends(&mut self, from: NodeId, to: NodeId, units: f64) {
        self.node_sends(from, to, units);
        self.sent += if from == to { 0.0 } else { units };
    }

    fn node_sends(&mut self, from: NodeId, to: NodeId, units: f64) {
        if from != to {
            *self.pairs.entry((from, to)).or_default() += units;
        }
    }

    fn cost(self, topology: &Topology, groups: usize) -> RouteCost {
        let Sends { entries, by_each, mut pairs, mut sent } = self;
        for (&to, &units) in &by_each {
            for &from in entries.iter().filter(|&&from| from != to) {
                *pairs.entry((from, to)).or_default() += units;
                sent += units;
            }
        }
        let loads = loads(topology, &pairs);
        let links = topology.links().len() * 2;
        let all: f64 = loads.values().sum();
        RouteCost {
            unit_hops: pairs
                .iter()
                .map(|(&(from, to), units)| units * f64::from(hops(topology, from, to)))
                .sum::<f64>()
                / groups as f64,
            sent: sent / groups as f64,
            mean_link: if links == 0 { 0.0 } else { all / links as f64 },
            worst_link: loads.into_values().fold(0.0, f64::max),
        }
    }
}

/// What is sent between pairs of nodes, as the load of each link in each direction. All that goes to one node and passes a
/// vertex goes on from there together, so no way is followed twice.
fn loads(topology: &Topology, pairs: &BTreeMap<(NodeId, NodeId), f64>) -> BTreeMap<(Vertex, Vertex), f64> {
    let mut by_target: BTreeMap<NodeId, Vec<(NodeId, f64)>> = BTreeMap::new();
    for (&(from, to), &units) in pairs {
        by_target.entry(to).or_default().push((from, units));
    }
    let mut loads: BTreeMap<(Vertex, Vertex), f64> = BTreeMap::new();
    for (to, sources) in by_target {
        // Units by the hops that they still have to go.
        let farthest = sources.iter().map(|&(from, _)| hops(topology, from, to)).max().unwrap_or(0);
        let mut left: Vec<BTreeMap<Vertex, f64>> = vec![BTreeMap::new(); farthest as usize + 1];
        for (from, units) in sources {
            *left[hops(topology, from, to) as usize].entry(Vertex::Node(from)).or_default() += units;
        }
        for distance in (1..left.len()).rev() {
            for (at, units) in std::mem::take(&mut left[distance]) {
                // A network of which nothing was said has no links.
                let Some(next) = topology.next_hop(at, to) else { continue };
                *loads.entry((at, next)).or_default() += units;
                *left[distance - 1].entry(next).or_default() += units;
            }
        }
    }
    loads
}

fn hops(topology: &Topology, from: NodeId, to: NodeId) -> u32 {
    topology.hops(from, to).expect("all nodes are known")
}

/// Per brick of the table: the other bricks with which it shares groups.
fn peers(table: &[Vec<BrickId>]) -> Vec<usize> {
    let mut peers: BTreeMap<BrickId, BTreeSet<BrickId>> = BTreeMap::new();
    for group in table {
        for brick in group {
            peers.entry(*brick).or_default().extend(group.iter().filter(|other| *other != brick));
        }
    }
    peers.into_values().map(|peers| peers.len()).collect()
}

/// How many different sets of `size` nodes are in a group together, and whether the number is exact.
fn fatal_sets(groups: &[Vec<NodeId>], size: usize) -> (f64, bool) {
    let groups: BTreeSet<BTreeSet<NodeId>> =
        groups.iter().map(|group| group.iter().copied().collect()).collect();
    let all: f64 = groups.iter().map(|group| choose(group.len(), size)).sum();
    if all > SETS_MAX {
        return (all, false);
    }
    let mut sets: Vec<Vec<NodeId>> = Vec::with_capacity(all as usize);
    for group in &groups {
        let nodes: Vec<NodeId> = group.iter().copied().collect();
        add_subsets(&nodes, size, &mut Vec::new(), &mut sets);
    }
    sets.sort_unstable();
    sets.dedup();
    (sets.len() as f64, true)
}

/// Appends all sets that have `size` of `nodes` more than `chosen`.
fn add_subsets(nodes: &[NodeId], size: usize, chosen: &mut Vec<NodeId>, sets: &mut Vec<Vec<NodeId>>) {
    if size == 0 {
        sets.push(chosen.clone());
        return;
    }
    for at in 0..(nodes.len() + 1).saturating_sub(size) {
        chosen.push(nodes[at]);
        add_subsets(&nodes[at + 1..], size - 1, chosen, sets);
        chosen.pop();
    }
}

/// How many sets of `size` things `of` things have.
fn choose(of: usize, size: usize) -> f64 {
    if size > of { 0.0 } else { (0..size).map(|i| (of - i) as f64 / (i + 1) as f64).product() }
}
