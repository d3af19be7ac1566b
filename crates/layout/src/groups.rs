//! The table of groups: which bricks hold the units of a stripe together.
//!
//! Made once, when a volume is made, and then only changed slot by slot. Three properties, in this order:
//!
//! 1. **Safe.** The members of a group are in different failure domains: nodes, or bricks if the user says so.
//! 2. **Fair.** Every brick is in equally many groups, and equally often in each slot: parity is written more than
//!    data, the primary works most, data slot 0 holds every small file. Where domains have different numbers of
//!    bricks, a brick gets less when its domain is already in every group.
//! 3. **Spread.** A brick meets all other bricks about equally often, so that the rebuild of one is the work of all.
//!
//! The same bricks give the same table, in whatever order they are named.

mod members;
mod roles;

use types::limits::{GROUPS_MAX, K_MAX};
use types::{BrickId, Code, NodeId};

/// Slots that a brick has in the table of [`groups_for`] groups, at least: over so many peers its rebuild spreads.
const BRICK_SLOTS: usize = 40;

/// What fails at once: no two units of a stripe share one.
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

/// Why there is no table of groups.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Fewer failure domains than the code has units.
    #[error("{}", describe(*code, *domains, *bricks, *same_node))]
    TooFewDomains {
        /// The code.
        code: Code,
        /// Failure domains that there are.
        domains: usize,
        /// Bricks that there are.
        bricks: usize,
        /// Bricks of one node already count as domains of their own.
        same_node: bool,
    },
    /// A brick is named twice.
    #[error("brick {0} is named twice")]
    BrickTwice(BrickId),
    /// No group, or more than a volume may have.
    #[error("a volume has 1 to {GROUPS_MAX} groups, not {0}")]
    GroupsOutOfRange(u32),
}

fn describe(code: Code, domains: usize, bricks: usize, same_node: bool) -> String {
    let needed = code.slots();
    let plural = if needed == 1 { "" } else { "s" };
    let there = if domains == 1 { "is" } else { "are" };
    let mut text = format!("{code} needs {needed} failure domain{plural}, there {there} {domains}");
    if !same_node && bricks >= needed {
        text += " (use --same-node to count bricks)";
    }
    let fitting: Vec<String> = (0..=code.m())
        .rev()
        .filter(|&m| m > 0 || code.m() == 0 || domains == 1)
        .filter_map(|m| Some((domains.checked_sub(m).filter(|&k| k > 0)?.min(K_MAX.into()), m)))
        .map(|(k, m)| format!("{k}+{m}"))
        .collect();
    if !fitting.is_empty() {
        text += &format!(": {} would fit", fitting.join(" or "));
    }
    text
}

/// How many groups fit a volume of `code` on so many bricks: a multiple of their number, which makes the shares of
/// all bricks exactly equal if all domains have equally many.
pub fn groups_for(code: Code, bricks: usize) -> u32 {
    let most = (GROUPS_MAX as usize / bricks.max(1)).max(1);
    let groups = bricks.max(1) * BRICK_SLOTS.div_ceil(code.slots()).min(most);
    u32::try_from(groups).unwrap_or(GROUPS_MAX).min(GROUPS_MAX)
}

/// Makes a table of `groups` groups of `code` over `bricks`: for each its K+M bricks, data slots first.
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
