//! The table of groups: which bricks together hold the units of a stripe.
//!
//! The table is made with its volume. After that, only single slots are changed. It has three properties, in this
//! order of priority:
//!
//! 1. **Safe.** The members of a group are in different failure domains: nodes, or bricks if the user says so.
//! 2. **Fair.** Every brick is in the same number of groups, and has each slot equally often. This matters because
//!    parity is written more than data, the primary works most, and data slot 0 holds every small file. If domains
//!    have different numbers of bricks, a brick is in fewer groups when its domain is already in every group.
//! 3. **Spread.** Each pair of bricks shares about the same number of groups, so all bricks share the work of
//!    rebuilding one.
//!
//! The same bricks give the same table; the order in which they are named does not matter.

mod members;
pub(crate) mod roles;

use types::limits::{GROUPS_MAX, K_MAX};
use types::messages::cluster::FailureDomain;
use types::{BrickId, Code, NodeId};

use crate::topology::TopologyError;

/// Least slots of a brick in the table of [`groups_for`] groups. More slots spread its rebuild over more peers.
const BRICK_SLOTS: usize = 40;

/// A failure domain: what may fail as a whole. No two units of a stripe share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Domain {
    /// A machine with all its bricks.
    Node(NodeId),
    /// One brick.
    Brick(BrickId),
}

impl Domain {
    fn of(brick: BrickId, node: NodeId, same_node: bool) -> Domain {
        if same_node { Domain::Brick(brick) } else { Domain::Node(node) }
    }
}

/// Why a table of groups cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Fewer failure domains than the code has units.
    #[error("{}", describe(*code, *domains, *bricks, *same_node))]
    TooFewDomains {
        /// The code.
        code: Code,
        /// Failure domains available.
        domains: usize,
        /// Bricks available.
        bricks: usize,
        /// Whether each brick already counts as a domain.
        same_node: bool,
    },
    /// Fewer racks, rows or nodes than the code has units.
    #[error("{}", describe_domain(*code, *domain, *domains, *bricks))]
    TooFewOfDomain {
        /// The code.
        code: Code,
        /// What counts as a failure domain.
        domain: FailureDomain,
        /// Failure domains available.
        domains: usize,
        /// Bricks available.
        bricks: usize,
    },
    /// Nodes that have bricks, but are not part of the network.
    #[error("the topology does not have {}: add them, or use bricks on other nodes", listed(.0))]
    NotInTopology(Vec<NodeId>),
    /// Only bricks on nodes in front may be primaries, and there are none. With the nodes in front.
    #[error("no brick is on a node in front ({}): add one, or let all bricks be primaries", listed(.0))]
    NoFrontBrick(Vec<NodeId>),
    /// The failure domain is none of this network.
    #[error(transparent)]
    Domain(#[from] TopologyError),
    /// More bricks than can be placed by hops in a short time.
    #[error("{bricks} bricks: at most {most} are placed by the topology at once")]
    TooManyBricks {
        /// Bricks available.
        bricks: usize,
        /// The limit.
        most: usize,
    },
    /// A brick is named twice.
    #[error("brick {0} is named twice")]
    BrickTwice(BrickId),
    /// No group, or more than a volume may have.
    #[error("a volume has 1 to {GROUPS_MAX} groups, not {0}")]
    GroupsOutOfRange(u32),
}

fn describe(code: Code, domains: usize, bricks: usize, same_node: bool) -> String {
    let hint = if !same_node && bricks >= code.slots() { " (use --same-node to count bricks)" } else { "" };
    format!("{}{hint}{}", too_few(code, "failure domain", domains), fitting(code, domains))
}

fn describe_domain(code: Code, domain: FailureDomain, domains: usize, bricks: usize) -> String {
    let hint = match domain {
        FailureDomain::Node if bricks >= code.slots() => " (use --same-node to count bricks)",
        FailureDomain::Brick | FailureDomain::Node => "",
        FailureDomain::Rack | FailureDomain::Row => " (use `node` to count nodes)",
    };
    format!("{}{hint}{}", too_few(code, domain.word(), domains), fitting(code, domains))
}

fn too_few(code: Code, domain: &str, domains: usize) -> String {
    let needed = code.slots();
    let plural = if needed == 1 { "" } else { "s" };
    let there = if domains == 1 { "is" } else { "are" };
    format!("{code} needs {needed} {domain}{plural}, there {there} {domains}")
}

/// The codes that would fit, as the end of a sentence.
fn fitting(code: Code, domains: usize) -> String {
    let fitting: Vec<String> = (0..=code.m())
        .rev()
        .filter(|&m| m > 0 || code.m() == 0 || domains == 1)
        .filter_map(|m| Some((domains.checked_sub(m).filter(|&k| k > 0)?.min(K_MAX.into()), m)))
        .map(|(k, m)| format!("{k}+{m}"))
        .collect();
    if fitting.is_empty() { String::new() } else { format!(": {} would fit", fitting.join(" or ")) }
}

fn listed(nodes: &[NodeId]) -> String {
    let words: Vec<String> = nodes.iter().map(|node| format!("node {node}")).collect();
    words.join(", ")
}

/// A suitable number of groups for a volume of `code` on `bricks` bricks. It is a multiple of the number of bricks,
/// so the shares of all bricks are exactly equal if all domains have the same number of bricks.
pub fn groups_for(code: Code, bricks: usize) -> u32 {
    let most = (GROUPS_MAX as usize / bricks.max(1)).max(1);
    let groups = bricks.max(1) * BRICK_SLOTS.div_ceil(code.slots()).min(most);
    u32::try_from(groups).unwrap_or(GROUPS_MAX).min(GROUPS_MAX)
}

/// Makes a table of `groups` groups of `code` over `bricks`: the K+M bricks of each group, data slots first.
///
/// # Errors
/// If there are too few failure domains, a brick is named twice or the number of groups is out of range.
pub fn build_groups(
    code: Code,
    bricks: &[(BrickId, NodeId)],
    groups: u32,
    same_node: bool,
) -> Result<Vec<Vec<BrickId>>, PlacementError> {
    if !(1..=GROUPS_MAX).contains(&groups) {
        return Err(PlacementError::GroupsOutOfRange(groups));
    }
    let mut bricks: Vec<(Domain, BrickId)> =
        bricks.iter().map(|&(brick, node)| (Domain::of(brick, node, same_node), brick)).collect();
    bricks.sort_unstable_by_key(|&(_, brick)| brick);
    if let Some(pair) = bricks.windows(2).find(|pair| pair[0].1 == pair[1].1) {
        return Err(PlacementError::BrickTwice(pair[0].1));
    }
    bricks.sort_unstable();
    let by_domain: Vec<Vec<BrickId>> = bricks
        .chunk_by(|a, b| a.0 == b.0)
        .map(|domain| domain.iter().map(|&(_, brick)| brick).collect())
        .collect();
    if by_domain.len() < code.slots() {
        let (domains, bricks) = (by_domain.len(), bricks.len());
        return Err(PlacementError::TooFewDomains { code, domains, bricks, same_node });
    }
    let members = members::choose(&by_domain, groups as usize, code.slots());
    let table = roles::assign(members, code, bricks.len());
    Ok(table.into_iter().map(|group| group.into_iter().map(|brick| bricks[brick].1).collect()).collect())
}

#[cfg(test)]
mod tests;
