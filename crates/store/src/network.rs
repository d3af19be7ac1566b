//! The network between the nodes, as a map has it.

use std::cell::RefCell;
use std::rc::Rc;

use layout::topology::Topology;
use types::messages::cluster::ClusterMap;

/// The last topology that was read, with its text: a text is read once.
#[derive(Default)]
pub(crate) struct Network {
    read: RefCell<(String, Option<Rc<Topology>>)>,
}

impl Network {
    /// The topology of a map; [`None`] if it has none, or this build cannot read it.
    pub(crate) fn of(&self, map: &ClusterMap) -> Option<Rc<Topology>> {
        let mut read = self.read.borrow_mut();
        if read.0 != map.topology {
            let topology = match map.topology.parse() {
                Ok(topology) => Some(Rc::new(topology)),
                Err(_) if map.topology.is_empty() => None,
                Err(error) => {
                    tracing::warn!(%error, "the cluster's topology is ignored: this build cannot read it");
                    None
                }
            };
            *read = (map.topology.clone(), topology);
        }
        read.1.clone()
    }
}
