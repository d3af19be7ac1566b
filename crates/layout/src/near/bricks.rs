//! Bricks by number, their failure domains, and the candidates around each primary.

use types::messages::cluster::FailureDomain;
use types::{BrickId, NodeId};

use super::placement::{Placement, Primaries};
use super::symmetry::Symmetry;
use crate::groups::PlacementError;
use crate::mix;
use crate::topology::Topology;

/// Most candidates of a primary. If the radius holds more, those of many domains and the nearest are taken; chance
/// decides between equals. It bounds the time of all that follows.
const CANDIDATES_MAX: usize = 256;

/// The bricks of a placement, numbered by node, then id.
pub(super) struct Bricks {
    pub(super) ids: Vec<BrickId>,
    /// The nodes that have bricks, by id.
    pub(super) nodes: Vec<NodeId>,
    /// The number of each brick's node.
    pub(super) node_of: Vec<usize>,
    /// The first brick of each node.
    pub(super) first: Vec<usize>,
    /// The number of each brick's failure domain.
    pub(super) domain_of: Vec<usize>,
    /// Whether a brick may be a primary.
    pub(super) may_lead: Vec<bool>,
    /// Whether two members of a group may be on one node.
    pub(super) shares_nodes: bool,
    pub(super) symmetry: Symmetry,
    /// Per brick that may be a primary: the bricks that may be members of its groups, the nearest first.
    pub(super) candidates: Vec<Vec<usize>>,
}

impl Bricks {
    pub(super) fn new(placement: &Placement<'_>) -> Result<Bricks, PlacementError> {
        let (ids, nodes, node_of) = numbered(placement)?;
        let first = (0..nodes.len()).map(|node| node_of.partition_point(|&of| of < node)).collect();
        let domain_of = domains(placement, &nodes, &node_of)?;
        let domains = domain_of.iter().max().map_or(0, |last| last + 1);
        if domains < placement.code.slots() {
            let (code, bricks) = (placement.code, ids.len());
            return Err(match placement.domain {
                FailureDomain::Brick => {
                    PlacementError::TooFewDomains { code, domains, bricks, same_node: true }
                }
                domain => PlacementError::TooFewOfDomain { code, domain, domains, bricks },
            });
        }
        let front = placement.topology.front();
        let leads = |node: usize| match placement.primaries {
            Primaries::All => true,
            // A network of which nothing was said has no side.
            Primaries::Front => placement.topology.is_default() || front.binary_search(&nodes[node]).is_ok(),
        };
        let leads: Vec<bool> = (0..nodes.len()).map(leads).collect();
        if !leads.contains(&true) {
            return Err(PlacementError::NoFrontBrick(front));
        }
        let may_lead = node_of.iter().map(|&node| leads[node]).collect();
        let mut counts = vec![0; nodes.len()];
        node_of.iter().for_each(|&node| counts[node] += 1);
        // What a shift must not change.
        let traits: Vec<(usize, bool)> = counts.into_iter().zip(leads).collect();
        let symmetry = Symmetry::new(placement.topology, &nodes, &traits);
        let candidates = vec![Vec::new(); ids.len()];
        let shares_nodes = placement.domain == FailureDomain::Brick;
        let mut bricks =
            Bricks { ids, nodes, node_of, first, domain_of, may_lead, shares_nodes, symmetry, candidates };
        bricks.fill_candidates(placement);
        Ok(bricks)
    }

    /// Where a shift takes a brick.
    pub(super) fn image(&self, shift: usize, brick: usize) -> usize {
        let node = self.node_of[brick];
        self.first[self.symmetry.image(shift, node)] + (brick - self.first[node])
    }

    /// Bricks for which a choice is made. Every brick that may be a primary is an image of one of them.
    pub(super) fn representatives(&self) -> Vec<usize> {
        let first = |&brick: &usize| self.symmetry.is_representative(self.node_of[brick]);
        (0..self.ids.len()).filter(first).filter(|&brick| self.may_lead[brick]).collect()
    }

    /// The shift that takes a brick to the representative of those alike, and that brick.
    pub(super) fn home(&self, brick: usize) -> (usize, usize) {
        let shift = self.symmetry.home(self.node_of[brick]);
        (shift, self.image(shift, brick))
    }

    fn fill_candidates(&mut self, placement: &Placement<'_>) {
        let representatives = self.representatives();
        let hops = |&brick: &usize| {
            let centre = self.nodes[self.node_of[brick]];
            self.nodes.iter().map(|&node| hops(placement.topology, centre, node)).collect()
        };
        let hops: Vec<Vec<u32>> = representatives.iter().map(hops).collect();
        // One radius for all, so that a brick in a corner is a candidate of all those that are its candidates.
        let radius = hops.iter().map(|hops| self.radius(hops, placement.code.slots())).max().unwrap_or(0);
        for (&brick, hops) in representatives.iter().zip(&hops) {
            let around = self.around(brick, hops, radius);
            for shift in 0..self.symmetry.count() {
                let primary = self.image(shift, brick);
                self.candidates[primary] = around.iter().map(|&near| self.image(shift, near)).collect();
            }
        }
    }

    /// The hops within which there are enough domains for all slots, and enough nodes if a domain is only a brick.
    fn radius(&self, hops: &[u32], slots: usize) -> u32 {
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        nodes.sort_by_key(|&node| hops[node]);
        let mut seen = vec![false; self.ids.len()];
        let (mut nodes_left, mut domains_left) = (slots.min(nodes.len()), slots);
        for node in nodes {
            let bricks = self.first[node]..self.first.get(node + 1).copied().unwrap_or(self.ids.len());
            let new = bricks.filter(|&brick| !std::mem::replace(&mut seen[self.domain_of[brick]], true));
            domains_left = domains_left.saturating_sub(new.count());
            nodes_left = nodes_left.saturating_sub(1);
            if domains_left == 0 && nodes_left == 0 {
                return hops[node];
            }
        }
        unreachable!("there are enough domains, and every node can reach every other")
    }

    /// The bricks of other domains than that of `primary` within the radius, the nearest first.
    fn around(&self, primary: usize, hops: &[u32], radius: u32) -> Vec<usize> {
        let other = |&brick: &usize| self.domain_of[brick] != self.domain_of[primary];
        let inside = (0..self.ids.len()).filter(|&brick| hops[self.node_of[brick]] <= radius).filter(other);
        let mut near: Vec<(u32, u64, usize)> = inside
            .map(|brick| {
                let chance = mix(mix(u64::from(self.ids[primary].0)) ^ u64::from(self.ids[brick].0));
                (hops[self.node_of[brick]], chance, brick)
            })
            .collect();
        near.sort_unstable();
        self.bounded(&near)
    }

    /// At most [`CANDIDATES_MAX`]: first one of each domain (of each node if domains are bricks), then a second. Half of
    /// them are the nearest, and half are there by chance, so that no brick is a candidate of few only.
    fn bounded(&self, near: &[(u32, u64, usize)]) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..near.len()).collect();
        if near.len() > CANDIDATES_MAX {
            let of = if self.shares_nodes { &self.node_of } else { &self.domain_of };
            let mut had = vec![0usize; self.ids.len()];
            let mut turn = |&(_, _, brick): &(u32, u64, usize)| {
                had[of[brick]] += 1;
                had[of[brick]]
            };
            let turns: Vec<usize> = near.iter().map(&mut turn).collect();
            kept.sort_by_key(|&at| turns[at]);
            kept[CANDIDATES_MAX / 2..].sort_by_key(|&at| (turns[at], near[at].1));
            kept.truncate(CANDIDATES_MAX);
            kept.sort_unstable();
        }
        kept.into_iter().map(|at| near[at].2).collect()
    }
}

fn hops(topology: &Topology, from: NodeId, to: NodeId) -> u32 {
    topology.hops(from, to).expect("nodes that are not part of the network were refused")
}

/// Bricks by node, then id; the nodes that have some; the number of each brick's node.
type Numbered = (Vec<BrickId>, Vec<NodeId>, Vec<usize>);

fn numbered(placement: &Placement<'_>) -> Result<Numbered, PlacementError> {
    let mut bricks: Vec<(NodeId, BrickId)> =
        placement.bricks.iter().map(|&(brick, node)| (node, brick)).collect();
    bricks.sort_unstable_by_key(|&(_, brick)| brick);
    if let Some(pair) = bricks.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return Err(PlacementError::BrickTwice(pair[0].1));
    }
    bricks.sort_unstable();
    let mut nodes: Vec<NodeId> = bricks.iter().map(|&(node, _)| node).collect();
    nodes.dedup();
    let outside: Vec<NodeId> =
        nodes.iter().copied().filter(|&node| placement.topology.hops(node, node).is_none()).collect();
    if !outside.is_empty() {
        return Err(PlacementError::NotInTopology(outside));
    }
    let node_of = bricks.iter().map(|(node, _)| nodes.partition_point(|before| before < node)).collect();
    Ok((bricks.into_iter().map(|(_, brick)| brick).collect(), nodes, node_of))
}

/// The failure domain of each brick, numbered without gaps.
fn domains(
    placement: &Placement<'_>,
    nodes: &[NodeId],
    node_of: &[usize],
) -> Result<Vec<usize>, PlacementError> {
    if placement.domain == FailureDomain::Brick {
        return Ok((0..node_of.len()).collect());
    }
    let of = |&node| placement.topology.domain(node, placement.domain);
    let names = nodes.iter().map(of).collect::<Result<Vec<Option<u64>>, _>>()?;
    let mut known: Vec<Option<u64>> = names.clone();
    known.sort_unstable();
    known.dedup();
    Ok(node_of.iter().map(|&node| known.partition_point(|name| *name < names[node])).collect())
}
