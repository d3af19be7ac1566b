//! Which nodes hold a stripe: tables of groups that the product's own code makes.

use layout::topology::Topology;
use layout::{Placement, PlacementError, Primaries, Scatter};
use layout::{build_groups, build_groups_near, groups_for};
use types::messages::cluster::FailureDomain;
use types::{BrickId, Code, NodeId};

/// How the members of groups are chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PlacementName {
    /// Anywhere: [`build_groups`].
    Random,
    /// Around the primary: [`build_groups_near`].
    Near,
    /// Around the primary, and all in different rows.
    NearRows,
}

impl PlacementName {
    /// All of them.
    pub const ALL: [PlacementName; 3] = [PlacementName::Random, PlacementName::Near, PlacementName::NearRows];

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            PlacementName::Random => "random",
            PlacementName::Near => "near",
            PlacementName::NearRows => "near, rows apart",
        }
    }
}

/// The nodes of each group by slot. Each node has one brick, with the number of the node.
pub(crate) fn build(
    name: PlacementName,
    topology: &Topology,
    code: Code,
) -> Result<Vec<Vec<u32>>, PlacementError> {
    let bricks: Vec<(BrickId, NodeId)> =
        topology.nodes().keys().map(|&node| (BrickId(node.0), node)).collect();
    let groups = groups_for(code, bricks.len());
    let near = |domain| {
        build_groups_near(&Placement {
            code,
            bricks: &bricks,
            groups,
            topology,
            domain,
            primaries: Primaries::All,
            scatter: Scatter::Bounded,
        })
    };
    let table = match name {
        PlacementName::Random => build_groups(code, &bricks, groups, false),
        PlacementName::Near => near(FailureDomain::Node),
        PlacementName::NearRows => near(FailureDomain::Row),
    }?;
    Ok(table.into_iter().map(|group| group.into_iter().map(|brick| brick.0).collect()).collect())
}
