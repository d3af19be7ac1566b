//! By which route the units of a whole stripe go to their members: the one that costs least.

use types::{Code, NodeId};

use super::relay::Relay;
use crate::topology::{NodeTier, Topology};

/// Another route than the direct one must save this part of the unit-hops, in percent: it has more sends in a row, copies on
/// the way, and loads links less evenly ([the model](../../../../docs/torus-model.md)).
const WORTH_PERCENT: usize = 20;

/// Where the sender of a stripe is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// On a node of the network.
    At(NodeId),
    /// Outside, on the switch of the nodes in front ([`Topology::front`]).
    Outside,
}

/// A route of the units of a whole stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteRoute {
    /// The client encodes and sends each unit to its brick.
    Direct,
    /// The units go along a tree; members send on those of others.
    Relay(Relay),
    /// The client sends the data units to the primary, which encodes and sends each unit to its brick.
    Primary,
}

impl WriteRoute {
    /// The route with the fewest unit-hops from `sender` to `members`, the nodes of a group by slot, of which `primary` is the
    /// primary's slot. The direct route unless another one is clearly better.
    ///
    /// From outside, a hop to the node in front is counted for each unit, too. If nodes are said to be in front of a network without
    /// switches, loads are compared and not unit-hops, with one such client at each of them: its one cable is full long before
    /// the several ones of the nodes, and a primary gets K units over it where the client would send K+M.
    pub fn cheapest(
        topology: &Topology,
        code: Code,
        sender: Sender,
        members: &[NodeId],
        primary: usize,
    ) -> WriteRoute {
        WriteRoute::weigh(topology, code, sender, members, primary).unwrap_or(WriteRoute::Direct)
    }

    /// The tree, whether or not it is the cheapest route; [`None`] if a node is not part of the topology.
    pub fn relay(topology: &Topology, code: Code, sender: Sender, members: &[NodeId]) -> Option<Relay> {
        let (node, _) = entry(topology, sender, members)?;
        Relay::new(topology, code, node, members)
    }

    fn weigh(
        topology: &Topology,
        code: Code,
        sender: Sender,
        members: &[NodeId],
        primary: usize,
    ) -> Option<WriteRoute> {
        let (node, outside) = entry(topology, sender, members)?;
        let hops = |from, to| topology.hops(from, to).map(|hops| hops as usize);
        let to_all = |from| members.iter().map(|&to| hops(from, to)).sum::<Option<usize>>();
        let first = *members.get(primary)?;
        let by_client = to_all(node)? + outside * members.len();
        // Data units go to the primary, which keeps its own and sends the others.
        let by_primary = code.k() * (hops(node, first)? + outside) + to_all(first)?;
        let relay = Relay::new(topology, code, node, members)?;
        let first_units: usize =
            relay.steps.iter().filter(|step| step.source.is_none()).map(|step| step.units).sum();
        let cost = |(from, to, units): (NodeId, NodeId, usize)| Some(units * hops(from, to)?);
        let by_relay = relay.sends(node, members).map(cost).sum::<Option<usize>>()? + outside * first_units;
        let load = Load::from_outside(topology, sender);
        // Units that leave the sender, and unit-hops.
        let [by_client, by_primary, by_relay] =
            [(members.len(), by_client), (code.k(), by_primary), (first_units, by_relay)]
                .map(|(units, hops)| load.as_ref().map_or(hops, |load| load.of(units, hops - units)));
        let is_worth = |cost: usize| cost * 100 <= by_client * (100 - WORTH_PERCENT);
        Some(if by_relay <= by_primary && is_worth(by_relay) {
            WriteRoute::Relay(relay)
        } else if by_primary < by_relay && is_worth(by_primary) {
            WriteRoute::Primary
        } else {
            WriteRoute::Direct
        })
    }
}

/// The load of the most loaded cable, with one client outside for each node in front: its own cable, or the mean of those between the
/// nodes.
struct Load {
    /// Nodes in front.
    clients: usize,
    /// Directions of cables between nodes.
    directions: usize,
}

impl Load {
    /// [`None`] if unit-hops should be compared.
    fn from_outside(topology: &Topology, sender: Sender) -> Option<Load> {
        let clients = topology.nodes().values().filter(|node| node.tier == NodeTier::Front).count();
        let applies = sender == Sender::Outside && topology.shape().is_switchless() && clients > 0;
        applies.then(|| Load { clients, directions: 2 * topology.links().len() })
    }

    /// For a stripe of which `own` units cross the client's cable, and that has so many unit-hops between the nodes. Comparable with
    /// others of the same network.
    fn of(&self, own: usize, hops: usize) -> usize {
        (own * self.directions).max(hops * self.clients)
    }
}

/// The node at which a stripe enters the network, and the hops before it.
fn entry(topology: &Topology, sender: Sender, members: &[NodeId]) -> Option<(NodeId, usize)> {
    match sender {
        Sender::At(node) => Some((node, 0)),
        Sender::Outside => {
            let far = |node: &NodeId| {
                members.iter().map(|&to| topology.hops(*node, to)).sum::<Option<u32>>().unwrap_or(u32::MAX)
            };
            Some((topology.front().into_iter().min_by_key(far)?, 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(text: &str) -> Topology {
        text.parse().expect("sound")
    }

    fn code(text: &str) -> Code {
        text.parse().expect("a code")
    }

    /// A chain of six nodes.
    fn chain() -> Topology {
        let nodes: String = (1..=6).map(|node| format!("node {node}\n")).collect();
        let links: String = (1..6).map(|node| format!("link {node} {}\n", node + 1)).collect();
        topology(&format!("links\n{nodes}{links}"))
    }

    fn nodes(ids: &[u32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn on_one_switch_units_go_directly() {
        let flat = topology("flat\nnode 1\nnode 2\nnode 3\nnode 4");
        let route = |sender| WriteRoute::cheapest(&flat, code("2+1"), sender, &nodes(&[2, 3, 4]), 2);
        assert_eq!(route(Sender::At(NodeId(1))), WriteRoute::Direct);
        assert_eq!(route(Sender::Outside), WriteRoute::Direct);
        assert_eq!(
            WriteRoute::cheapest(&flat, code("2+1"), Sender::At(NodeId(9)), &nodes(&[2, 3, 4]), 2),
            WriteRoute::Direct
        );
    }

    #[test]
    fn copies_go_along_a_chain_once() {
        // Three copies, three, four and five hops away: 12 unit-hops directly, 5 if each member sends on what it has.
        let route = WriteRoute::cheapest(&chain(), code("1+2"), Sender::At(NodeId(1)), &nodes(&[4, 5, 6]), 1);
        let WriteRoute::Relay(relay) = route else { panic!("{route:?}") };
        let sources: Vec<Option<usize>> = relay.steps.iter().map(|step| step.source).collect();
        assert_eq!(sources, [None, Some(0), Some(1)]);
        assert!(relay.steps.iter().all(|step| step.units == 1));
    }

    #[test]
    fn a_client_in_front_spares_its_own_cable() {
        let nodes = |front: u32| -> String {
            let tier = |at: u32| if at < front { " front" } else { "" };
            (0..16).map(|at| format!("node {} at {},{}{}\n", at + 1, at % 4, at / 4, tier(at))).collect()
        };
        let torus = |front| topology(&format!("torus 4x4\n{}", nodes(front)));
        let members = nodes_of(10);
        let route = |front, code_of: &str, sender| {
            WriteRoute::cheapest(&torus(front), code(code_of), sender, &members[..code(code_of).slots()], 0)
        };
        // 8 units on its cable and not 10; between the nodes there is room.
        assert_eq!(route(1, "8+2", Sender::Outside), WriteRoute::Primary);
        assert_eq!(route(1, "4+2", Sender::Outside), WriteRoute::Primary);
        // An eighth is too little.
        assert_eq!(route(1, "8+1", Sender::Outside), WriteRoute::Direct);
        // A node of the torus has four cables.
        assert_eq!(route(1, "8+2", Sender::At(NodeId(1))), WriteRoute::Direct);
        // Nobody has said where those outside come in.
        assert_eq!(route(0, "8+2", Sender::Outside), WriteRoute::Direct);
    }

    #[test]
    fn many_clients_in_front_of_a_long_ring_spare_the_ring() {
        let nodes: String = (0..12).map(|at| format!("node {} at {at} front\n", at + 1)).collect();
        let ring = topology(&format!("torus 12\n{nodes}"));
        let route = WriteRoute::cheapest(&ring, code("4+2"), Sender::Outside, &nodes_of(6), 0);
        assert_ne!(route, WriteRoute::Primary);
    }

    fn nodes_of(count: u32) -> Vec<NodeId> {
        (1..=count).map(NodeId).collect()
    }

    #[test]
    fn what_is_far_is_encoded_there() {
        // 2+2 on nodes 3 to 6: directly 2 + 3 + 4 + 5 hops, and 2 x 2 + 2 + 2 + 1 along the chain.
        let far = nodes(&[3, 4, 5, 6]);
        let route = WriteRoute::cheapest(&chain(), code("2+2"), Sender::At(NodeId(1)), &far, 2);
        assert!(matches!(route, WriteRoute::Relay(_)), "{route:?}");
        let near = nodes(&[1, 2, 3, 4]);
        let route = WriteRoute::cheapest(&chain(), code("2+2"), Sender::At(NodeId(2)), &near, 2);
        assert_eq!(route, WriteRoute::Direct, "little can be saved");
    }
}
