//! What is wrong with a description of a network.

use types::NodeId;

use super::shape::Coordinates;

/// Why a topology cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A line of the text that is not understood.
    #[error("line {line}: {why}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what is expected.
        why: String,
    },
    /// The text has no first line with a shape.
    #[error(
        "no shape: the first line is one of `flat`, `fat-tree`, `torus 4x4`, `torus 4x4x4`, `mesh`, `links`"
    )]
    NoShape,
    /// A node is described twice.
    #[error("node {0} is described twice")]
    NodeTwice(NodeId),
    /// Two nodes have one place.
    #[error("nodes {0} and {1} are both at {2}")]
    PlaceTwice(NodeId, NodeId, Coordinates),
    /// A node has no coordinates, or too many or too large ones.
    #[error("node {node} is at {at}, which is not in a {shape}: {expected}")]
    Outside {
        /// The node.
        node: NodeId,
        /// Its coordinates.
        at: Coordinates,
        /// The shape, as it is written.
        shape: String,
        /// What coordinates have to be.
        expected: String,
    },
    /// A place of a torus has no node.
    #[error("no node is at {at}: a {shape} has {places} nodes, and {nodes} are described")]
    Hole {
        /// The first place without one.
        at: Coordinates,
        /// The shape, as it is written.
        shape: String,
        /// Nodes that it needs.
        places: usize,
        /// Nodes that there are.
        nodes: usize,
    },
    /// A link to a node that is not described, to itself, or twice.
    #[error("link {0} {1}: {2}")]
    Link(NodeId, NodeId, &'static str),
    /// Nodes between which there is no way.
    #[error("no way leads from node {0} to node {1}: add a link")]
    Apart(NodeId, NodeId),
    /// Two nodes, or one node twice, have an address.
    #[error("address {0} is given twice, to nodes {1} and {2}")]
    AddressTwice(String, NodeId, NodeId),
    /// More of something than allowed.
    #[error("{found} {what}, at most {most} are allowed")]
    TooMany {
        /// Nodes, links, addresses of a node.
        what: &'static str,
        /// How many.
        found: usize,
        /// The limit.
        most: usize,
    },
    /// Failure domains that the shape does not have.
    #[error("a {0} has no {1}s: use `node`{2}")]
    NoDomain(String, &'static str, &'static str),
}
