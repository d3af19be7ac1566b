//! Rebuilding a unit, by route.

use types::{Code, NodeId};

use super::network::{Network, Place};
use super::plan::{Plan, Planner};
use super::reads::{acting_primary, live_slots};

/// By which way a lost unit is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RebuildRoute {
    /// The primary of the group reads K units, computes the lost one, and sends it to the new brick. So does the product where the
    /// network is not known.
    Primary,
    /// A partial sum goes through members of the group to the primary, which adds its own unit, and sends the result to the new brick.
    /// So does the product here ([`layout::repair_path`]).
    Path,
    /// The new brick's node reads K units and computes.
    Star,
    /// A partial sum goes through the K helpers, one after the other, slice by slice, to the new brick (repair pipelining: Li and
    /// others, USENIX ATC 2017).
    Pipeline,
    /// Partial sums are added in pairs, and the sums in pairs again (partial-parallel-repair: Mitra and others, EuroSys 2016),
    /// slice by slice.
    Tree,
}

impl RebuildRoute {
    /// All of them.
    pub const ALL: [RebuildRoute; 5] = [
        RebuildRoute::Primary,
        RebuildRoute::Path,
        RebuildRoute::Star,
        RebuildRoute::Pipeline,
        RebuildRoute::Tree,
    ];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            RebuildRoute::Primary => "primary",
            RebuildRoute::Path => "path",
            RebuildRoute::Star => "star",
            RebuildRoute::Pipeline => "pipeline",
            RebuildRoute::Tree => "tree",
        }
    }
}

/// The rebuild of the unit of slot `lost`. `turn` counts the stripes: where several helpers are as near, they take turns.
/// [`None`] if too few units are left.
pub(crate) fn rebuild(
    network: &Network,
    code: Code,
    route: RebuildRoute,
    group: &[u32],
    lost: usize,
    turn: usize,
) -> Option<Plan> {
    let live = live_slots(network, group);
    let target = group[lost];
    let nodes: Vec<u32> = live.iter().map(|&slot| group[slot]).collect();
    if nodes.len() < code.k() {
        return None;
    }
    let mut planner = Planner::new(network, code, None);
    let result = match route {
        RebuildRoute::Primary | RebuildRoute::Path => {
            let primary = group[acting_primary(code, &live)?];
            let path = match route {
                RebuildRoute::Path => path_to_primary(network, code, group, &live, turn),
                _ => None,
            };
            let result = match path {
                Some(path) => {
                    let came = pipeline(&mut planner, primary, &path);
                    add(&mut planner, primary, &[came])
                }
                None => star(&mut planner, primary, &nearest(network, primary, nodes, code.k(), turn)),
            };
            planner.unit(Place::Node(primary), Place::Node(target), &[result])
        }
        RebuildRoute::Star => star(&mut planner, target, &nearest(network, target, nodes, code.k(), turn)),
        RebuildRoute::Pipeline => {
            pipeline(&mut planner, target, &path(network, target, nodes, code.k(), turn))
        }
        RebuildRoute::Tree => tree(&mut planner, target, &path(network, target, nodes, code.k(), turn)),
    };
    planner.unit(Place::Node(target), Place::Brick(target), &[result]);
    Some(planner.plan)
}

/// The nodes along which the product has a sum come to the primary, the nearest first; [`None`] where it gathers.
fn path_to_primary(
    network: &Network,
    code: Code,
    group: &[u32],
    live: &[usize],
    turn: usize,
) -> Option<Vec<u32>> {
    let primary = acting_primary(code, live)?;
    let others = live.iter().filter(|slot| **slot != primary);
    let members: Vec<(usize, NodeId)> = others.map(|&slot| (slot, NodeId(group[slot]))).collect();
    let path = layout::repair_path(network.topology(), NodeId(group[primary]), &members, code.k() - 1, turn)?;
    Some(path.into_iter().map(|slot| group[slot]).collect())
}

/// Those at the fewest hops; among equals it is each one's turn.
fn nearest(network: &Network, to: u32, mut nodes: Vec<u32>, count: usize, turn: usize) -> Vec<u32> {
    let shift = turn % nodes.len();
    nodes.rotate_left(shift);
    nodes.sort_by_key(|&node| network.links_between(node, to).len());
    nodes.truncate(count);
    nodes
}

/// Helpers in the order from the new brick: the next one is the nearest to the one before it.
fn path(network: &Network, target: u32, mut nodes: Vec<u32>, count: usize, turn: usize) -> Vec<u32> {
    let (mut path, mut at) = (Vec::with_capacity(count), target);
    for _ in 0..count {
        let next = nearest(network, at, nodes.clone(), 1, turn)[0];
        nodes.retain(|&node| node != next);
        path.push(next);
        at = next;
    }
    path
}

/// All helpers send to one node, which computes.
fn star(planner: &mut Planner<'_>, to: u32, helpers: &[u32]) -> usize {
    let came: Vec<usize> =
        helpers.iter().map(|&helper| planner.unit(Place::Brick(helper), Place::Node(to), &[])).collect();
    planner.compute(Place::Node(to), helpers.len(), &came)
}

/// A helper multiplies its unit and adds what has come. Returns the sum.
fn add(planner: &mut Planner<'_>, helper: u32, came: &[usize]) -> usize {
    let own = planner.unit(Place::Brick(helper), Place::Node(helper), &[]);
    let terms: Vec<usize> = came.iter().copied().chain([own]).collect();
    planner.compute(Place::Node(helper), terms.len(), &terms)
}

fn pipeline(planner: &mut Planner<'_>, target: u32, path: &[u32]) -> usize {
    let mut came: Vec<usize> = Vec::new();
    for (at, &helper) in path.iter().enumerate().rev() {
        let sum = add(planner, helper, &came);
        let next = if at == 0 { target } else { path[at - 1] };
        came = vec![planner.unit(Place::Node(helper), Place::Node(next), &[sum])];
    }
    came[0]
}

/// The new brick is number 0, the helpers follow. In round r, counted from 0, each number that is an odd multiple of 2^r sends
/// its sum to the number 2^r below.
fn tree(planner: &mut Planner<'_>, target: u32, path: &[u32]) -> usize {
    let mut came: Vec<Vec<usize>> = vec![Vec::new(); path.len() + 1];
    let mut step = 1;
    while step <= path.len() {
        for number in (step..=path.len()).step_by(2 * step) {
            let helper = path[number - 1];
            let sum = add(planner, helper, &came[number].clone());
            let below = number - step;
            let to = if below == 0 { target } else { path[below - 1] };
            let sent = planner.unit(Place::Node(helper), Place::Node(to), &[sum]);
            came[below].push(sent);
        }
        step *= 2;
    }
    planner.compute(Place::Node(target), came[0].len(), &came[0].clone())
}
