//! Shapes, places in them, and what fails together.

use std::fmt;

/// How the nodes are joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// All on one switch.
    #[default]
    Flat,
    /// Racks with a switch each, and one switch that joins them. The only coordinate of a node is its rack.
    FatTree,
    /// One ring through each node for each dimension, of which there are one to three. The sizes, each from 2 to 1024.
    Torus(Vec<u16>),
    /// Every node is cabled to every other.
    Mesh,
    /// The cables are listed.
    Links,
}

impl Shape {
    /// Numbers in the coordinates of a node.
    pub fn dimensions(&self) -> usize {
        match self {
            Shape::Flat | Shape::Mesh | Shape::Links => 0,
            Shape::FatTree => 1,
            Shape::Torus(sizes) => sizes.len(),
        }
    }

    /// Whether nodes forward packets of others, so that there is no switch.
    pub fn is_switchless(&self) -> bool {
        !matches!(self, Shape::Flat | Shape::FatTree)
    }

    /// The places of a torus in the order of their numbers: the first coordinate changes fastest. None elsewhere.
    pub fn places(&self) -> impl Iterator<Item = Coordinates> + use<> {
        let sizes = match self {
            Shape::Torus(sizes) => sizes.clone(),
            _ => Vec::new(),
        };
        let count = if sizes.is_empty() { 0 } else { sizes.iter().map(|&size| usize::from(size)).product() };
        (0..count).map(move |number: usize| {
            let mut rest = number;
            let along = |&size: &u16| {
                let at = rest % usize::from(size);
                rest /= usize::from(size);
                at as u16
            };
            Coordinates(sizes.iter().map(along).collect())
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Flat => f.write_str("flat"),
            Shape::FatTree => f.write_str("fat-tree"),
            Shape::Torus(sizes) => write!(f, "torus {}", joined(sizes, "x")),
            Shape::Mesh => f.write_str("mesh"),
            Shape::Links => f.write_str("links"),
        }
    }
}

/// Where a node is: one number per dimension, each from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Coordinates(pub Vec<u16>);

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "no place" } else { "" })?;
        f.write_str(&joined(&self.0, ","))
    }
}

fn joined(numbers: &[u16], between: &str) -> String {
    numbers.iter().map(u16::to_string).collect::<Vec<_>>().join(between)
}

/// What has ports: a node, or a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vertex {
    /// A node.
    Node(types::NodeId),
    /// The switch of all nodes, or the one that joins the racks.
    Core,
    /// The switch of a rack.
    Rack(u16),
}

impl fmt::Display for Vertex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vertex::Node(node) => write!(f, "{node}"),
            Vertex::Core => f.write_str("switch"),
            Vertex::Rack(rack) => write!(f, "rack {rack}"),
        }
    }
}
