//! The networks: a chain, a torus with a client in front, and a tree.
//!
//! ```text
//!   chain   1 ── 2 ── 3 ── ... ── 16
//!
//!   torus   12 ── 1 ── 2 ── 3 ──▷      4 x 3, each row and column a ring. Nodes 1 to 10 have a brick. Node 12 has none: it
//!            │    │    │    │          stands between the back, where the bricks are, and the front. Node 11 only forwards.
//!            4 ── 5 ── 6 ── 7 ──▷      A client is at node 12, as a part of the torus with its four ports, or at node 13,
//!            │    │    │    │          which has one cable, to node 12 (the paper's Figure 7).
//!            8 ── 9 ── 11 ─ 10 ─▷
//!            ▽    ▽    ▽    ▽
//!
//!   tree    1, 2, ... 10 and the client, node 11, on one switch, each by one cable
//! ```

use std::collections::BTreeMap;

use layout::topology::{NodeEntry, Shape, Topology, Vertex};
use types::NodeId;

use crate::error::{Result, doing};

/// Where a client is on a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Part of the torus.
    Torus,
    /// In front of the torus, by one cable.
    Front,
    /// On the switch of the tree.
    Tree,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 3] = [Place::Torus, Place::Front, Place::Tree];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Place::Torus => "in the torus",
            Place::Front => "in front of the torus",
            Place::Tree => "on the tree",
        }
    }

    /// The client's node.
    pub fn client(self) -> u32 {
        match self {
            Place::Torus => 12,
            Place::Front => 13,
            Place::Tree => 11,
        }
    }

    /// The network around it.
    ///
    /// # Errors
    /// None that this module can cause.
    pub fn network(self) -> Result<Topology> {
        match self {
            Place::Torus | Place::Front => torus(),
            Place::Tree => tree(),
        }
    }
}

/// Nodes with a brick.
pub const SERVERS: u32 = 10;
/// The rows of the torus.
const ROWS: [[u32; 4]; 3] = [[12, 1, 2, 3], [4, 5, 6, 7], [8, 9, 11, 10]];

/// A chain of nodes.
///
/// # Errors
/// Fewer than two nodes.
pub fn chain(nodes: u32) -> Result<Topology> {
    let links: Vec<(u32, u32)> = (1..nodes).map(|node| (node, node + 1)).collect();
    linked(nodes, &links)
}

/// The torus, with the node in front.
///
/// # Errors
/// None that this module can cause.
pub fn torus() -> Result<Topology> {
    let mut links = vec![(Place::Torus.client(), Place::Front.client())];
    for (y, row) in ROWS.iter().enumerate() {
        for (x, &node) in row.iter().enumerate() {
            links.push((node, row[(x + 1) % row.len()]));
            links.push((node, ROWS[(y + 1) % ROWS.len()][x]));
        }
    }
    linked(Place::Front.client(), &links)
}

/// The tree.
///
/// # Errors
/// None that this module can cause.
pub fn tree() -> Result<Topology> {
    let nodes = (1..=Place::Tree.client()).map(NodeId).collect();
    Topology::numbered(Shape::Flat, &nodes).map_err(doing("make a tree"))
}

fn linked(nodes: u32, links: &[(u32, u32)]) -> Result<Topology> {
    let entries: BTreeMap<NodeId, NodeEntry> =
        (1..=nodes).map(|node| (NodeId(node), NodeEntry::default())).collect();
    let links: Vec<(NodeId, NodeId)> = links.iter().map(|&(a, b)| (NodeId(a), NodeId(b))).collect();
    Topology::new(Shape::Links, entries, &links).map_err(doing("lay cables"))
}

/// The neighbours of a node that have a brick, by number.
pub fn servers_beside(topology: &Topology, node: u32) -> Vec<u32> {
    let beside = topology.neighbours(Vertex::Node(NodeId(node)));
    let numbers = beside.into_iter().filter_map(|vertex| match vertex {
        Vertex::Node(node) => Some(node.0),
        Vertex::Core | Vertex::Rack(_) => None,
    });
    numbers.filter(|node| *node <= SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hops(topology: &Topology, a: u32, b: u32) -> Option<u32> {
        topology.hops(NodeId(a), NodeId(b))
    }

    #[test]
    fn a_chain_has_as_many_hops_as_nodes_lie_between() {
        let chain = chain(16).expect("a chain");
        assert_eq!((hops(&chain, 1, 2), hops(&chain, 1, 16)), (Some(1), Some(15)));
    }

    #[test]
    fn a_client_in_the_torus_has_four_bricks_beside_it_and_none_is_far() {
        let torus = torus().expect("a torus");
        // Two cables for each of 12 nodes, and that of the front.
        assert_eq!((torus.nodes().len(), torus.links().len()), (13, 25));
        let client = Place::Torus.client();
        assert_eq!(servers_beside(&torus, client), [1, 3, 4, 8]);
        let far: Vec<u32> = (1..=SERVERS).filter_map(|node| hops(&torus, client, node)).collect();
        assert_eq!(far, [1, 2, 1, 1, 2, 3, 2, 1, 2, 2]);
        let front = Place::Front.client();
        assert!((1..=SERVERS).all(|node| hops(&torus, front, node) == Some(far[node as usize - 1] + 1)));
        assert_eq!(torus.neighbours(Vertex::Node(NodeId(front))).len(), 1);
    }

    #[test]
    fn every_client_has_a_node_without_a_brick() {
        for place in Place::ALL {
            let network = place.network().expect("a network");
            assert!(place.client() > SERVERS && network.nodes().contains_key(&NodeId(place.client())));
        }
        let tree = tree().expect("a tree");
        assert_eq!((hops(&tree, 11, 1), hops(&tree, 1, 2)), (Some(2), Some(2)));
    }
}
