//! Which port of what is joined to which by which cable.
//!
//! Ports are counted from 1. On a torus they are directions, the same at every node:
//!
//! ```text
//!              4 (second dimension, down)      torus AxBxC: 1 2 first, 3 4 second, 5 6 third dimension, up and down;
//!              │                               a ring of two nodes has one cable, and so one port at each
//!   2 (down) ──n── 1 (first dimension, up)     elsewhere: port 1 leads to the neighbour with the lowest id, and so on;
//!              │                               a switch has its nodes first, the way to the upper switch last
//!              3 (up)
//! ```
//!
//! Cables are counted from 1 too. Those of a mesh keep their numbers and ports when a node with a higher id is added.

use std::collections::BTreeMap;

use types::NodeId;

use super::network::Topology;
use super::shape::{Coordinates, Shape, Vertex};

/// One end of a cable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CableEnd {
    /// What the cable ends at.
    pub vertex: Vertex,
    /// Which of its ports, from 1.
    pub port: usize,
}

/// A cable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cable {
    /// From 1.
    pub number: usize,
    /// What it joins. On a torus the first end is the one whose port leads up.
    pub ends: [CableEnd; 2],
}

/// All cables of a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cabling {
    cables: Vec<Cable>,
}

impl Cabling {
    /// The cables of `topology`.
    pub fn new(topology: &Topology) -> Cabling {
        let joined = match topology.shape() {
            Shape::Torus(sizes) => along_rings(topology, sizes),
            _ => one_by_one(topology),
        };
        let cable = |(ends, number)| Cable { number, ends };
        Cabling { cables: joined.into_iter().zip(1..).map(cable).collect() }
    }

    /// The cables, in the order of their numbers.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// The cables of a vertex in the order of its ports: each one with the vertex' own end and the far one.
    pub fn of(&self, vertex: Vertex) -> Vec<(&Cable, CableEnd, CableEnd)> {
        let ends = self.cables.iter().flat_map(|cable| {
            let [a, b] = cable.ends;
            [(cable, a, b), (cable, b, a)]
        });
        let mut own: Vec<_> = ends.filter(|(_, near, _)| near.vertex == vertex).collect();
        own.sort_by_key(|(_, near, _)| near.port);
        own
    }
}

/// The cables of a torus: those of the first place along each dimension, then those of the second place, and so on.
fn along_rings(topology: &Topology, sizes: &[u16]) -> Vec<[CableEnd; 2]> {
    let at: BTreeMap<&Coordinates, NodeId> =
        topology.nodes().iter().map(|(node, entry)| (&entry.at, *node)).collect();
    let end = |place: &Coordinates, port| CableEnd { vertex: Vertex::Node(at[place]), port };
    let mut cables = Vec::new();
    for place in topology.shape().places() {
        let mut port = 1;
        for (along, &size) in sizes.iter().enumerate() {
            let is_pair = size == 2;
            let mut next = place.clone();
            next.0[along] = (next.0[along] + 1) % size;
            if !(is_pair && place.0[along] == 1) {
                let far = if is_pair { port } else { port + 1 };
                cables.push([end(&place, port), end(&next, far)]);
            }
            port += if is_pair { 1 } else { 2 };
        }
    }
    cables
}

/// The cables of other shapes: those from the second vertex to earlier ones, then those from the third, and so on.
fn one_by_one(topology: &Topology) -> Vec<[CableEnd; 2]> {
    let ports: BTreeMap<(Vertex, Vertex), usize> = topology
        .vertices()
        .iter()
        .flat_map(|&near| {
            topology.neighbours(near).into_iter().zip(1..).map(move |(far, port)| ((near, far), port))
        })
        .collect();
    let order: BTreeMap<Vertex, usize> = topology.vertices().iter().copied().zip(0..).collect();
    let mut links = topology.links();
    links.sort_by_key(|(a, b)| (order[b], order[a]));
    let end = |near, far| CableEnd { vertex: near, port: ports[&(near, far)] };
    links.into_iter().map(|(a, b)| [end(a, b), end(b, a)]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn cables(text: &str) -> Vec<String> {
        let topology: Topology = text.parse().expect("sound");
        let end = |end: CableEnd| format!("{}.{}", end.vertex, end.port);
        let line = |cable: &Cable| format!("{} {}", end(cable.ends[0]), end(cable.ends[1]));
        Cabling::new(&topology).cables().iter().map(line).collect()
    }

    fn numbered(shape: &str, nodes: u32) -> Topology {
        let shape = shape.parse().expect("a shape");
        Topology::numbered(shape, &(1..=nodes).map(NodeId).collect()).expect("fits")
    }

    #[test]
    fn a_mesh_keeps_its_cables_when_it_grows() {
        let three = cables("mesh\nnode 1\nnode 2\nnode 3\n");
        assert_eq!(three, ["n1.1 n2.1", "n1.2 n3.1", "n2.2 n3.2"]);
        let four = cables("mesh\nnode 1\nnode 2\nnode 3\nnode 4\n");
        assert_eq!(four[..3], three);
        assert_eq!(four[3..], ["n1.3 n4.1", "n2.3 n4.2", "n3.3 n4.3"]);
    }

    #[test]
    fn the_ports_of_a_torus_are_directions() {
        let ring = cables("torus 3\nnode 1 at 0\nnode 2 at 1\nnode 3 at 2\n");
        assert_eq!(ring, ["n1.1 n2.2", "n2.1 n3.2", "n3.1 n1.2"]);
        let square = cables("torus 2x2\nnode 1 at 0,0\nnode 2 at 1,0\nnode 3 at 0,1\nnode 4 at 1,1\n");
        assert_eq!(square, ["n1.1 n2.1", "n1.2 n3.2", "n2.2 n4.2", "n3.1 n4.1"]);
        let torus = numbered("torus 4x4", 16);
        let far: Vec<String> = Cabling::new(&torus)
            .of(Vertex::Node(NodeId(6)))
            .iter()
            .map(|(_, near, far)| format!("{} to {}.{}", near.port, far.vertex, far.port))
            .collect();
        assert_eq!(far, ["1 to n7.2", "2 to n5.1", "3 to n10.4", "4 to n2.3"]);
    }

    #[test]
    fn a_switch_has_its_nodes_first_and_the_way_up_last() {
        let tree = cables("fat-tree\nnode 1 at 0\nnode 2 at 0\nnode 3 at 7\n");
        let expected =
            ["n1.1 rack 0.1", "n2.1 rack 0.2", "n3.1 rack 7.1", "rack 0.3 switch.1", "rack 7.2 switch.2"];
        assert_eq!(tree, expected);
        assert_eq!(cables("flat\nnode 5\nnode 9\n"), ["n5.1 switch.1", "n9.1 switch.2"]);
    }

    #[test]
    fn every_link_has_a_cable_and_every_port_one_end() {
        for (shape, nodes) in [
            ("torus 4x4", 16),
            ("torus 2x5", 10),
            ("torus 3x2x4", 24),
            ("torus 2x2x2", 8),
            ("mesh", 7),
            ("flat", 5),
        ] {
            let topology = numbered(shape, nodes);
            let cabling = Cabling::new(&topology);
            let pairs: BTreeSet<[Vertex; 2]> = cabling
                .cables()
                .iter()
                .map(|cable| {
                    let mut pair = cable.ends.map(|end| end.vertex);
                    pair.sort();
                    pair
                })
                .collect();
            let links: BTreeSet<[Vertex; 2]> = topology
                .links()
                .into_iter()
                .map(|(a, b)| {
                    let mut pair = [a, b];
                    pair.sort();
                    pair
                })
                .collect();
            assert_eq!(pairs, links, "{shape}");
            assert_eq!(cabling.cables().len(), links.len(), "{shape}");
            for &vertex in topology.vertices() {
                let ports: Vec<usize> = cabling.of(vertex).iter().map(|(_, near, _)| near.port).collect();
                let expected: Vec<usize> = (1..=topology.neighbours(vertex).len()).collect();
                assert_eq!(ports, expected, "{shape}, {vertex}");
            }
        }
    }
}
