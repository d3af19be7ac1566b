//! The shape of the network between the nodes: who is cabled to whom, over how many links a packet goes, what fails
//! together.
//!
//! ```text
//!   flat              fat-tree              torus 3x3             mesh            links
//!   all nodes on      racks with a switch   a node is a router;   every node is   as listed
//!   one switch        each, and one above   lines are rings       cabled to all
//! ```
//!
//! A **link** is a cable with two directions. A **hop** is one link in one direction: neighbours on a torus are one hop
//! apart, two nodes on one switch are two. The route between two nodes is fixed, so that the load of each link can be
//! computed: on a torus it goes along the first dimension, then the second, then the third (dimension order: no
//! deadlock, Dally and Seitz 1987); elsewhere it is one of the shortest ways.

mod addressing;
mod cabling;
mod drawing;
mod error;
mod load;
mod network;
mod shape;
mod text;

pub use addressing::{AddressRange, Addressing, AddressingError};
pub use cabling::{Cable, CableEnd, Cabling};
pub use drawing::draw;
pub use error::TopologyError;
pub use load::LinkLoad;
pub use network::{NodeEntry, NodeTier, Topology};
pub use shape::{Coordinates, Shape, Vertex};

#[cfg(test)]
mod tests;
