//! What tables cost is compared with numbers worked out by hand, and with what is written in the decision.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::cluster::FailureDomain;
use types::{BrickId, Code, NodeId};

use super::*;
use crate::topology::{LinkLoad, NodeTier, Shape, Topology};
use crate::{build_groups, groups_for};

fn code(text: &str) -> Code {
    text.parse().expect("code")
}

fn torus(shape: &str) -> Topology {
    let shape: Shape = shape.parse().expect("a shape");
    let nodes: BTreeSet<NodeId> = (0..shape.places().count() as u32).map(NodeId).collect();
    Topology::numbered(shape, &nodes).expect("fits")
}

/// One brick on each node, with its number.
fn one_each(topology: &Topology) -> Vec<(BrickId, NodeId)> {
    topology.nodes().keys().map(|&node| (BrickId(node.0), node)).collect()
}

/// A torus with one node in front.
fn with_door(shape: &str, door: u32) -> Topology {
    let torus = torus(shape);
    let mut nodes = torus.nodes().clone();
    nodes.get_mut(&NodeId(door)).expect("is there").tier = NodeTier::Front;
    Topology::new(torus.shape().clone(), nodes, &[]).expect("was sound")
}

#[test]
fn one_group_costs_what_the_formulas_say() {
    // A ring of 16: the client's node is 0, the primary's 4, and 2+1 has its data on 3 and 5.
    let ring = with_door("torus 16", 0);
    let table = [[3, 5, 4].map(BrickId).to_vec()];
    let report = PlacementReport::new(&ring, code("2+1"), &table, &one_each(&ring)).expect("known");
    let cost =
        |unit_hops, sent, worst_link| RouteCost { unit_hops, sent, mean_link: unit_hops / 32.0, worst_link };
    // From the client: 3 + 5 + 4, and all three units cross its link.
    assert_eq!(report.from_entry.client, cost(12.0, 3.0, 3.0));
    // K units over 4 hops, then one to each side.
    assert_eq!(report.from_entry.primary, cost(10.0, 2.0, 2.0));
    // K units over 3 hops to the first member, which computes the parity: two go on to the second, one to the third.
    assert_eq!(report.from_entry.chain, cost(9.0, 2.0, 2.0));
    assert_eq!(report.from_primary.client, cost(2.0, 2.0, 1.0));
    assert_eq!(report.from_primary.primary, cost(2.0, 0.0, 1.0));
    assert_eq!(report.from_primary.chain, cost(2.0, 2.0, 1.0));
    assert_eq!((report.radius, report.peers_most, report.peers_mean), (1, 2, 6.0 / 16.0));
    // Two nodes of the three: 3 pairs of the 120.
    assert_eq!((report.fatal_sets, report.fatal_sets_exact), (3.0, true));
    assert_eq!(report.loss_probability, 3.0 / 120.0);
}

#[test]
fn copies_along_a_chain_cross_each_link_once() {
    let ring = with_door("torus 16", 0);
    let table = [[1, 2, 3].map(BrickId).to_vec()];
    let report = PlacementReport::new(&ring, code("1+2"), &table, &one_each(&ring)).expect("known");
    let routes = report.from_entry;
    assert_eq!([routes.client, routes.primary, routes.chain].map(|cost| cost.unit_hops), [6.0, 4.0, 3.0]);
    assert_eq!([routes.client, routes.primary, routes.chain].map(|cost| cost.sent), [3.0, 1.0, 1.0]);
}

#[test]
fn a_set_of_nodes_in_several_groups_counts_once() {
    let ring = torus("torus 8");
    let table = [[0, 1, 2], [2, 0, 1], [1, 2, 3]].map(|group| group.map(BrickId).to_vec());
    let report = PlacementReport::new(&ring, code("2+1"), &table, &one_each(&ring)).expect("known");
    // 0-1, 0-2, 1-2, 1-3, 2-3.
    assert_eq!(report.fatal_sets, 5.0);
    assert_eq!(report.peers_most, 3);
}

#[test]
fn a_brick_on_an_unknown_node_is_refused() {
    let ring = torus("torus 8");
    let table = [vec![BrickId(1)]];
    let report = PlacementReport::new(&ring, code("1+0"), &table, &[(BrickId(1), NodeId(9))]);
    assert!(report.expect_err("refused").to_string().contains("node n9"));
}

#[test]
fn too_many_sets_are_counted_from_above() {
    // 38 nodes of a group have 12.6 million sets of 7.
    let ring = torus("torus 40");
    let table = [(0..38).map(BrickId).collect::<Vec<_>>()];
    let report = PlacementReport::new(&ring, code("32+6"), &table, &one_each(&ring)).expect("known");
    assert_eq!((report.fatal_sets.round(), report.fatal_sets_exact), (12_620_256.0, false));
}

const DECISION: &str = include_str!("../../../../docs/decisions/0034-placement-by-hops.md");

fn near(code: Code, topology: &Topology, groups: u32, scatter: Scatter) -> Vec<Vec<BrickId>> {
    let (bricks, domain, primaries) = (&one_each(topology), FailureDomain::Node, Primaries::All);
    build_groups_near(&Placement { code, bricks, groups, topology, domain, primaries, scatter })
        .expect("fits")
}

/// Reports of three tables, and their rows in the decision.
struct Compared {
    reports: BTreeMap<&'static str, PlacementReport>,
    rows: Vec<String>,
}

fn compare(shape: &str, text: &str) -> Compared {
    let topology = torus(shape);
    let (code, bricks) = (code(text), one_each(&topology));
    let groups = groups_for(code, bricks.len());
    let tables = [
        ("anywhere", build_groups(code, &bricks, groups, false).expect("fits")),
        ("bounded", near(code, &topology, groups, Scatter::Bounded)),
        ("wide", near(code, &topology, groups, Scatter::Wide)),
    ];
    let mut compared = Compared { reports: BTreeMap::new(), rows: Vec::new() };
    for (name, table) in tables {
        let report = PlacementReport::new(&topology, code, &table, &bricks).expect("known");
        let share = bricks.len() as f64 / f64::from(groups);
        compared.rows.push(row(&format!("{} {text}", &shape["torus ".len()..]), name, &report, share));
        compared.reports.insert(name, report);
    }
    compared
}

/// `share` turns the load of one stripe for each group into that of one stripe for each brick.
fn row(what: &str, name: &str, report: &PlacementReport, share: f64) -> String {
    let (scatter, entry) = (report.from_primary.primary, report.from_entry);
    format!(
        "| {what} | {name} | {} | {:.1} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} | {} | {:.2} % |",
        report.radius,
        scatter.unit_hops,
        scatter.worst_link * share,
        scatter.mean_link * share,
        entry.client.unit_hops,
        entry.primary.unit_hops,
        entry.chain.unit_hops,
        report.peers_mean,
        report.fatal_sets,
        report.loss_probability * 100.0,
    )
}

#[test]
fn hops_are_saved_as_the_decision_says() {
    // How many times fewer unit-hops, and how many times less on the worst link, for what primaries send: at least.
    for (shape, text, hops, worst) in [
        ("torus 4x4", "8+2", 1.3, 1.5),
        ("torus 4x4x4", "8+2", 2.0, 3.0),
        ("torus 8x8x8", "8+2", 4.0, 6.0),
        ("torus 4x4x4", "1+2", 2.5, 2.5),
    ] {
        let Compared { reports, rows } = compare(shape, text);
        let [anywhere, bounded, wide] = ["anywhere", "bounded", "wide"].map(|name| &reports[name]);
        let ratio = |of: fn(&RouteCost) -> f64, near: &PlacementReport| {
            of(&anywhere.from_primary.primary) / of(&near.from_primary.primary)
        };
        assert!(ratio(|cost| cost.unit_hops, bounded) > hops, "{shape}");
        assert!(ratio(|cost| cost.worst_link, bounded) > worst, "{shape}");
        assert!(ratio(|cost| cost.unit_hops, wide) > 1.2, "{shape}");
        assert!(ratio(|cost| cost.worst_link, wide) > 1.4, "{shape}");
        // A client that encodes has as much to send wherever the members are, if clients are everywhere.
        let client = |report: &PlacementReport| report.from_entry.client.unit_hops.round();
        assert_eq!(client(anywhere), client(bounded), "{shape}");
        assert!(bounded.peers_mean <= wide.peers_mean && wide.peers_mean <= anywhere.peers_mean, "{shape}");
        assert!(bounded.fatal_sets <= wide.fatal_sets && wide.fatal_sets <= anywhere.fatal_sets, "{shape}");
        for row in rows {
            assert!(DECISION.contains(&row), "not in the decision: {row}");
        }
    }
}

#[test]
fn on_a_torus_no_link_has_more_than_another() {
    for shape in ["torus 4x4", "torus 8x8", "torus 4x4x4", "torus 8x8x8"] {
        let topology = torus(shape);
        let table =
            near(code("8+2"), &topology, groups_for(code("8+2"), topology.nodes().len()), Scatter::Bounded);
        let mut load = LinkLoad::new(&topology);
        for group in &table {
            group.iter().for_each(|brick| load.add(&topology, NodeId(group[8].0), NodeId(brick.0), 1));
        }
        assert_eq!(load.worst() as f64, load.mean(), "{shape}");
    }
}

#[test]
fn loads_are_those_of_all_routes_together() {
    let tree = "fat-tree\nnode 0 at 0\nnode 1 at 0\nnode 2 at 1\nnode 3 at 1\nnode 4 at 2\n";
    for topology in [torus("torus 4x3"), tree.parse().expect("sound")] {
        let code = code("2+1");
        let table = build_groups(code, &one_each(&topology), 20, false).expect("fits");
        let report = PlacementReport::new(&topology, code, &table, &one_each(&topology)).expect("known");
        let mut load = LinkLoad::new(&topology);
        for group in &table {
            group.iter().for_each(|brick| load.add(&topology, NodeId(group[2].0), NodeId(brick.0), 1));
        }
        let cost = report.from_primary.primary;
        assert_eq!((cost.worst_link, cost.mean_link), (load.worst() as f64, load.mean()));
        assert_eq!(cost.unit_hops * 20.0, load.hop_bytes() as f64);
    }
}

#[test]
fn a_far_client_gains_from_the_first_member() {
    let (code, topology) = (code("8+2"), torus("torus 8x8x8"));
    let table = near(code, &topology, 512, Scatter::Bounded);
    let members: Vec<NodeId> = table[0].iter().map(|brick| NodeId(brick.0)).collect();
    let hops = |from, to| f64::from(topology.hops(from, to).expect("known"));
    for distance in (0..=12).step_by(2) {
        let at = |client: &&NodeId| topology.hops(**client, members[8]) == Some(distance);
        let clients: Vec<NodeId> = topology.nodes().keys().filter(at).copied().collect();
        let mean = |cost: &dyn Fn(NodeId) -> f64| {
            clients.iter().map(|&client| cost(client)).sum::<f64>() / clients.len() as f64
        };
        let direct = mean(&|client| members.iter().map(|&member| hops(client, member)).sum());
        let primary = mean(&|client| 8.0 * hops(client, members[8]) + 12.0);
        let chain = mean(&|client| {
            let relay = Relay::new(&topology, code, client, &members).expect("known");
            relay.sends(client, &members).map(|(from, to, units)| hops(from, to) * units as f64).sum()
        });
        assert!(chain <= direct && chain <= primary);
        let row = format!("| {distance} | {direct:.1} | {primary:.1} | {chain:.1} |");
        assert!(DECISION.contains(&row), "not in the decision: {row}");
    }
}
