//! Where this mount is in the network between the nodes, and by which route its whole stripes go.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use layout::topology::Topology;
use layout::{Sender, WriteRoute};
use types::limits::NEAR_GROUPS_MAX;
use types::messages::cluster::BrickInfo;
use types::{Code, NodeId, RAIL};

use crate::state::options::Encode;

/// The network of one version of the map.
#[derive(Debug)]
pub(crate) struct Network {
    topology: Arc<Topology>,
    /// Where this mount is, once that has been looked for.
    sender: OnceLock<Sender>,
}

impl Network {
    /// The same network for bricks that may be elsewhere: where this mount is, is looked for again.
    pub(crate) fn found_anew(&self) -> Network {
        Network { topology: self.topology.clone(), sender: OnceLock::new() }
    }

    /// The network that a text of the map describes; [`None`] if it describes none, or this build cannot read it.
    pub(crate) fn read(text: &str) -> Option<Network> {
        if text.is_empty() {
            return None;
        }
        match text.parse() {
            Ok(topology) => Some(Network { topology: Arc::new(topology), sender: OnceLock::new() }),
            Err(error) => {
                tracing::warn!(%error, "the cluster's topology is ignored: this build cannot read it");
                None
            }
        }
    }

    /// By which route whole stripes of a group go to `members`, its nodes by slot.
    pub(crate) fn write_route(
        &self,
        encode: Encode,
        code: Code,
        members: &[NodeId],
        primary: usize,
        bricks: &[BrickInfo],
        is_here: impl Fn(&str) -> bool,
    ) -> WriteRoute {
        let sender = || *self.sender.get_or_init(|| self.find(bricks, &is_here));
        let topology = &self.topology;
        match encode {
            Encode::Auto => WriteRoute::cheapest(topology, code, sender(), members, primary),
            Encode::Relay => WriteRoute::relay(topology, code, sender(), members)
                .map_or(WriteRoute::Direct, WriteRoute::Relay),
            Encode::Client => WriteRoute::Direct,
            Encode::Primary => WriteRoute::Primary,
        }
    }

    /// This machine is the node one of whose addresses, or of whose bricks' addresses, is its own.
    fn find(&self, bricks: &[BrickInfo], is_here: &impl Fn(&str) -> bool) -> Sender {
        let is_ours = |address: &IpAddr| is_here(&address.to_string());
        let mut nodes = self.topology.nodes().iter();
        let by_node = nodes.find(|(_, entry)| entry.addresses.iter().any(is_ours)).map(|(node, _)| *node);
        by_node.or_else(|| node_of_bricks(bricks, is_here)).map_or(Sender::Outside, Sender::At)
    }
}

/// The nodes of a group's members, by slot, and the slot of its primary.
pub(crate) struct Members {
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) primary: usize,
}

/// The groups to whose members it is the fewest hops from this machine; among those with as few, the ones with the nearest
/// primaries. In ascending order; empty if this machine is not one of the nodes. At most [`NEAR_GROUPS_MAX`].
pub(crate) fn nearest_groups(
    network: Option<&Network>,
    groups: impl Iterator<Item = (u32, Members)>,
    bricks: &[BrickInfo],
    is_here: &impl Fn(&str) -> bool,
) -> Vec<u32> {
    let here = match network {
        Some(network) => match *network.sender.get_or_init(|| network.find(bricks, is_here)) {
            Sender::At(node) => Some(node),
            Sender::Outside => None,
        },
        None => node_of_bricks(bricks, is_here),
    };
    let Some(here) = here else { return Vec::new() };
    let hops = |node: NodeId| match network {
        Some(network) => network.topology.hops(here, node),
        None => Some(u32::from(here != node)),
    };
    let mut nearest: (Option<[u32; 2]>, Vec<u32>) = (None, Vec::new());
    for (index, Members { nodes, primary }) in types::cost::walked(groups) {
        let all: Option<u32> = nodes.iter().map(|node| hops(*node)).sum();
        let Some(cost) = all.zip(nodes.get(primary).and_then(|node| hops(*node))).map(|(a, b)| [a, b]) else {
            continue;
        };
        if nearest.0.is_none_or(|least| cost < least) {
            nearest = (Some(cost), Vec::new());
        }
        if nearest.0 == Some(cost) && nearest.1.len() < NEAR_GROUPS_MAX {
            nearest.1.push(index);
        }
    }
    nearest.1
}

/// The node of a brick that listens at an address of this machine.
fn node_of_bricks(bricks: &[BrickInfo], is_here: &impl Fn(&str) -> bool) -> Option<NodeId> {
    let is_here = |brick: &&BrickInfo| brick.address.split(RAIL).any(|rail| is_here(&host_of(rail)));
    bricks.iter().find(is_here).map(|brick| brick.node)
}

/// The host of an address `host:port`, without the brackets of IPv6.
fn host_of(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().to_string(),
        Err(_) => address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_at_the_node_whose_address_is_its_own() {
        let network = Network::read("mesh\nnode 1 10.0.0.1 10.0.1.1\nnode 2\n").expect("sound");
        let brick = |id, node, address: &str| BrickInfo {
            id: types::BrickId(id),
            node: NodeId(node),
            address: address.to_owned(),
            capacity: 0,
            free: 0,
            state: types::messages::cluster::BrickState::Up,
            class: types::messages::cluster::BrickClass::Ssd,
        };
        let bricks = [brick(1, 1, "10.0.0.1:7401"), brick(2, 2, "[fd00::2]:7402"), brick(3, 2, "two:7403")];
        let at = |host: &str| network.find(&bricks, &|asked: &str| asked == host);
        assert_eq!(at("10.0.1.1"), Sender::At(NodeId(1)));
        assert_eq!(at("fd00::2"), Sender::At(NodeId(2)));
        assert_eq!(at("two"), Sender::At(NodeId(2)));
        assert_eq!(at("10.0.0.3"), Sender::Outside);
        assert!(Network::read("").is_none() && Network::read("ring").is_none());
    }

    #[test]
    fn the_nearest_groups_are_those_with_the_fewest_hops_to_all_members() {
        let brick = |id: u32| BrickInfo {
            id: types::BrickId(id),
            node: NodeId(id),
            address: format!("n{id}:7401"),
            capacity: 0,
            free: 0,
            state: types::messages::cluster::BrickState::Up,
            class: types::messages::cluster::BrickClass::Ssd,
        };
        let bricks: Vec<BrickInfo> = (1..=6).map(brick).collect();
        // A ring of six. Each group has three members; the last is its primary.
        let text = "torus 6\nnode 1 at 0\nnode 2 at 1\nnode 3 at 2\nnode 4 at 3\nnode 5 at 4\nnode 6 at 5\n";
        let ring = Network::read(text).expect("sound");
        let tables = [[6, 2, 1], [2, 1, 6], [1, 3, 2], [2, 6, 1], [4, 5, 3]];
        let groups = || {
            let members = |nodes: [u32; 3]| Members { nodes: nodes.map(NodeId).to_vec(), primary: 2 };
            (10..).zip(tables.map(members))
        };
        let near = |network: Option<&Network>, host: &str| {
            nearest_groups(network, groups(), &bricks, &|asked: &str| asked == host)
        };
        assert_eq!(near(Some(&ring), "n1"), [10, 13]);
        assert_eq!(near(Some(&ring.found_anew()), "n6"), [11]);
        assert_eq!(near(None, "n1"), [10, 13]);
        assert_eq!(near(None, "n4"), [14]);
        assert_eq!(near(Some(&ring.found_anew()), "client"), [0; 0]);
    }
}
