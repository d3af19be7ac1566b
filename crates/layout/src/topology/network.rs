//! A network of a shape, with its nodes: distances, routes, neighbours, failure domains.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use types::NodeId;
use types::messages::cluster::FailureDomain;

use super::error::TopologyError;
use super::shape::{Coordinates, Shape, Vertex};

/// Most nodes of a topology.
pub(super) const NODES_MAX: usize = 1024;
/// Most links, all switches' counted.
pub(super) const LINKS_MAX: usize = 8192;
/// Most addresses of a node.
pub(super) const ADDRESSES_MAX: usize = 8;

/// On which side of the network a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeTier {
    /// Behind other nodes: clients reach it through them.
    #[default]
    Back,
    /// On the switch that the clients are on.
    Front,
}

/// A node of a topology.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeEntry {
    /// Where it is.
    pub at: Coordinates,
    /// Its side.
    pub tier: NodeTier,
    /// One address for each of its ports.
    pub addresses: Vec<IpAddr>,
}

/// A network. Every instance is sound: coordinates are distinct and within the shape, a torus has no hole, every node can
/// reach every other.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    shape: Shape,
    nodes: BTreeMap<NodeId, NodeEntry>,
    /// The listed cables, the smaller id first.
    listed: BTreeSet<(NodeId, NodeId)>,
    /// Nodes by id, then switches.
    vertices: Vec<Vertex>,
    index: BTreeMap<Vertex, usize>,
    /// Neighbours of each vertex, in the order of `vertices`.
    joined: Vec<Vec<usize>>,
    /// Hops between two vertices, row by row.
    hops: Vec<u16>,
}

impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        (&self.shape, &self.nodes, &self.listed) == (&other.shape, &other.nodes, &other.listed)
    }
}

impl Eq for Topology {}

impl Topology {
    /// Makes a network of `shape` from its nodes; `links` are the cables of [`Shape::Links`], and empty elsewhere.
    ///
    /// # Errors
    /// What is wrong with which node or link.
    pub fn new(
        shape: Shape,
        nodes: BTreeMap<NodeId, NodeEntry>,
        links: &[(NodeId, NodeId)],
    ) -> Result<Topology, TopologyError> {
        within("nodes", nodes.len(), NODES_MAX)?;
        check_places(&shape, &nodes)?;
        check_addresses(&nodes)?;
        let mut listed = BTreeSet::new();
        for &(a, b) in links {
            let why = if a == b {
                Some("a node has no link to itself")
            } else if !nodes.contains_key(&a) || !nodes.contains_key(&b) {
                Some("one of them is not described: add a line `node ID`")
            } else if !listed.insert((a.min(b), a.max(b))) {
                Some("is listed twice")
            } else {
                None
            };
            if let Some(why) = why {
                return Err(TopologyError::Link(a, b, why));
            }
        }
        let mut topology = Topology { shape, nodes, listed, ..Topology::default() };
        topology.join()?;
        topology.measure()?;
        Ok(topology)
    }

    /// A network of `shape` in which `nodes`, in the order of their ids, take the places in the order of
    /// [`Shape::places`].
    ///
    /// # Errors
    /// The shape needs another number of nodes, or coordinates that cannot be guessed (racks, links).
    pub fn numbered(shape: Shape, nodes: &BTreeSet<NodeId>) -> Result<Topology, TopologyError> {
        let mut places = shape.places();
        let entry = |&node: &NodeId| {
            let at = places.next().unwrap_or_default();
            (node, NodeEntry { at, ..NodeEntry::default() })
        };
        let nodes = nodes.iter().map(entry).collect();
        Topology::new(shape, nodes, &[])
    }

    /// How the nodes are joined.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The nodes, by id.
    pub fn nodes(&self) -> &BTreeMap<NodeId, NodeEntry> {
        &self.nodes
    }

    /// The listed cables of [`Shape::Links`], the smaller id first.
    pub fn listed(&self) -> &BTreeSet<(NodeId, NodeId)> {
        &self.listed
    }

    /// Whether nothing was said about the network: any node is on the one switch.
    pub fn is_default(&self) -> bool {
        self.shape == Shape::Flat && self.nodes.is_empty()
    }

    /// Nodes by id, then switches.
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// The cables: each once, the end that comes first in [`Topology::vertices`] first. Two nodes on a ring of two have one
    /// cable.
    pub fn links(&self) -> Vec<(Vertex, Vertex)> {
        let ends = self.joined.iter().enumerate().flat_map(|(a, row)| row.iter().map(move |&b| (a, b)));
        ends.filter(|(a, b)| a < b).map(|(a, b)| (self.vertices[a], self.vertices[b])).collect()
    }

    /// What is at the other ends of a vertex's cables.
    pub fn neighbours(&self, vertex: Vertex) -> Vec<Vertex> {
        let row = self.index.get(&vertex).map(|&at| &*self.joined[at]).unwrap_or_default();
        row.iter().map(|&at| self.vertices[at]).collect()
    }

    /// Hops between two nodes. [`None`] if one of them is not part of the network; a network of which nothing was said has
    /// every node on its switch.
    pub fn hops(&self, from: NodeId, to: NodeId) -> Option<u32> {
        if self.is_default() {
            return Some(if from == to { 0 } else { 2 });
        }
        let (from, to) = (self.index_of(from)?, self.index_of(to)?);
        Some(self.distance(from, to).into())
    }

    /// Most hops between any two nodes.
    pub fn diameter(&self) -> u32 {
        let nodes = self.nodes.len();
        let rows = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        rows.map(|(from, to)| u32::from(self.distance(from, to))).max().unwrap_or(0)
    }

    /// The next vertex on the way from a vertex to a node: what each router must know. [`None`] at the node itself, and for
    /// what is not part of the network.
    pub fn next_hop(&self, from: Vertex, to: NodeId) -> Option<Vertex> {
        let (from, to) = (*self.index.get(&from)?, self.index_of(to)?);
        self.next(from, to).map(|next| self.vertices[next])
    }

    /// The way from one node to another, both included: just the node if they are the same, empty if one of them is not part of
    /// the network.
    pub fn route(&self, from: NodeId, to: NodeId) -> Vec<Vertex> {
        let (Some(mut at), Some(to)) = (self.index_of(from), self.index_of(to)) else { return Vec::new() };
        let mut way = vec![self.vertices[at]];
        while let Some(next) = self.next(at, to) {
            way.push(self.vertices[next]);
            at = next;
        }
        way
    }

    /// The failure domain of a node, as a number that only nodes of this domain have. Where each brick is a domain, its node
    /// counts.
    ///
    /// # Errors
    /// The shape has no such domains.
    pub fn domain(&self, node: NodeId, domain: FailureDomain) -> Result<Option<u64>, TopologyError> {
        let entry = self.nodes.get(&node);
        match (domain, &self.shape) {
            (FailureDomain::Brick | FailureDomain::Node, _) => Ok(Some(node.0.into())),
            (FailureDomain::Rack, Shape::FatTree) => Ok(entry.map(|entry| entry.at.0[0].into())),
            (FailureDomain::Row, Shape::Torus(_)) => {
                let row =
                    |entry: &NodeEntry| entry.at.0[1..].iter().fold(0, |row, &at| row << 16 | u64::from(at));
                Ok(entry.map(row))
            }
            (domain, shape) => {
                let other = match shape {
                    Shape::FatTree => " or `rack`",
                    Shape::Torus(_) => " or `row`",
                    _ => "",
                };
                Err(TopologyError::NoDomain(shape.to_string(), domain.word(), other))
            }
        }
    }

    /// The nodes that clients reach without passing another node; all nodes if none is said to be in front.
    pub fn front(&self) -> Vec<NodeId> {
        let of = |tier| self.nodes.iter().filter(move |(_, entry)| entry.tier == tier).map(|(node, _)| *node);
        let front: Vec<NodeId> = of(NodeTier::Front).collect();
        if front.is_empty() { self.nodes.keys().copied().collect() } else { front }
    }

    /// The nodes of this network that have another place in `new`, or none; by id. Another shape moves all of them. Where cables are
    /// listed, a node's place is what it is cabled to.
    pub fn moved(&self, new: &Topology) -> Vec<NodeId> {
        let has_moved = |node: &NodeId, entry: &NodeEntry| {
            self.shape != new.shape
                || new.nodes.get(node).is_none_or(|there| there.at != entry.at)
                || (self.shape == Shape::Links
                    && self.neighbours(Vertex::Node(*node)) != new.neighbours(Vertex::Node(*node)))
        };
        self.nodes.iter().filter(|(node, entry)| has_moved(node, entry)).map(|(node, _)| *node).collect()
    }

    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.index.get(&Vertex::Node(node)).copied()
    }

    fn distance(&self, from: usize, to: usize) -> u16 {
        self.hops[from * self.vertices.len() + to]
    }

    /// Makes vertices and cables.
    fn join(&mut self) -> Result<(), TopologyError> {
        let mut vertices: Vec<Vertex> = self.nodes.keys().copied().map(Vertex::Node).collect();
        let racks: BTreeSet<u16> = match self.shape {
            Shape::FatTree => self.nodes.values().map(|entry| entry.at.0[0]).collect(),
            _ => BTreeSet::new(),
        };
        vertices.extend(racks.iter().copied().map(Vertex::Rack));
        if !self.shape.is_switchless() && !self.nodes.is_empty() {
            vertices.push(Vertex::Core);
        }
        self.index = vertices.iter().copied().zip(0..).collect();
        self.vertices = vertices;
        let cables = self.cables()?;
        self.joined = vec![Vec::new(); self.vertices.len()];
        for (a, b) in cables {
            self.joined[a].push(b);
            self.joined[b].push(a);
        }
        self.joined.iter_mut().for_each(|row| row.sort_unstable());
        Ok(())
    }

    /// The cables as pairs of indexes, the smaller first.
    fn cables(&self) -> Result<BTreeSet<(usize, usize)>, TopologyError> {
        let core = self.vertices.len().saturating_sub(1);
        let nodes = self.nodes.len();
        if self.shape == Shape::Mesh {
            within("links", nodes * nodes.saturating_sub(1) / 2, LINKS_MAX)?;
        }
        let mut cables = BTreeSet::new();
        let mut lay = |a: usize, b: usize| {
            cables.insert((a.min(b), a.max(b)));
        };
        match &self.shape {
            Shape::Flat => (0..nodes).for_each(|node| lay(node, core)),
            Shape::FatTree => {
                for (node, entry) in self.nodes.values().enumerate() {
                    lay(node, self.index[&Vertex::Rack(entry.at.0[0])]);
                }
                (nodes..core).for_each(|rack| lay(rack, core));
            }
            Shape::Mesh => (0..nodes).for_each(|a| (0..a).for_each(|b| lay(a, b))),
            Shape::Links => {
                for &(a, b) in &self.listed {
                    lay(self.index[&Vertex::Node(a)], self.index[&Vertex::Node(b)]);
                }
            }
            Shape::Torus(sizes) => {
                let at: BTreeMap<&Coordinates, usize> =
                    self.nodes.values().map(|entry| &entry.at).zip(0..).collect();
                for (place, node) in &at {
                    for (along, size) in sizes.iter().enumerate() {
                        let mut next = (*place).clone();
                        next.0[along] = (next.0[along] + 1) % size;
                        lay(*node, at[&next]);
                    }
                }
            }
        }
        within("links", cables.len(), LINKS_MAX)?;
        Ok(cables)
    }

    /// Computes all distances.
    fn measure(&mut self) -> Result<(), TopologyError> {
        let count = self.vertices.len();
        self.hops = vec![u16::MAX; count * count];
        for from in 0..count {
            let row = &mut self.hops[from * count..(from + 1) * count];
            row[from] = 0;
            let mut queue = VecDeque::from([from]);
            while let Some(at) = queue.pop_front() {
                for &next in &self.joined[at] {
                    if row[next] == u16::MAX {
                        row[next] = row[at] + 1;
                        queue.push_back(next);
                    }
                }
            }
        }
        let first = self.nodes.keys().next();
        let far = self.nodes.keys().enumerate().find(|(to, _)| self.hops[*to] == u16::MAX);
        match (first, far) {
            (Some(&first), Some((_, &far))) => Err(TopologyError::Apart(first, far)),
            _ => Ok(()),
        }
    }

    fn next(&self, from: usize, to: usize) -> Option<usize> {
        if from == to {
            return None;
        }
        if let Shape::Torus(sizes) = &self.shape {
            return Some(self.next_on_torus(sizes, from, to));
        }
        let nearer: Vec<usize> = self.joined[from]
            .iter()
            .copied()
            .filter(|&next| self.distance(next, to) + 1 == self.distance(from, to))
            .collect();
        // Where several ways are as short, different targets go different ways.
        Some(nearer[(from + to) % nearer.len()])
    }

    fn next_on_torus(&self, sizes: &[u16], from: usize, to: usize) -> usize {
        let (here, there) = (self.entry(from), self.entry(to));
        let along = (0..sizes.len()).find(|&along| here.at.0[along] != there.at.0[along]);
        let along = along.expect("two nodes differ in a coordinate");
        let (size, at) = (sizes[along], here.at.0[along]);
        let up = (there.at.0[along] + size - at) % size;
        // Half the ring is as far both ways: even places go up and odd ones down, so both directions are used.
        let goes_up = up * 2 < size || (up * 2 == size && at.is_multiple_of(2));
        let next = if goes_up { (at + 1) % size } else { (at + size - 1) % size };
        let is_there = |&&candidate: &&usize| {
            let candidate = &self.entry(candidate).at.0;
            candidate[along] == next && (0..sizes.len()).all(|i| i == along || candidate[i] == here.at.0[i])
        };
        *self.joined[from].iter().find(is_there).expect("a torus has no hole")
    }

    fn entry(&self, index: usize) -> &NodeEntry {
        match self.vertices[index] {
            Vertex::Node(node) => &self.nodes[&node],
            _ => unreachable!("a torus has no switches"),
        }
    }
}

fn within(what: &'static str, found: usize, most: usize) -> Result<(), TopologyError> {
    if found > most { Err(TopologyError::TooMany { what, found, most }) } else { Ok(()) }
}

fn check_places(shape: &Shape, nodes: &BTreeMap<NodeId, NodeEntry>) -> Result<(), TopologyError> {
    let sizes: &[u16] = match shape {
        Shape::Torus(sizes) => sizes,
        _ => &[],
    };
    let mut taken = BTreeMap::new();
    let places: usize = sizes.iter().map(|&size| usize::from(size)).product();
    within("nodes", if sizes.is_empty() { 0 } else { places }, NODES_MAX)?;
    for (&node, entry) in nodes {
        let fits = entry.at.0.len() == shape.dimensions()
            && entry.at.0.iter().zip(sizes).all(|(at, size)| at < size);
        if !fits {
            let expected = match shape {
                Shape::Torus(sizes) => {
                    let last: Vec<u16> = sizes.iter().map(|size| size - 1).collect();
                    format!("coordinates go to {}", Coordinates(last))
                }
                Shape::FatTree => "the one coordinate is the number of its rack".to_owned(),
                _ => "nodes have no coordinates there".to_owned(),
            };
            return Err(TopologyError::Outside {
                node,
                at: entry.at.clone(),
                shape: shape.to_string(),
                expected,
            });
        }
        if !sizes.is_empty()
            && let Some(other) = taken.insert(&entry.at, node)
        {
            return Err(TopologyError::PlaceTwice(other, node, entry.at.clone()));
        }
    }
    match shape.places().find(|place| !taken.contains_key(place)) {
        Some(at) => Err(TopologyError::Hole { at, shape: shape.to_string(), places, nodes: nodes.len() }),
        None => Ok(()),
    }
}

fn check_addresses(nodes: &BTreeMap<NodeId, NodeEntry>) -> Result<(), TopologyError> {
    let mut given: BTreeMap<IpAddr, NodeId> = BTreeMap::new();
    for (&node, entry) in nodes {
        within("addresses of a node", entry.addresses.len(), ADDRESSES_MAX)?;
        for &address in &entry.addresses {
            if let Some(other) = given.insert(address, node) {
                return Err(TopologyError::AddressTwice(address.to_string(), other, node));
            }
        }
    }
    Ok(())
}
