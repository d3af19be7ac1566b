//! The stations of a torus, the ways in it, and what is lost of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use layout::topology::{Shape, Topology, TopologyError, Vertex};
use types::NodeId;
use types::messages::cluster::FailureDomain;

use super::setup::Setup;
use super::stations::{Station, StationId};
use crate::random::Random;
use crate::time::{Rate, Time, US};

/// What is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Failure {
    /// Nothing.
    None,
    /// A node: it forwards nothing, and its brick does not answer.
    Node,
    /// A cable between two neighbours.
    Cable,
    /// All nodes of a line along the first dimension.
    Row,
}

impl Failure {
    /// All of them.
    pub const ALL: [Failure; 4] = [Failure::None, Failure::Node, Failure::Cable, Failure::Row];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Failure::None => "none",
            Failure::Node => "node",
            Failure::Cable => "cable",
            Failure::Row => "row",
        }
    }
}

/// What is lost, by number of node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Damage {
    /// They do nothing.
    pub(crate) away: BTreeSet<u32>,
    /// They have no data.
    pub(crate) empty: BTreeSet<u32>,
    pub(crate) cable: Option<(u32, u32)>,
}

impl Damage {
    /// A failure in a place that chance decides.
    pub(crate) fn new(failure: Failure, topology: &Topology, seed: u64) -> Damage {
        let nodes: Vec<NodeId> = topology.nodes().keys().copied().collect();
        let node = nodes[Random::new(seed ^ 0xfa11).below(nodes.len() as u64) as usize];
        let one = BTreeSet::from([node.0]);
        match failure {
            Failure::None => Damage::default(),
            Failure::Node => Damage { away: one.clone(), empty: one, cable: None },
            Failure::Cable => {
                let other = topology.neighbours(Vertex::Node(node)).into_iter().find_map(number_of);
                Damage { cable: other.map(|other| (node.0, other)), ..Damage::default() }
            }
            Failure::Row => {
                let row = |node| topology.domain(node, FailureDomain::Row).ok();
                let nodes: BTreeSet<u32> =
                    nodes.iter().filter(|&&other| row(other) == row(node)).map(|node| node.0).collect();
                Damage { away: nodes.clone(), empty: nodes, cable: None }
            }
        }
    }

    fn cuts(&self, a: Vertex, b: Vertex) -> bool {
        let (Some(a), Some(b)) = (number_of(a), number_of(b)) else { return false };
        let is_cut = self.cable.is_some_and(|cable| cable == (a, b) || cable == (b, a));
        is_cut || self.away.contains(&a) || self.away.contains(&b)
    }
}

fn number_of(vertex: Vertex) -> Option<u32> {
    match vertex {
        Vertex::Node(node) => Some(node.0),
        _ => None,
    }
}

/// Where a unit is sent from, and to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The client whose entry is this node: a program on it, or a machine on a cable of its own.
    Client(u32),
    /// The RAM of a node.
    Node(u32),
    /// The brick of a node.
    Brick(u32),
}

impl Place {
    /// The number of its node.
    pub(crate) fn node(self) -> u32 {
        let (Place::Client(node) | Place::Node(node) | Place::Brick(node)) = self;
        node
    }
}

/// Rates and delays of everything that is not the shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Parts {
    /// The rate of a cable.
    pub(crate) link: Rate,
    /// A cable and the node at its end that forwards.
    pub(crate) hop: Time,
    /// Bytes per second that a node computes from.
    pub(crate) compute: f64,
    /// The rate of a client's own cable, if it is a machine of its own.
    pub(crate) client: Option<Rate>,
    /// Bytes per second of a brick, if that is a limit.
    pub(crate) brick: Option<f64>,
    /// Whether packets, acknowledgements and small messages are counted one by one.
    pub(crate) is_exact: bool,
}

impl From<&Setup> for Parts {
    fn from(setup: &Setup) -> Parts {
        Parts {
            link: setup.link,
            hop: setup.hop_us * US,
            compute: setup.compute as f64,
            client: setup.client,
            brick: setup.brick.map(|rate| rate as f64),
            is_exact: false,
        }
    }
}

/// A way: links, one after the other.
type Links = Rc<[StationId]>;

/// A torus with what is lost of it, as stations.
#[derive(Debug)]
pub(crate) struct Network {
    intact: Topology,
    /// The nodes and cables that are left, if some are lost.
    left: Option<Topology>,
    pub(crate) damage: Damage,
    /// Numbers of nodes: all are below it.
    pub(crate) nodes: u32,
    parts: Parts,
    /// The station of each link that is left, by its ends.
    links: BTreeMap<(Vertex, Vertex), StationId>,
    /// Known ways, by pair of nodes.
    ways: RefCell<Vec<Option<Links>>>,
}

impl Network {
    /// The network of `topology` without what is lost.
    ///
    /// # Errors
    /// What is left does not hang together.
    pub(crate) fn new(topology: &Topology, damage: Damage, parts: Parts) -> Result<Network, TopologyError> {
        let cables: Vec<(Vertex, Vertex)> =
            topology.links().into_iter().filter(|&(a, b)| !damage.cuts(a, b)).collect();
        let directions = cables.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let links = directions.zip(0..).collect();
        let left = if damage.away.is_empty() && damage.cable.is_none() {
            None
        } else {
            let stays = |node: &NodeId| !damage.away.contains(&node.0);
            let nodes = topology.nodes().keys().copied().filter(stays);
            let ends = |&(a, b): &(Vertex, Vertex)| Some((NodeId(number_of(a)?), NodeId(number_of(b)?)));
            let cables: Vec<_> = cables.iter().filter_map(ends).collect();
            Some(Topology::new(
                Shape::Links,
                nodes.map(|node| (node, Default::default())).collect(),
                &cables,
            )?)
        };
        let nodes = topology.nodes().keys().last().map_or(0, |node| node.0 + 1);
        let ways = RefCell::new(vec![None; (nodes * nodes) as usize]);
        Ok(Network { intact: topology.clone(), left, damage, nodes, parts, links, ways })
    }

    /// All stations, by number: links, then for each node what computes, its brick, its client's cable up and down, and
    /// what computes at the client.
    pub(crate) fn stations(&self) -> Vec<Station> {
        let Parts { link, hop, compute, client, brick, is_exact } = self.parts;
        let cable = if is_exact { Station::wire } else { Station::link };
        let of_nodes = [
            Station::new(compute, 0),
            Station::new(brick.unwrap_or(f64::INFINITY), 0),
            cable(client.unwrap_or(link), hop),
            cable(client.unwrap_or(link), hop),
            Station::new(compute, 0),
        ];
        let links = self.links.iter().map(|_| cable(link, hop));
        links.chain((0..self.nodes).flat_map(|_| of_nodes)).collect()
    }

    /// How many of the stations are links: the first ones.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// The links with their ends, and which station each is.
    pub(crate) fn links(&self) -> impl Iterator<Item = ((Vertex, Vertex), StationId)> {
        self.links.iter().map(|(&ends, &link)| (ends, link))
    }

    /// Whether packets, acknowledgements and small messages are counted one by one.
    pub(crate) fn is_exact(&self) -> bool {
        self.parts.is_exact
    }

    fn of_node(&self, node: u32, which: u32) -> StationId {
        self.links.len() as u32 + node * 5 + which
    }

    /// What computes at a place.
    pub(crate) fn computer(&self, at: Place) -> StationId {
        let is_outside = matches!(at, Place::Client(_)) && self.is_client_outside();
        self.of_node(at.node(), if is_outside { 4 } else { 0 })
    }

    /// Whether clients have cables of their own.
    pub(crate) fn is_client_outside(&self) -> bool {
        self.parts.client.is_some()
    }

    /// The topology without what is lost.
    pub(crate) fn topology(&self) -> &Topology {
        self.left.as_ref().unwrap_or(&self.intact)
    }

    /// The stations from one place to another.
    pub(crate) fn way(&self, from: Place, to: Place) -> Vec<StationId> {
        let mut way = Vec::with_capacity(10);
        match from {
            Place::Client(node) if self.is_client_outside() => way.push(self.of_node(node, 2)),
            Place::Brick(node) if self.parts.brick.is_some() => way.push(self.of_node(node, 1)),
            _ => {}
        }
        way.extend_from_slice(&self.links_between(from.node(), to.node()));
        match to {
            Place::Client(node) if self.is_client_outside() => way.push(self.of_node(node, 3)),
            Place::Brick(node) if self.parts.brick.is_some() => way.push(self.of_node(node, 1)),
            _ => {}
        }
        way
    }

    /// How long a message of a few bytes takes.
    pub(crate) fn delay(&self, from: Place, to: Place) -> Time {
        let is_outside = |place| self.is_client_outside() && matches!(place, Place::Client(_));
        let cables = usize::from(is_outside(from)) + usize::from(is_outside(to));
        (self.links_between(from.node(), to.node()).len() + cables) as Time * self.parts.hop
    }

    /// The links from one node to another. The route of the intact network is kept where it is whole. Elsewhere a packet goes
    /// to a neighbour that is nearer to the target in what is left. So the next hop depends on the target only, and there are
    /// no loops: every hop shortens the way.
    pub(crate) fn links_between(&self, from: u32, to: u32) -> Links {
        let pair = (from * self.nodes + to) as usize;
        if let Some(way) = &self.ways.borrow()[pair] {
            return way.clone();
        }
        let way: Links = self.find_way(from, to).into();
        self.ways.borrow_mut()[pair] = Some(way.clone());
        way
    }

    fn find_way(&self, from: u32, to: u32) -> Vec<StationId> {
        let (mut at, mut way) = (from, Vec::new());
        while at != to {
            if let Some(rest) = self.intact_route(at, to) {
                way.extend(rest);
                return way;
            }
            let left = self.left.as_ref().expect("routes of an intact network are whole");
            let next = left.next_hop(Vertex::Node(NodeId(at)), NodeId(to)).and_then(number_of);
            let next = next.expect("nobody asks for the way to a lost node");
            way.push(self.links[&(Vertex::Node(NodeId(at)), Vertex::Node(NodeId(next)))]);
            at = next;
        }
        way
    }

    /// The links of the intact network's route, if they are all left.
    fn intact_route(&self, from: u32, to: u32) -> Option<Vec<StationId>> {
        let route = self.intact.route(NodeId(from), NodeId(to));
        route.windows(2).map(|step| self.links.get(&(step[0], step[1])).copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: Parts = Parts {
        link: Rate::gbit(10),
        hop: 20 * US,
        compute: 5e9,
        client: None,
        brick: None,
        is_exact: false,
    };

    fn torus(shape: &str) -> Topology {
        let shape: Shape = shape.parse().expect("a shape");
        let nodes = (0..shape.places().count() as u32).map(NodeId).collect();
        Topology::numbered(shape, &nodes).expect("fits")
    }

    #[test]
    fn an_intact_network_has_the_routes_of_its_topology() {
        let topology = torus("torus 4x4x4");
        let network = Network::new(&topology, Damage::default(), PARTS).expect("whole");
        assert_eq!(network.link_count(), 64 * 6);
        for (from, to) in (0..64).flat_map(|from| (0..64).map(move |to| (from, to))) {
            let hops = topology.hops(NodeId(from), NodeId(to)).expect("known");
            assert_eq!(network.links_between(from, to).len(), hops as usize);
        }
    }

    /// The property that keeps packets from going round for ever: from the next node, the way is the rest of this way.
    #[test]
    fn ways_around_damage_are_short_and_hang_together() {
        let topology = torus("torus 4x4x4");
        for failure in [Failure::Node, Failure::Cable, Failure::Row] {
            for seed in 0..4 {
                let damage = Damage::new(failure, &topology, seed);
                let network = Network::new(&topology, damage.clone(), PARTS).expect("hangs together");
                let ends: BTreeMap<StationId, (Vertex, Vertex)> =
                    network.links().map(|(ends, link)| (link, ends)).collect();
                let nodes: Vec<u32> = (0..64).filter(|node| !damage.away.contains(node)).collect();
                for (&from, &to) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to))) {
                    let way = network.links_between(from, to);
                    let left = network.topology().hops(NodeId(from), NodeId(to)).expect("known");
                    assert_eq!(way.len(), left as usize, "{failure:?} {from} {to}");
                    if let Some(&first) = way.first() {
                        let (at, next) = ends[&first];
                        assert_eq!(number_of(at), Some(from));
                        assert!(!damage.cuts(at, next));
                        let next = number_of(next).expect("a node");
                        assert_eq!(way[1..], network.links_between(next, to)[..]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_client_outside_adds_its_cable_and_a_slow_brick_its_work() {
        let topology = torus("torus 4x4");
        let parts = Parts { client: Some(Rate::gbit(1)), brick: Some(1e9), ..PARTS };
        let network = Network::new(&topology, Damage::default(), parts).expect("whole");
        let stations = network.stations();
        assert_eq!(stations.len(), 64 + 16 * 5);
        let way = network.way(Place::Client(0), Place::Brick(1));
        assert_eq!(way.len(), 3);
        let spans: Vec<Time> =
            way.iter().map(|&station| stations[station as usize].span(1 << 20) / US).collect();
        assert_eq!(spans, [8770, 877, 1048]);
        assert_eq!(network.delay(Place::Client(0), Place::Brick(1)), 40 * US);
        assert_eq!(network.way(Place::Node(0), Place::Node(1)).len(), 1);
        assert_ne!(network.computer(Place::Client(3)), network.computer(Place::Node(3)));
    }
}
