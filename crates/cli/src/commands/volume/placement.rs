//! Where the groups of a volume lie in the cluster's network: what is asked for, and what it costs.

use clap::{Args, ValueEnum};
use layout::topology::Topology;
use layout::{
    Placement, PlacementReport, Primaries, RouteCost, RouteCosts, Scatter, build_groups_near, groups_for,
};
use serde_json::{Value, json};
use types::messages::cluster::{
    BrickState, ClusterMap, FailureDomain, PlacementSpec, Tier, TierSpec, VolumeInfo,
};
use types::{BrickId, NodeId};

use crate::commands::topology::topology_of;
use crate::output::table;
use crate::problem::problem;
use crate::tier_code::TierCode;

/// Where the groups of a new volume lie.
#[derive(Args)]
#[command(next_help_heading = "Placement, where the network is known (shoal topology)")]
pub(super) struct PlacementArgs {
    /// What may fail as a whole: no two units of a stripe share one
    #[arg(long, value_name = "brick|node|rack|row", conflicts_with = "same_node")]
    domain: Option<FailureDomain>,
    /// Which bricks may order the writes of a group; front: those on nodes that clients reach without passing another
    #[arg(long, value_name = "WHICH")]
    primaries: Option<Which>,
    /// bounded: a brick shares groups with few others, so few sets of nodes lose data together; wide: with many, so more of
    /// them help to rebuild it
    #[arg(long, value_name = "HOW")]
    scatter: Option<How>,
    /// Places as if nothing were known about the network
    #[arg(long, conflicts_with_all = ["primaries", "scatter"])]
    ignore_topology: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    All,
    Front,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    Bounded,
    Wide,
}

impl PlacementArgs {
    /// Whether each brick is a failure domain of its own.
    pub(super) fn by_brick(&self, same_node: bool) -> bool {
        same_node || self.domain == Some(FailureDomain::Brick)
    }

    /// What is asked of the topology; [`None`] to place without it.
    pub(super) fn spec(&self, same_node: bool, map: &ClusterMap) -> anyhow::Result<Option<PlacementSpec>> {
        let of_network = matches!(self.domain, Some(FailureDomain::Rack | FailureDomain::Row));
        if map.topology.is_empty() || self.ignore_topology {
            let word = match self.domain {
                Some(domain) if of_network => format!("--domain {domain}"),
                _ if self.primaries.is_some() => "--primaries".to_owned(),
                _ if self.scatter.is_some() => "--scatter".to_owned(),
                _ => return Ok(None),
            };
            let what = format!("{word} needs the network between the nodes, of which nothing is known");
            return Err(match self.ignore_topology {
                true => problem(format!("{word} and --ignore-topology do not go together"), "one of them"),
                false => problem(what, "`shoal topology set` first"),
            });
        }
        let domain =
            if same_node { FailureDomain::Brick } else { self.domain.unwrap_or(FailureDomain::Node) };
        let front_primaries = self.primaries == Some(Which::Front);
        Ok(Some(PlacementSpec { domain, front_primaries, wide: self.scatter == Some(How::Wide) }))
    }
}

/// Why a volume could not be placed by the topology, as far as the map shows it.
pub(crate) fn why_not(
    spec: Option<PlacementSpec>,
    tiers: &[TierSpec],
    map: &ClusterMap,
) -> Option<anyhow::Error> {
    let spec = spec?;
    let topology = topology_of(map).ok()?;
    tiers.iter().find_map(|tier| {
        let up = map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
        let fitting = up.filter(|brick| tier.class.is_none_or(|class| class == brick.class));
        let bricks: Vec<(BrickId, NodeId)> = fitting.map(|brick| (brick.id, brick.node)).collect();
        let code = tier.geometry.code();
        let placement = Placement {
            code,
            bricks: &bricks,
            groups: groups_for(code, bricks.len()),
            topology: &topology,
            domain: spec.domain,
            primaries: if spec.front_primaries { Primaries::Front } else { Primaries::All },
            scatter: if spec.wide { Scatter::Wide } else { Scatter::Bounded },
        };
        let error = build_groups_near(&placement).err()?;
        let remedy = "`shoal topology show` draws the network; a volume made with --ignore-topology is placed without it";
        Some(problem(format!("code {} cannot be placed: {error}", tier.geometry.code()), remedy))
    })
}

/// What a tier of a volume costs on the cluster's network; [`None`] where nothing is known about the network, or nodes have no
/// place in it.
fn report(
    map: &ClusterMap,
    volume: &VolumeInfo,
    topology: &Topology,
    tier: &Tier,
) -> Option<PlacementReport> {
    let groups = volume.groups.get(tier.groups.start as usize..tier.groups.end as usize)?;
    let bricks_of = |group: &types::messages::cluster::GroupConfig| -> Vec<BrickId> {
        group.slots.iter().map(|slot| slot.brick).collect()
    };
    let groups: Vec<Vec<BrickId>> = groups.iter().map(bricks_of).collect();
    let bricks: Vec<(BrickId, NodeId)> = map.bricks.iter().map(|brick| (brick.id, brick.node)).collect();
    PlacementReport::new(topology, tier.geometry.code(), &groups, &bricks).ok()
}

/// What the tiers of a volume cost on the cluster's network; nothing where nothing is known about the network.
pub(super) fn reports(map: &ClusterMap, volume: &VolumeInfo) -> Vec<(Tier, PlacementReport)> {
    let Ok(topology) = topology_of(map) else { return Vec::new() };
    if topology.is_default() {
        return Vec::new();
    }
    let of_tier = |tier: Tier| report(map, volume, &topology, &tier).map(|report| (tier, report));
    volume.all_tiers().filter_map(of_tier).collect()
}

/// The reports as text.
pub(super) fn words(reports: &[(Tier, PlacementReport)]) -> String {
    let mut text = String::new();
    for (tier, report) in reports {
        let head = ["a stripe's way", "from", "unit-hops", "units sent", "units on a link: mean", "most"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut add = |from: &str, costs: &RouteCosts| {
            for (way, cost) in ways(costs) {
                let RouteCost { unit_hops, sent, mean_link, worst_link } = cost;
                let mut row = vec![way.to_owned(), from.to_owned()];
                row.extend(
                    [unit_hops, sent, mean_link, worst_link].map(|number| format!("{:.1}", number.abs())),
                );
                rows.push(row);
            }
        };
        add("front nodes", &report.from_entry);
        add("its primary's node", &report.from_primary);
        let code = tier.geometry.code();
        let lost = if code.m() == 0 { "one node".to_owned() } else { format!("{} nodes", code.m() + 1) };
        let about = if report.fatal_sets_exact { "" } else { "at most " };
        text += &format!(
            "\non the network, code {}:\n{}\nmembers are at most {} hops from their primary; a brick shares groups with {:.1} others \
             ({} at most)\n{about}{} sets of {lost} lose data together: {:.2} % of all\n",
            TierCode::of(tier),
            table(&rows),
            report.radius,
            report.peers_mean,
            report.peers_most,
            report.fatal_sets,
            report.loss_probability * 100.0
        );
    }
    text
}

fn ways(costs: &RouteCosts) -> [(&'static str, RouteCost); 3] {
    [("client encodes", costs.client), ("primary encodes", costs.primary), ("members relay", costs.chain)]
}

/// The reports as JSON, by tier; `null` if there are none.
pub(super) fn document(reports: &[(Tier, PlacementReport)]) -> Value {
    let costs = |costs: &RouteCosts| -> Value {
        let way = |(way, cost): (&str, RouteCost)| {
            json!({
                "way": way,
                "unit_hops": cost.unit_hops,
                "units_sent": cost.sent,
                "units_on_link_mean": cost.mean_link,
                "units_on_link_most": cost.worst_link,
            })
        };
        ways(costs).map(way).to_vec().into()
    };
    let tier = |(tier, report): &(Tier, PlacementReport)| {
        json!({
            "tier": tier.number,
            "from_front": costs(&report.from_entry),
            "from_primary": costs(&report.from_primary),
            "radius": report.radius,
            "peers_mean": report.peers_mean,
            "peers_most": report.peers_most,
            "fatal_sets": report.fatal_sets,
            "fatal_sets_exact": report.fatal_sets_exact,
            "loss_probability": report.loss_probability,
        })
    };
    if reports.is_empty() { Value::Null } else { reports.iter().map(tier).collect() }
}
