//! A topology from a number of nodes and the name of a shape, or why there is none and what would fit.

use std::collections::{BTreeMap, BTreeSet};

use layout::topology::{Coordinates, NodeEntry, Shape, Topology};
use types::NodeId;

use crate::error::{Result, refused};

/// Most nodes of a fabric: each is a namespace with several processes.
pub const NODES_MAX: u32 = 128;
/// Most cables, all switches' counted: each is two interfaces.
pub const CABLES_MAX: usize = 2048;

/// The network of a shape, as `flat`, `mesh`, `torus:4x4`, `torus:4x4x2`, `fat-tree` or `fat-tree:RACKS`, with nodes from 1 to
/// `nodes`. Racks have numbers from 0, and each the next few nodes.
///
/// # Errors
/// There is no such shape, or the nodes do not fill it; the remedy says what would fit.
pub fn topology(nodes: u32, text: &str) -> Result<Topology> {
    if !(1..=NODES_MAX).contains(&nodes) {
        let what = format!("a lab has 1 to {NODES_MAX} nodes, not {nodes}");
        return Err(refused(what, format!("--nodes with at most {NODES_MAX}")));
    }
    let ids: BTreeSet<NodeId> = (1..=nodes).map(NodeId).collect();
    let topology = match text.split_once([':', ' ']) {
        Some(("fat-tree", racks)) => in_racks(&ids, racks)?,
        _ if text == "fat-tree" => in_racks(&ids, &racks_default(nodes).to_string())?,
        _ => {
            let fits = fitting(nodes);
            let shape: Shape = text.parse().map_err(|why: String| refused(why, fits.clone()))?;
            if shape == Shape::Links {
                let what = "the cables of `links` are not known";
                return Err(refused(what, "--topology-file FILE, with its nodes and cables"));
            }
            let count = shape.places().take(usize::from(u16::MAX)).count();
            if let Shape::Torus(_) = shape
                && count != nodes as usize
            {
                let what = format!("a {shape} has {count} nodes, not {nodes}");
                return Err(refused(what, format!("--nodes {count}, or {fits}")));
            }
            Topology::numbered(shape, &ids).map_err(|why| refused(why.to_string(), fits))?
        }
    };
    within(topology)
}

/// The network that a text describes, as `layout::topology` writes it.
///
/// # Errors
/// The text is wrong, or its nodes do not have the numbers from 1 on.
pub fn described(text: &str) -> Result<Topology> {
    let form = "a first line such as `links`, then lines `node 1`, `node 2`, `link 1 2`";
    let topology: Topology = text.parse().map_err(|why| refused(format!("{why}"), form))?;
    let count = topology.nodes().len() as u32;
    if !topology.nodes().keys().copied().eq((1..=count).map(NodeId)) || !(1..=NODES_MAX).contains(&count) {
        let what =
            format!("the nodes of a lab have the numbers from 1 on without a gap, at most {NODES_MAX}");
        return Err(refused(what, "other numbers in the file"));
    }
    within(topology)
}

fn within(topology: Topology) -> Result<Topology> {
    let cables = topology.links().len();
    if cables > CABLES_MAX {
        let what = format!("{cables} cables are too many for one machine: at most {CABLES_MAX}");
        return Err(refused(what, "fewer nodes, or another shape"));
    }
    Ok(topology)
}

/// A fat tree whose racks have as many nodes as there are racks, or nearly so.
fn racks_default(nodes: u32) -> u32 {
    (1..=nodes).rev().find(|racks| racks * racks <= nodes).unwrap_or(1)
}

fn in_racks(ids: &BTreeSet<NodeId>, racks: &str) -> Result<Topology> {
    let nodes = ids.len();
    let count = racks.parse().ok().filter(|racks| (1..=nodes).contains(racks)).ok_or_else(|| {
        let what = format!("{nodes} nodes do not fill `{racks}` racks");
        refused(what, format!("--topology fat-tree:{}", racks_default(nodes as u32)))
    })?;
    let place = |(at, &node): (usize, &NodeId)| {
        let rack = at * count / nodes;
        (node, NodeEntry { at: Coordinates(vec![rack as u16]), ..NodeEntry::default() })
    };
    let nodes: BTreeMap<NodeId, NodeEntry> = ids.iter().enumerate().map(place).collect();
    Topology::new(Shape::FatTree, nodes, &[]).map_err(|why| refused(why.to_string(), "--topology flat"))
}

/// The shapes that this many nodes fill, as options.
fn fitting(nodes: u32) -> String {
    let mut fits = Vec::new();
    // The widest first size that leaves no rest: the nearest to a square.
    if let Some(a) = (2..=nodes).rev().find(|a| a * a <= nodes && nodes.is_multiple_of(*a)) {
        fits.push(format!("torus:{}x{a}", nodes / a));
    }
    fits.extend(["flat", "fat-tree", "mesh"].map(str::to_owned));
    format!("--topology {}", fits.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LabError;

    fn remedy(error: LabError) -> (String, String) {
        match error {
            LabError::Refused { what, remedy } => (what, remedy),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn shapes_have_names_and_nodes_from_1_on() {
        let torus = topology(16, "torus:4x4").expect("a torus");
        assert_eq!((torus.nodes().len(), torus.links().len()), (16, 32));
        assert_eq!(torus.nodes()[&NodeId(6)].at, Coordinates(vec![1, 1]));
        let racks = |text| {
            let tree = topology(9, text).expect("a tree");
            tree.nodes().values().map(|entry| entry.at.0[0]).collect::<Vec<_>>()
        };
        assert_eq!(racks("fat-tree"), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(racks("fat-tree:2"), [0, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(topology(3, "mesh").expect("a mesh").links().len(), 3);
        assert_eq!(topology(3, "flat").expect("a switch").links().len(), 3);
        assert_eq!(described("links\nnode 1\nnode 2\nlink 1 2").expect("two nodes").links().len(), 1);
    }

    #[test]
    fn what_does_not_fit_is_told_what_would() {
        let told = |nodes, text| remedy(topology(nodes, text).expect_err("it does not fit"));
        let (what, would) = told(16, "torus:4x5");
        assert_eq!(what, "a torus 4x5 has 20 nodes, not 16");
        assert_eq!(would, "--nodes 20, or --topology torus:4x4, flat, fat-tree, mesh");
        assert_eq!(told(7, "ring").1, "--topology flat, fat-tree, mesh");
        assert_eq!(told(6, "torus:9").1, "--nodes 9, or --topology torus:3x2, flat, fat-tree, mesh");
        assert_eq!(told(6, "fat-tree:9").1, "--topology fat-tree:2");
        assert!(told(0, "flat").0.contains("not 0"));
        assert!(told(100, "mesh").0.contains("4950 cables"));
        assert!(told(4, "links").1.contains("--topology-file"));
        let (what, _) = remedy(described("links\nnode 1\nnode 3\nlink 1 3").expect_err("a gap"));
        assert!(what.contains("without a gap"), "{what}");
    }
}
