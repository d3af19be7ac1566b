//! The path along which the terms of a lost unit are added up on the way to the group's primary.
//!
//! A lost unit is a sum of K others, each times a factor. If the primary gathers them, K-1 units come in by its cables. A sum is as
//! long as one unit wherever it is made: so each member adds its unit to what comes from the member behind it, and one unit crosses
//! each edge of the path (repair pipelining: Li and others, USENIX ATC 2017).

use types::NodeId;

use crate::topology::Topology;

/// How long a path may be, in percent of the ways to the primary. At the same length it is the better one: no node takes in more
/// than one unit ([the model](../../../../docs/torus-model.md) rebuilds half as fast again).
const LENGTH_PERCENT: u32 = 110;

/// The slots of `count` of the members `(slot, node)`, in the order in which they are asked from `primary`: each is the nearest
/// one to the one before it. Among those as near it is each one's turn, by `turn`.
///
/// [`None`] if the units should rather be gathered: all are as far from each other as on a switch, or the path is clearly longer
/// than the ways of the nearest `count` members to the primary; or if a node is not part of the topology.
pub fn repair_path(
    topology: &Topology,
    primary: NodeId,
    members: &[(usize, NodeId)],
    count: usize,
    turn: usize,
) -> Option<Vec<usize>> {
    // Of one other member the unit comes either way.
    if count < 2 || count > members.len() {
        return None;
    }
    let mut gathered: Vec<u32> =
        members.iter().map(|&(_, node)| topology.hops(node, primary)).collect::<Option<_>>()?;
    gathered.sort_unstable();
    let mut left = members.to_vec();
    left.rotate_left(turn % members.len());
    let (mut path, mut at, mut hops) = (Vec::with_capacity(count), primary, 0);
    for _ in 0..count {
        let distances: Vec<u32> =
            left.iter().map(|&(_, node)| topology.hops(node, at)).collect::<Option<_>>()?;
        let (nearest, distance) = distances.into_iter().enumerate().min_by_key(|(_, hops)| *hops)?;
        // The order of the others stays: it is their turn next.
        let (slot, node) = left.remove(nearest);
        (at, hops) = (node, hops + distance);
        path.push(slot);
    }
    // Members on one node are no hop apart, on any network.
    let apart = |a: NodeId, b: NodeId| topology.hops(a, b).filter(|hops| *hops > 0);
    let nodes = || members.iter().map(|(_, node)| *node).chain([primary]);
    let mut distances = nodes().flat_map(|a| nodes().filter_map(move |b| apart(a, b)));
    let first = distances.next();
    let is_switch = distances.all(|distance| Some(distance) == first);
    let gathered: u32 = gathered[..count].iter().sum();
    (!is_switch && hops * 100 <= gathered * LENGTH_PERCENT).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(nodes: &[u32]) -> Vec<(usize, NodeId)> {
        nodes.iter().map(|&node| NodeId(node)).enumerate().collect()
    }

    #[test]
    fn a_path_goes_from_neighbour_to_neighbour() {
        // A ring of eight; the primary is node 1.
        let nodes: String = (1..=8).map(|node| format!("node {node} at {}\n", node - 1)).collect();
        let ring: Topology = format!("torus 8\n{nodes}").parse().expect("sound");
        let path = |nodes: &[u32], count, turn| repair_path(&ring, NodeId(1), &members(nodes), count, turn);
        // 1 + 1 + 1 hops, and 1 + 2 + 3 if each sends to the primary.
        assert_eq!(path(&[4, 2, 3], 3, 0), Some(vec![1, 2, 0]));
        // The nearest two are one hop away each: gathering costs 2, a path over them 3.
        assert_eq!(path(&[2, 8, 3], 2, 1), None);
        assert_eq!(path(&[2, 3, 4, 8, 7, 6], 4, 0), Some(vec![0, 1, 2, 5]));
        assert_eq!(path(&[2, 3, 4, 8, 7, 6], 4, 3), Some(vec![3, 4, 5, 2]), "the turn decides among equals");
        assert_eq!(path(&[2, 3], 3, 0), None, "too few");
        assert_eq!(path(&[2, 9, 3], 3, 0), None, "a stranger");
        assert_eq!(path(&[], 0, 5), None);
    }

    #[test]
    fn on_one_switch_units_are_gathered() {
        let flat: Topology = "flat\nnode 1\nnode 2\nnode 3\nnode 4".parse().expect("sound");
        assert_eq!(repair_path(&flat, NodeId(1), &members(&[2, 3, 4]), 3, 0), None);
        assert_eq!(
            repair_path(&flat, NodeId(1), &members(&[2, 1, 4, 3]), 3, 0),
            None,
            "one beside the primary"
        );
    }
}
