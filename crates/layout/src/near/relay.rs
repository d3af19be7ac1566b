//! The tree along which a stripe goes from its sender to its members.
//!
//! Any K units of a stripe give all others. So to a part of the tree with `n` members go min(n, K) units, and what is
//! missing is encoded there; fewer cannot be enough (the bound of network coding: Ahlswede, Cai, Li and Yeung 2000). With
//! one data unit, which is copies, one unit goes over each edge of the tree. With many data units a relay saves only what
//! the parity would cost on the way to the first K or more members.

use types::{Code, NodeId};

use crate::topology::{Topology, Vertex};

/// From whom a member gets its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RelayStep {
    /// The slot of the member that sends; [`None`] is the sender of the stripe.
    pub source: Option<usize>,
    /// Units that come: the member's own and those of all members behind it, but at most K. If more than K members are
    /// served, the K data units come, and the member computes the rest.
    pub units: usize,
}

/// A tree of sends: the step of each slot. Every member keeps its unit and forwards the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relay {
    /// By slot.
    pub steps: Vec<RelayStep>,
}

impl Relay {
    /// The tree from `sender` to `members`, the nodes of a group by slot. [`None`] if a node is not part of the topology.
    ///
    /// It has the fewest unit-hops of these, and among equals the fewest sends in a row: neighbours directly, and farther
    /// members through members on a shortest way; all through one member, and on from there in the same manner; the shortest
    /// tree that joins all. The first never has more unit-hops than sending each unit directly.
    pub fn new(topology: &Topology, code: Code, sender: NodeId, members: &[NodeId]) -> Option<Relay> {
        let ways = Ways::new(topology, sender, members)?;
        let mut trees = vec![ways.relayed(None)];
        trees.extend((0..members.len()).map(|slot| ways.relayed(Some(slot))));
        trees.push(ways.shortest_tree());
        let cost = |sources: &Vec<Option<usize>>| {
            let hops = ways.unit_hops(&carried(sources, code), sources);
            (hops, (0..sources.len()).map(|slot| ancestors(sources, slot).count()).max())
        };
        let sources = trees.into_iter().min_by_key(cost)?;
        let units = carried(&sources, code);
        let step = |(source, units)| RelayStep { source, units };
        Some(Relay { steps: sources.into_iter().zip(units).map(step).collect() })
    }

    /// Who sends how many units to whom.
    pub fn sends<'a>(
        &'a self,
        sender: NodeId,
        members: &'a [NodeId],
    ) -> impl Iterator<Item = (NodeId, NodeId, usize)> + 'a {
        let send = move |(step, &member): (&RelayStep, &NodeId)| {
            (step.source.map_or(sender, |slot| members[slot]), member, step.units)
        };
        self.steps.iter().zip(members).map(send)
    }
}

/// The members through which a slot gets its bytes, the nearest first.
fn ancestors(sources: &[Option<usize>], slot: usize) -> impl Iterator<Item = usize> + '_ {
    std::iter::successors(sources[slot], |&source| sources[source])
}

/// The units that come to each slot.
fn carried(sources: &[Option<usize>], code: Code) -> Vec<usize> {
    let mut served = vec![1; sources.len()];
    for slot in 0..sources.len() {
        ancestors(sources, slot).for_each(|source| served[source] += 1);
    }
    served.into_iter().map(|members: usize| members.min(code.k())).collect()
}

/// The sender and the members on the network.
struct Ways<'a> {
    topology: &'a Topology,
    sender: NodeId,
    members: &'a [NodeId],
    /// Hops from the sender to each member.
    from_sender: Vec<u32>,
    /// Hops between the members.
    between: Vec<Vec<u32>>,
}

impl<'a> Ways<'a> {
    fn new(topology: &'a Topology, sender: NodeId, members: &'a [NodeId]) -> Option<Ways<'a>> {
        let row =
            |from: NodeId| members.iter().map(|&to| topology.hops(from, to)).collect::<Option<Vec<u32>>>();
        Some(Ways {
            topology,
            sender,
            members,
            from_sender: row(sender)?,
            between: members.iter().map(|&from| row(from)).collect::<Option<_>>()?,
        })
    }

    fn between(&self, source: Option<usize>, to: usize) -> u32 {
        source.map_or(self.from_sender[to], |source| self.between[source][to])
    }

    /// Each member gets its bytes from the nearest member that lies on a shortest way from `root` to it, if there is one on
    /// the fixed route, so that the same links are crossed. `root` is the sender, or the member that gets all units first.
    fn relayed(&self, root: Option<usize>) -> Vec<Option<usize>> {
        let source = |to: usize| {
            if root == Some(to) {
                return None;
            }
            let on_way = |&by: &usize| {
                let (first, all) = (self.between(root, by), self.between(root, to));
                // Of two members on one node, the first slot serves the other.
                let before = first < all || by < to;
                by != to && first > 0 && before && first + self.between[by][to] == all
            };
            let on_way: Vec<usize> = (0..self.from_sender.len()).filter(on_way).collect();
            self.best_relay(root, to, &on_way).or(root)
        };
        (0..self.from_sender.len()).map(source).collect()
    }

    fn best_relay(&self, root: Option<usize>, to: usize, on_way: &[usize]) -> Option<usize> {
        if on_way.len() < 2 {
            return on_way.first().copied();
        }
        let from = root.map_or(self.sender, |slot| self.members[slot]);
        let route = self.topology.route(from, self.members[to]);
        let beside = |by: usize| !route.contains(&Vertex::Node(self.members[by]));
        on_way.iter().copied().min_by_key(|&by| (beside(by), self.between[by][to]))
    }

    /// The tree that joins the sender and all members with the fewest hops (Prim 1957).
    fn shortest_tree(&self) -> Vec<Option<usize>> {
        let count = self.from_sender.len();
        let mut sources = vec![None; count];
        let mut nearest = self.from_sender.clone();
        let mut joined = vec![false; count];
        for _ in 0..count {
            let left = (0..count).filter(|&slot| !joined[slot]);
            let next = left.min_by_key(|&slot| nearest[slot]).expect("one is left");
            joined[next] = true;
            for slot in (0..count).filter(|&slot| !joined[slot]) {
                if self.between[next][slot] < nearest[slot] {
                    (nearest[slot], sources[slot]) = (self.between[next][slot], Some(next));
                }
            }
        }
        sources
    }

    fn unit_hops(&self, units: &[usize], sources: &[Option<usize>]) -> u64 {
        let hops = |(to, (&source, &units))| u64::from(self.between(source, to)) * units as u64;
        sources.iter().zip(units).enumerate().map(hops).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::topology::Shape;

    /// Every unit goes to its member directly.
    fn direct(members: usize) -> Relay {
        Relay { steps: vec![RelayStep { source: None, units: 1 }; members] }
    }

    fn torus(shape: &str) -> Topology {
        let shape: Shape = shape.parse().expect("a shape");
        let nodes: BTreeSet<NodeId> = (0..shape.places().count() as u32).map(NodeId).collect();
        Topology::numbered(shape, &nodes).expect("fits")
    }

    fn unit_hops(topology: &Topology, relay: &Relay, sender: NodeId, members: &[NodeId]) -> u32 {
        relay
            .sends(sender, members)
            .map(|(from, to, units)| topology.hops(from, to).expect("known") * units as u32)
            .sum()
    }

    fn nodes(ids: &[u32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn copies_go_down_a_line_once() {
        let torus = torus("torus 8x2");
        let members = nodes(&[1, 2, 3]);
        let relay = Relay::new(&torus, "1+2".parse().expect("code"), NodeId(0), &members).expect("known");
        let one = |source| RelayStep { source, units: 1 };
        assert_eq!(relay.steps, [one(None), one(Some(0)), one(Some(1))]);
        assert_eq!(unit_hops(&torus, &relay, NodeId(0), &members), 3);
        assert_eq!(unit_hops(&torus, &direct(3), NodeId(0), &members), 6);
    }

    #[test]
    fn different_units_gain_nothing_from_a_relay() {
        let torus = torus("torus 8x2");
        let members = nodes(&[1, 2, 3]);
        let relay = Relay::new(&torus, "3+0".parse().expect("code"), NodeId(0), &members).expect("known");
        let units: Vec<usize> = relay.steps.iter().map(|step| step.units).collect();
        assert_eq!(units, [3, 2, 1]);
        assert_eq!(unit_hops(&torus, &relay, NodeId(0), &members), 6);
    }

    #[test]
    fn a_far_sender_sends_k_units_and_the_first_member_encodes() {
        let torus = torus("torus 16x2");
        // The members are 5 hops away and more.
        let members = nodes(&[6, 7, 5]);
        let relay = Relay::new(&torus, "2+1".parse().expect("code"), NodeId(0), &members).expect("known");
        assert_eq!(relay.steps[2], RelayStep { source: None, units: 2 });
        // 2 units x 5 hops, then 1 unit each to the two behind it: 10 + 1 + 2. Directly: 5 + 6 + 7.
        assert_eq!(unit_hops(&torus, &relay, NodeId(0), &members), 13);
        assert_eq!(unit_hops(&torus, &direct(3), NodeId(0), &members), 18);
    }

    #[test]
    fn a_node_that_is_not_there_has_no_tree() {
        let torus = torus("torus 2x2");
        assert_eq!(Relay::new(&torus, "1+0".parse().expect("code"), NodeId(9), &nodes(&[1])), None);
    }

    proptest! {
        #[test]
        fn trees_reach_all_and_cost_no_more_than_direct_sends(
            (k, m) in (1u8..9, 0u8..4),
            places in prop::collection::vec(0u32..64, 12),
            sender in 0u32..64,
        ) {
            let torus = torus("torus 4x4x4");
            let code = Code::new(k, m).expect("in range");
            let members = nodes(&places[..code.slots()]);
            let relay = Relay::new(&torus, code, NodeId(sender), &members).expect("known");
            let sources: Vec<Option<usize>> = relay.steps.iter().map(|step| step.source).collect();
            for slot in 0..members.len() {
                prop_assert!(ancestors(&sources, slot).take(members.len()).count() < members.len(), "a ring");
            }
            // What a member gets is enough for itself and for what it sends on.
            for (slot, step) in relay.steps.iter().enumerate() {
                let sent: usize = relay.steps.iter().filter(|s| s.source == Some(slot)).map(|s| s.units).sum();
                prop_assert_eq!(step.units, (sent + 1).min(code.k()));
            }
            let direct = unit_hops(&torus, &direct(members.len()), NodeId(sender), &members);
            let cost = unit_hops(&torus, &relay, NodeId(sender), &members);
            prop_assert!(cost <= direct);
            if code.m() == 0 {
                prop_assert_eq!(cost, direct);
            }
        }
    }
}
