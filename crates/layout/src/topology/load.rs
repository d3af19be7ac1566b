//! Bytes on each link in each direction, as computed from routes.

use std::collections::BTreeMap;

use types::NodeId;

use super::network::Topology;
use super::shape::Vertex;

/// What crosses each link. Directions are counted apart.
#[derive(Clone, Debug, Default)]
pub struct LinkLoad {
    bytes: BTreeMap<(Vertex, Vertex), u64>,
    links: usize,
}

impl LinkLoad {
    /// No load on any link of `topology`.
    pub fn new(topology: &Topology) -> LinkLoad {
        LinkLoad { bytes: BTreeMap::new(), links: topology.links().len() * 2 }
    }

    /// Adds `bytes` on the way from one node to another.
    pub fn add(&mut self, topology: &Topology, from: NodeId, to: NodeId, bytes: u64) {
        for step in topology.route(from, to).windows(2) {
            *self.bytes.entry((step[0], step[1])).or_default() += bytes;
        }
    }

    /// The bytes on a link from its first end to its second.
    pub fn on(&self, from: Vertex, to: Vertex) -> u64 {
        self.bytes.get(&(from, to)).copied().unwrap_or(0)
    }

    /// The most bytes on any link in one direction.
    pub fn worst(&self) -> u64 {
        self.bytes.values().copied().max().unwrap_or(0)
    }

    /// The mean over all directions of all links.
    pub fn mean(&self) -> f64 {
        if self.links == 0 { 0.0 } else { self.hop_bytes() as f64 / self.links as f64 }
    }

    /// Bytes times hops.
    pub fn hop_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }
}
