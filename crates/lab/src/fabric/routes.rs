//! Who sends packets for which node to which neighbour.
//!
//! While all cables are whole, packets go the way of the topology, which on a torus is along the first dimension first. With
//! cables cut, each part that still hangs together is a network of its own with shortest ways, as a routing protocol (OSPF,
//! RFC 2328) would find them. No route leads to a node of another part.

use std::collections::{BTreeMap, BTreeSet};

use layout::topology::{NodeEntry, Shape, Topology, TopologyError, Vertex};
use types::NodeId;

use super::cable::Cable;
use super::commands::{no_route, route};

/// The next vertex for each vertex and target.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Routes {
    next: BTreeMap<(Vertex, NodeId), Vertex>,
}

impl Routes {
    /// The routes of a topology of which some cables are cut.
    ///
    /// # Errors
    /// The rest is no topology: more switches than it may have nodes.
    pub fn of(topology: &Topology, cut: &BTreeSet<Cable>) -> Result<Routes, TopologyError> {
        if !cut.is_empty() {
            return of_parts(topology, cut);
        }
        let nodes = || topology.nodes().keys().copied();
        let ways = topology.vertices().iter().flat_map(|&from| nodes().map(move |to| (from, to)));
        let next = ways.filter_map(|(from, to)| Some(((from, to), topology.next_hop(from, to)?))).collect();
        Ok(Routes { next })
    }

    /// Where packets at `from` for a node go next; [`None`] at the node itself, and where no way leads to it.
    pub fn next(&self, from: Vertex, to: NodeId) -> Option<Vertex> {
        self.next.get(&(from, to)).copied()
    }

    /// The commands that turn `before` into these routes, by vertex. `down` is the cable that has just been set down: the kernel
    /// has removed the routes over it.
    pub fn changes(&self, before: &Routes, down: Option<Cable>) -> BTreeMap<Vertex, Vec<String>> {
        let mut changes: BTreeMap<Vertex, Vec<String>> = BTreeMap::new();
        for (&(from, to), &by) in &self.next {
            let old = before.next(from, to);
            if old != Some(by) {
                changes.entry(from).or_default().push(route(from, to, by));
            }
        }
        for (&(from, to), &by) in &before.next {
            if self.next(from, to).is_none() && down != Some(Cable::new(from, by)) {
                changes.entry(from).or_default().push(no_route(to));
            }
        }
        changes
    }
}

/// The routes of each part that still hangs together. A switch is a node there too, with a number after all nodes.
fn of_parts(topology: &Topology, cut: &BTreeSet<Cable>) -> Result<Routes, TopologyError> {
    let after = topology.nodes().keys().last().map_or(0, |node| node.0) + 1;
    let number = |vertex: &Vertex| match vertex {
        Vertex::Node(node) => *node,
        Vertex::Core => NodeId(after),
        Vertex::Rack(rack) => NodeId(after + 1 + u32::from(*rack)),
    };
    let vertices: BTreeMap<NodeId, Vertex> = topology.vertices().iter().map(|v| (number(v), *v)).collect();
    let whole: Vec<(NodeId, NodeId)> = Cable::all(topology)
        .into_iter()
        .filter(|cable| !cut.contains(cable))
        .map(|cable| (number(&cable.ends().0), number(&cable.ends().1)))
        .collect();
    let mut routes = Routes::default();
    for part in parts(&vertices.keys().copied().collect(), &whole) {
        let links: Vec<_> = whole.iter().copied().filter(|(a, _)| part.contains(a)).collect();
        let entries = part.iter().map(|node| (*node, NodeEntry::default())).collect();
        let network = Topology::new(Shape::Links, entries, &links)?;
        for &from in &part {
            for &to in part.iter().filter(|to| to.0 < after) {
                if let Some(Vertex::Node(by)) = network.next_hop(Vertex::Node(from), to) {
                    routes.next.insert((vertices[&from], to), vertices[&by]);
                }
            }
        }
    }
    Ok(routes)
}

/// The parts of a network between which no link is.
fn parts(nodes: &BTreeSet<NodeId>, links: &[(NodeId, NodeId)]) -> Vec<BTreeSet<NodeId>> {
    let mut rest = nodes.clone();
    let mut parts = Vec::new();
    while let Some(first) = rest.pop_first() {
        let (mut part, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(at) = open.pop() {
            let ends = links.iter().filter_map(|&(a, b)| match at {
                _ if a == at => Some(b),
                _ if b == at => Some(a),
                _ => None,
            });
            for other in ends.filter(|other| rest.remove(other)).collect::<Vec<_>>() {
                part.insert(other);
                open.push(other);
            }
        }
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::shape::topology;

    fn node(number: u32) -> Vertex {
        Vertex::Node(NodeId(number))
    }

    /// The way of packets, both ends included; [`None`] if it ends early.
    fn way(routes: &Routes, from: Vertex, to: u32) -> Option<Vec<Vertex>> {
        let mut way = vec![from];
        while way.last() != Some(&node(to)) {
            way.push(routes.next(*way.last()?, NodeId(to))?);
            assert!(way.len() < 50, "a loop: {way:?}");
        }
        Some(way)
    }

    #[test]
    fn whole_networks_have_the_routes_of_their_topology() {
        for (nodes, shape) in
            [(4, "torus:2x2"), (4, "fat-tree:2"), (16, "torus:4x4"), (5, "mesh"), (3, "flat")]
        {
            let topology = topology(nodes, shape).expect("a topology");
            let routes = Routes::of(&topology, &BTreeSet::new()).expect("routes");
            for (a, b) in (1..=nodes).flat_map(|a| (1..=nodes).map(move |b| (a, b))) {
                let expected = topology.route(NodeId(a), NodeId(b));
                assert_eq!(way(&routes, node(a), b), Some(expected), "{shape} {a} {b}");
            }
        }
    }

    #[test]
    fn packets_go_around_a_cut_and_no_route_leads_to_nodes_that_are_cut_off() {
        let torus = topology(4, "torus:2x2").expect("a torus");
        let whole = Routes::of(&torus, &BTreeSet::new()).expect("routes");
        let first = Cable::new(node(1), node(2));
        let cut = Routes::of(&torus, &BTreeSet::from([first])).expect("routes");
        assert_eq!(way(&cut, node(1), 2), Some([1, 3, 4, 2].map(node).into()));
        let changes = cut.changes(&whole, Some(first));
        let over = "route replace 198.18.0.2/32 via 198.18.0.3 dev node3 onlink src 198.18.0.1";
        assert!(changes[&node(1)].iter().any(|line| line == over), "{changes:?}");
        // Node 2 alone.
        let second = Cable::new(node(2), node(4));
        let apart = Routes::of(&torus, &BTreeSet::from([first, second])).expect("routes");
        assert_eq!((way(&apart, node(1), 2), way(&apart, node(2), 1)), (None, None));
        assert_eq!(way(&apart, node(1), 4), Some([1, 3, 4].map(node).into()));
        let changes = apart.changes(&cut, Some(second));
        assert_eq!(changes[&node(1)], ["route del 198.18.0.2/32"]);
        // The kernel has removed those over the cable itself.
        assert!(!changes.contains_key(&node(2)) && !changes.contains_key(&node(4)), "{changes:?}");
        let mended = whole.changes(&apart, None);
        assert_eq!(mended[&node(2)].len(), 3);
        assert!(whole.changes(&whole, None).is_empty());
    }

    #[test]
    fn a_rack_that_is_cut_off_keeps_its_own_ways() {
        let tree = topology(4, "fat-tree:2").expect("a tree");
        let cut = BTreeSet::from([Cable::new(Vertex::Rack(0), Vertex::Core)]);
        let routes = Routes::of(&tree, &cut).expect("routes");
        assert_eq!(way(&routes, node(1), 2), Some(vec![node(1), Vertex::Rack(0), node(2)]));
        assert_eq!(way(&routes, node(1), 3), None);
        assert_eq!(routes.next(Vertex::Core, NodeId(4)), Some(Vertex::Rack(1)));
        assert_eq!(routes.next(Vertex::Core, NodeId(1)), None);
    }
}
