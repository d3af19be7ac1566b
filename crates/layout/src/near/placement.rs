//! What a placement by hops is asked for, and the table that it gives.

use std::collections::BTreeMap;

use types::limits::GROUPS_MAX;
use types::messages::cluster::FailureDomain;
use types::{BrickId, Code, NodeId};

use super::bricks::Bricks;
use super::exchange::even_out;
use super::search::Search;
use crate::groups::{PlacementError, roles};
use crate::mix;
use crate::topology::Topology;

/// Most bricks of a table. Where no two places are alike the time grows with their number; the metadata service's only thread
/// makes the table, and leases run meanwhile.
const BRICKS_MAX: usize = 512;

/// Which bricks may be primaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Primaries {
    /// All.
    #[default]
    All,
    /// Those on the nodes that clients reach without passing another ([`Topology::front`]).
    Front,
}

/// With how many others a brick shares groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scatter {
    /// With few: a primary has the same one or two sets of members in all of its groups. Few sets of nodes lose data
    /// together (copysets: Cidon and others, USENIX ATC 2013), and the members are the nearest ones.
    #[default]
    Bounded,
    /// With as many as the radius allows, so that more help to rebuild. Hops are counted only among tables that spread as
    /// well: members are as far as the radius allows.
    Wide,
}

/// What a table of groups is made of.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// Data and parity units.
    pub code: Code,
    /// The bricks and their nodes. Their order does not matter.
    pub bricks: &'a [(BrickId, NodeId)],
    /// How many groups. A multiple of the number of primaries gives equal shares.
    pub groups: u32,
    /// The network of the nodes.
    pub topology: &'a Topology,
    /// What may fail as a whole.
    pub domain: FailureDomain,
    /// Which bricks may be primaries.
    pub primaries: Primaries,
    /// With how many others a brick shares groups.
    pub scatter: Scatter,
}

/// Members of a group as brick numbers, before slots are assigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) primary: usize,
    /// Without the primary. Their order has no meaning.
    pub(super) members: Vec<usize>,
}

/// Makes a table of groups whose members lie around their primary: the K+M bricks of each group, data slots first. It has
/// these properties, in this order of priority:
///
/// 1. **Safe.** The members of a group are in different failure domains.
/// 2. **Near.** All members are within a radius of their primary: the smallest one that holds enough domains around each.
/// 3. **Fair.** Every brick that may be a primary is one equally often: the numbers differ by 1 at most. Every brick is in
///    the same number of groups, as far as the radius allows: with one brick in each domain there is no chain of exchanges
///    from a brick to another that is in two groups less or fewer. Where all places of the network are alike, all numbers
///    are equal if the number of groups is a multiple of the number of bricks. A brick has each slot but the primary's
///    equally often. (Very large tables without symmetry may be less fair: the exchange stops after 100 million steps.)
/// 4. **Light.** The sum of the squares of the links' loads is small when all primaries send to their members. This makes
///    hops few and loads even at the same time. [`Scatter::Wide`] puts peers before it.
/// 5. **Spread** as [`Scatter`] says.
///
/// Fairness goes before hops, because the brick that is in most groups is full first. Where places are alike, as on a torus
/// with a brick on each node, the two do not compete.
///
/// # Errors
/// Nodes that are not part of the topology, a failure domain that its shape does not have, too few failure domains, a brick
/// named twice, no brick that may be a primary, a number of groups out of range.
pub fn build_groups_near(placement: &Placement<'_>) -> Result<Vec<Vec<BrickId>>, PlacementError> {
    if !(1..=GROUPS_MAX).contains(&placement.groups) {
        return Err(PlacementError::GroupsOutOfRange(placement.groups));
    }
    if placement.bricks.len() > BRICKS_MAX {
        return Err(PlacementError::TooManyBricks { bricks: placement.bricks.len(), most: BRICKS_MAX });
    }
    let bricks = Bricks::new(placement)?;
    let mut table = choose(placement, &bricks);
    even_out(&mut table, &bricks);
    let (primaries, members) = table.into_iter().map(|group| (group.primary, group.members)).unzip();
    let table = roles::assign_around(primaries, members, placement.code, bricks.ids.len());
    Ok(table.into_iter().map(|group| group.into_iter().map(|brick| bricks.ids[brick]).collect()).collect())
}

/// The groups of the table before the shares of bricks are evened out: round by round, each with one group for each
/// primary.
fn choose(placement: &Placement<'_>, bricks: &Bricks) -> Vec<Group> {
    let primaries: Vec<usize> = (0..bricks.ids.len()).filter(|&brick| bricks.may_lead[brick]).collect();
    let groups = placement.groups as usize;
    let needed = groups.div_ceil(primaries.len());
    let different = match placement.scatter {
        // A second set evens out the load of links if one set alone does not.
        Scatter::Bounded => needed.min(2),
        Scatter::Wide => needed,
    };
    let mut search = Search::new(placement, bricks);
    let rounds: Vec<BTreeMap<usize, Vec<usize>>> = (0..different).map(|_| search.round()).collect();
    let mut table = Vec::with_capacity(groups);
    for round in 0..needed {
        let left = (groups - round * primaries.len()).min(primaries.len());
        // The last round may have too few groups for all primaries: it has those that are evenly distant by number.
        let mut leads: Vec<usize> = (0..left).map(|at| primaries[at * primaries.len() / left]).collect();
        // Consecutive extents go to groups in different places.
        leads.sort_by_key(|&brick| (mix(mix(round as u64) ^ u64::from(bricks.ids[brick].0)), brick));
        let members = &rounds[round % different];
        table.extend(leads.into_iter().map(|primary| Group { primary, members: members[&primary].clone() }));
    }
    table
}
