//! The names of cables, as `1-2`, `3-switch` or `rack0-switch`.

use std::fmt;

use layout::topology::{Topology, Vertex};
use types::NodeId;

use crate::error::{Result, refused};

/// A cable between two nodes or switches: two directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cable {
    ends: (Vertex, Vertex),
}

impl Cable {
    /// The cable between two ends, in whatever order they are named.
    pub fn new(a: Vertex, b: Vertex) -> Cable {
        Cable { ends: (a.min(b), a.max(b)) }
    }

    /// Its ends: nodes before switches.
    pub fn ends(self) -> (Vertex, Vertex) {
        self.ends
    }

    /// Both directions, from and to.
    pub fn directions(self) -> [(Vertex, Vertex); 2] {
        let (a, b) = self.ends;
        [(a, b), (b, a)]
    }

    /// All cables of a topology.
    pub fn all(topology: &Topology) -> Vec<Cable> {
        topology.links().into_iter().map(|(a, b)| Cable::new(a, b)).collect()
    }

    /// The cable with this name.
    ///
    /// # Errors
    /// An end does not exist, or the ends are no neighbours; the remedy names those that are.
    pub fn find(topology: &Topology, text: &str) -> Result<Cable> {
        let Some((a, b)) = text.split_once('-') else {
            let example = Cable::all(topology).first().map_or_else(|| "1-2".to_owned(), Cable::to_string);
            return Err(refused(
                format!("`{text}` names no cable"),
                format!("its two ends, as in {example}"),
            ));
        };
        let (a, b) = (find_end(topology, a)?, find_end(topology, b)?);
        let around = topology.neighbours(a);
        if around.contains(&b) {
            return Ok(Cable::new(a, b));
        }
        let others: Vec<String> = around.into_iter().map(name).collect();
        let what = format!("no cable joins {} and {}", name(a), name(b));
        Err(refused(what, format!("one of the neighbours of {}: {}", name(a), others.join(", "))))
    }
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = self.ends;
        // A rack comes before the switch above it.
        let (a, b) = if a == Vertex::Core { (b, a) } else { (a, b) };
        write!(f, "{}-{}", name(a), name(b))
    }
}

/// The name of a node or switch in commands: `3`, `switch`, `rack0`.
pub fn name(vertex: Vertex) -> String {
    match vertex {
        Vertex::Node(node) => node.0.to_string(),
        Vertex::Core => "switch".to_owned(),
        Vertex::Rack(rack) => format!("rack{rack}"),
    }
}

/// The node with this name, which may be written as `3` or `node3`.
///
/// # Errors
/// There is none; the remedy says which there are.
pub fn find_node(topology: &Topology, text: &str) -> Result<NodeId> {
    let number = text.strip_prefix("node").unwrap_or(text).parse().ok().map(NodeId);
    number.filter(|node| topology.nodes().contains_key(node)).ok_or_else(|| {
        let most = topology.nodes().len();
        refused(format!("there is no node `{text}`"), format!("a number from 1 to {most}"))
    })
}

fn find_end(topology: &Topology, text: &str) -> Result<Vertex> {
    let switches = topology.vertices().iter().copied().filter(|vertex| !matches!(vertex, Vertex::Node(_)));
    let names: Vec<(String, Vertex)> = switches.map(|switch| (name(switch), switch)).collect();
    if let Some((_, switch)) = names.iter().find(|(name, _)| name == text) {
        return Ok(*switch);
    }
    find_node(topology, text).map(Vertex::Node).map_err(|error| {
        if names.is_empty() {
            return error;
        }
        let names: Vec<&str> = names.iter().map(|(name, _)| &**name).collect();
        let most = topology.nodes().len();
        let remedy = format!("a number from 1 to {most}, or {}", names.join(", "));
        refused(format!("there is no node or switch `{text}`"), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LabError;
    use crate::fabric::shape::topology;

    fn refusal(topology: &Topology, text: &str) -> (String, String) {
        match Cable::find(topology, text) {
            Err(LabError::Refused { what, remedy }) => (what, remedy),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cable_is_named_by_its_ends() {
        let torus = topology(9, "torus:3x3").expect("a torus");
        let cable = Cable::find(&torus, "5-node4").expect("neighbours");
        assert_eq!(cable.to_string(), "4-5");
        assert_eq!(Cable::find(&torus, "4-5").expect("neighbours"), cable);
        let tree = topology(4, "fat-tree:2").expect("a tree");
        let names: Vec<String> = Cable::all(&tree).iter().map(Cable::to_string).collect();
        assert_eq!(names, ["1-rack0", "2-rack0", "3-rack1", "4-rack1", "rack0-switch", "rack1-switch"]);
        assert!(names.iter().all(|name| Cable::find(&tree, name).is_ok()));
    }

    #[test]
    fn wrong_names_are_told_the_right_ones() {
        let torus = topology(9, "torus:3x3").expect("a torus");
        let (what, remedy) = refusal(&torus, "1-5");
        assert_eq!((&*what, &*remedy), ("no cable joins 1 and 5", "one of the neighbours of 1: 2, 3, 4, 7"));
        assert_eq!(refusal(&torus, "1-10").1, "a number from 1 to 9");
        assert_eq!(refusal(&torus, "1").1, "its two ends, as in 1-2");
        assert_eq!(refusal(&torus, "1-switch").0, "there is no node `switch`");
        let tree = topology(4, "fat-tree:2").expect("a tree");
        assert_eq!(refusal(&tree, "5-rack0").1, "a number from 1 to 4, or rack0, rack1, switch");
        assert_eq!(refusal(&tree, "1-2").1, "one of the neighbours of 1: rack0");
    }
}
