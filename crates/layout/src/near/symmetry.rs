//! Shifts that map a network onto itself.
//!
//! On a torus any node can be shifted to any other, and all distances stay. What is good for one primary is then good
//! for all, shifted: each link and each brick gets the same load as its images. Where only some shifts keep what differs
//! between nodes (how many bricks, whether they may be primaries), those are used. The only shift of a network without
//! symmetry leaves each node where it is.

use std::collections::BTreeMap;

use types::NodeId;

use crate::topology::{Shape, Topology};

/// Coordinates in which a shift is an addition, each modulo its size.
type Place = [usize; 3];

/// The shifts of the nodes of a placement. No shift but the first leaves a node where it is.
pub(super) struct Symmetry {
    /// Per shift, where each node goes. The first is the identity.
    images: Vec<Vec<u16>>,
    /// Per node, the shift that takes it to the first of those alike.
    homes: Vec<u16>,
}

impl Symmetry {
    /// The shifts of `nodes` that keep all distances and the `traits` of each node.
    pub(super) fn new<T: PartialEq>(topology: &Topology, nodes: &[NodeId], traits: &[T]) -> Symmetry {
        let identity: Vec<u16> = (0..nodes.len() as u16).collect();
        let images = match places(topology, nodes) {
            Some((at, sizes)) => shifts(&at, sizes, traits),
            None => vec![identity],
        };
        let home = |node: usize| {
            let shifts = images.iter().enumerate();
            shifts.min_by_key(|(_, image)| image[node]).map_or(0, |(shift, _)| shift as u16)
        };
        let homes = (0..nodes.len()).map(home).collect();
        Symmetry { images, homes }
    }

    /// How many shifts there are.
    pub(super) fn count(&self) -> usize {
        self.images.len()
    }

    /// Where a shift takes a node.
    pub(super) fn image(&self, shift: usize, node: usize) -> usize {
        self.images[shift][node].into()
    }

    /// The shift that takes a node to the first of those alike.
    pub(super) fn home(&self, node: usize) -> usize {
        self.homes[node].into()
    }

    /// Whether a node is the first of those alike.
    pub(super) fn is_representative(&self, node: usize) -> bool {
        self.homes[node] == 0
    }
}

/// The shifts that take each node to one with equal traits.
fn shifts<T: PartialEq>(at: &[Place], sizes: Place, traits: &[T]) -> Vec<Vec<u16>> {
    let number = |[x, y, z]: Place| x + sizes[0] * (y + sizes[1] * z);
    let places = sizes.iter().product();
    let mut node_at: Vec<Option<usize>> = vec![None; places];
    at.iter().zip(0..).for_each(|(&place, node)| node_at[number(place)] = Some(node));
    let image = |shift: Place, node: usize| {
        let to = std::array::from_fn(|along| (at[node][along] + shift[along]) % sizes[along]);
        node_at[number(to)].filter(|&to| traits[to] == traits[node]).map(|to| to as u16)
    };
    let shift = |number: usize| {
        let [x, y, _] = sizes;
        let shift = [number % x, number / x % y, number / (x * y)];
        (0..at.len()).map(|node| image(shift, node)).collect::<Option<Vec<u16>>>()
    };
    (0..places).filter_map(shift).collect()
}

/// Where the nodes are, and the size of each dimension. [`None`] if no shift but the identity keeps the distances.
fn places(topology: &Topology, nodes: &[NodeId]) -> Option<(Vec<Place>, Place)> {
    match topology.shape() {
        Shape::Torus(sizes) => {
            let pad = |numbers: &[u16], fill| {
                std::array::from_fn(|along| numbers.get(along).map_or(fill, |&number| number.into()))
            };
            let at = nodes.iter().map(|node| pad(&topology.nodes()[node].at.0, 0)).collect();
            Some((at, pad(sizes, 1)))
        }
        // All nodes are as far from each other: they may as well be on a ring.
        Shape::Flat | Shape::Mesh => {
            Some(((0..nodes.len()).map(|at| [at, 0, 0]).collect(), [nodes.len(), 1, 1]))
        }
        Shape::FatTree => racks(topology, nodes),
        Shape::Links => None,
    }
}

/// The number in the rack and the number of the rack, if all racks with bricks have as many nodes with bricks.
fn racks(topology: &Topology, nodes: &[NodeId]) -> Option<(Vec<Place>, Place)> {
    let mut filled: BTreeMap<u16, usize> = BTreeMap::new();
    let rack = |node| topology.nodes()[node].at.0[0];
    let mut within = |node| {
        let count = filled.entry(rack(node)).or_default();
        *count += 1;
        *count - 1
    };
    let within: Vec<usize> = nodes.iter().map(&mut within).collect();
    let size = *filled.values().next()?;
    let order: BTreeMap<u16, usize> = filled.keys().copied().zip(0..).collect();
    let at = nodes.iter().zip(within).map(|(node, within)| [within, order[&rack(node)], 0]).collect();
    filled.values().all(|&count| count == size).then_some((at, [size, order.len(), 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str, traits: impl Fn(u32) -> u32) -> usize {
        let topology: Topology = text.parse().expect("sound");
        let nodes: Vec<NodeId> = topology.nodes().keys().copied().collect();
        let traits: Vec<u32> = nodes.iter().map(|node| traits(node.0)).collect();
        let symmetry = Symmetry::new(&topology, &nodes, &traits);
        for shift in 0..symmetry.count() {
            for (at, &a) in nodes.iter().enumerate() {
                assert!(
                    shift == 0 || symmetry.image(shift, at) != at,
                    "only the identity leaves a node where it is"
                );
                for (to, &b) in nodes.iter().enumerate() {
                    let image = |node| nodes[symmetry.image(shift, node)];
                    assert_eq!(topology.hops(a, b), topology.hops(image(at), image(to)));
                }
            }
        }
        let alike = (0..nodes.len()).filter(|&node| symmetry.is_representative(node)).count();
        assert_eq!(alike * symmetry.count(), nodes.len());
        symmetry.count()
    }

    fn written(shape: &str, node: impl Fn(u32) -> String, nodes: u32) -> String {
        (0..nodes).fold(format!("{shape}\n"), |text, id| text + &format!("node {id}{}\n", node(id)))
    }

    #[test]
    fn shifts_keep_distances_and_what_differs_between_nodes() {
        let torus = written("torus 4x2", |id| format!(" at {},{}", id % 4, id / 4), 8);
        assert_eq!(count(&torus, |_| 0), 8);
        assert_eq!(count(&torus, |node| node % 2), 4);
        assert_eq!(count(&torus, |node| node / 4), 4);
        assert_eq!(count(&torus, |node| u32::from(node == 0)), 1);
        assert_eq!(count(&written("mesh", |_| String::new(), 5), |_| 0), 5);
        let racks = |id| format!(" at {}", id % 3);
        assert_eq!(count(&written("fat-tree", racks, 6), |_| 0), 6);
        assert_eq!(count(&written("fat-tree", racks, 7), |_| 0), 1);
        assert_eq!(count("links\nnode 0\nnode 1\nlink 0 1\n", |_| 0), 1);
    }
}
