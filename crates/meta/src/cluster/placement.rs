//! Which bricks the groups of a volume are made of.

use layout::{Placement, PlacementError, Primaries, Scatter, build_groups, build_groups_near, groups_for};
use types::limits::GROUPS_MAX;
use types::messages::cluster::{
    BrickState, FailureDomain, GroupConfig, PlacementSpec, SlotConfig, SlotState, TierSpec, VolumeInfo,
};
use types::{BrickId, Code, Epoch, NodeId, Refusal};

use super::map::Cluster;

/// What a volume asks of the places of its groups.
#[derive(Clone, Copy)]
pub(super) struct PlacementRules {
    /// Each brick is its own failure domain, even on the same node.
    pub(super) same_node: bool,
    /// How the topology decides; [`None`] to place without it.
    pub(super) spec: Option<PlacementSpec>,
}

impl Cluster {
    /// A table of `groups` groups for a tier; 0 chooses their number.
    pub(super) fn place(
        &self,
        tier: &TierSpec,
        groups: u32,
        rules: PlacementRules,
    ) -> Result<Vec<GroupConfig>, Refusal> {
        let up = self.map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
        let fitting = up.filter(|brick| tier.class.is_none_or(|class| class == brick.class));
        let bricks: Vec<(BrickId, NodeId)> = fitting.map(|brick| (brick.id, brick.node)).collect();
        let code = tier.geometry.code();
        let groups = match groups {
            0 => groups_for(code, bricks.len()),
            groups if groups <= GROUPS_MAX => groups,
            _ => return Err(Refusal::Invalid),
        };
        let table = self.table(code, &bricks, groups, rules)?.map_err(|error| {
            tracing::info!(%error, "a volume or tier cannot be placed");
            match error {
                PlacementError::TooFewDomains { .. } | PlacementError::TooFewOfDomain { .. } => {
                    Refusal::TooFewDomains
                }
                _ => Refusal::Invalid,
            }
        })?;
        let live = |brick| SlotConfig { brick, state: SlotState::Live };
        let group = |bricks: Vec<BrickId>| {
            assert_eq!(bricks.len(), code.slots(), "a unit of every stripe would have no place");
            assert!(
                (1..bricks.len()).all(|at| !bricks[..at].contains(&bricks[at])),
                "two units of a stripe would be lost together with one brick"
            );
            GroupConfig { epoch: Epoch(1), slots: bricks.into_iter().map(live).collect() }
        };
        Ok(table.into_iter().map(group).collect())
    }

    /// The bricks of each group, by slot.
    fn table(
        &self,
        code: Code,
        bricks: &[(BrickId, NodeId)],
        groups: u32,
        rules: PlacementRules,
    ) -> Result<Result<Vec<Vec<BrickId>>, PlacementError>, Refusal> {
        let Some(spec) = rules.spec else { return Ok(build_groups(code, bricks, groups, rules.same_node)) };
        let topology = self.topology.as_ref().ok_or(Refusal::Invalid)?;
        let primaries = if spec.front_primaries { Primaries::Front } else { Primaries::All };
        let scatter = if spec.wide { Scatter::Wide } else { Scatter::Bounded };
        let domain = spec.domain;
        Ok(build_groups_near(&Placement { code, bricks, groups, topology, domain, primaries, scatter }))
    }

    /// Whether a brick of a group and a node share a failure domain that is larger than a node, or whether that cannot be
    /// told because the node has no place in the topology.
    pub(crate) fn share_domain(&self, volume: &VolumeInfo, brick: BrickId, node: NodeId) -> bool {
        let Some(spec) = volume.placement.filter(|spec| spec.domain > FailureDomain::Node) else {
            return false;
        };
        let Some(brick) = self.map.brick(brick) else { return false };
        let domain = |node| self.topology.as_ref()?.domain(node, spec.domain).ok()?;
        let (theirs, ours) = (domain(brick.node), domain(node));
        ours.is_none() || ours == theirs
    }
}
