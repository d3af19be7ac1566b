//! The model against results that are known: the capacity of tori, the times of repairs, the costs that the product computes.

use std::collections::BTreeSet;

use layout::PlacementReport;
use layout::topology::{Shape, Topology};
use types::{BrickId, Code, NodeId};

use super::engine::{Engine, Grain, Told};
use super::groups::PlacementName;
use super::load::ClientPlace;
use super::model::Model;
use super::network::{Damage, Failure, Network, Parts, Place};
use super::plan::{Plan, Planner};
use super::reads::{ReadRoute, read};
use super::rebuilds::{RebuildRoute, rebuild};
use super::setup::tests::setup;
use super::writes::{WriteRoute, primary_slot, write};
use crate::random::Random;
use crate::time::{MS, Rate, Time, US};

/// Cables without delays, and nodes that compute in no time.
const PURE: Parts = Parts {
    link: Rate::gbit(10),
    hop: 0,
    compute: f64::INFINITY,
    client: None,
    brick: None,
    is_exact: false,
};
const GRAIN: Grain = Grain { unit: 256 << 10, slice: 64 << 10, window: 64 };

fn torus(sizes: &str) -> Topology {
    let shape: Shape = format!("torus:{sizes}").parse().expect("a shape");
    let nodes = (0..shape.places().count() as u32).map(NodeId).collect();
    Topology::numbered(shape, &nodes).expect("fits")
}

fn network(topology: &Topology, parts: Parts) -> Network {
    Network::new(topology, Damage::default(), parts).expect("whole")
}

/// How long a slice takes for one link.
fn slice_time() -> Time {
    super::stations::Station::link(PURE.link, 0).span(GRAIN.slice)
}

/// How long a plan takes that is alone.
fn alone(network: &Network, grain: Grain, plan: Plan) -> Time {
    let mut engine = Engine::new(network.stations(), grain);
    engine.begin(plan, 0);
    match engine.next(Time::MAX) {
        Some(Told::Done { begun: 0, ended, .. }) => ended,
        other => panic!("one operation was begun at 0: {other:?}"),
    }
}

fn one_send(network: &Network, from: u32, to: u32) -> Plan {
    let code = "8+2".parse().expect("a code");
    let mut planner = Planner::new(network, code, None);
    planner.unit(Place::Node(from), Place::Node(to), &[]);
    planner.plan
}

/// Bytes that each node gets delivered over what one link carries, if each always has 48 units in flight to nodes that
/// `target` says.
fn delivered(sizes: &str, target: impl Fn(u32, u64, &mut Random) -> u32) -> f64 {
    let topology = torus(sizes);
    let network = network(&topology, PURE);
    let mut engine = Engine::new(network.stations(), GRAIN);
    let mut random = Random::new(7);
    let mut sent = vec![0; network.nodes as usize];
    let mut send = |engine: &mut Engine, node: u32| {
        sent[node as usize] += 1;
        let to = target(node, sent[node as usize], &mut random);
        engine.begin(one_send(&network, node, to), node);
    };
    (0..network.nodes * 48).for_each(|at| send(&mut engine, at / 48));
    let (ramp, until) = (100 * MS, 700 * MS);
    let mut done = 0;
    while let Some(told) = engine.next(until) {
        let Told::Done { tag, ended, .. } = told else { panic!("nobody has asked for a call") };
        done += u64::from(ended >= ramp);
        send(&mut engine, tag);
    }
    let seconds = (until - ramp) as f64 / 1e12;
    (done * GRAIN.unit) as f64 / seconds / f64::from(network.nodes) / PURE.link.payload()
}

fn other_node(node: u32, nodes: u32, random: &mut Random) -> u32 {
    (node + 1 + random.below(u64::from(nodes) - 1) as u32) % nodes
}

/// 2n links leave a node, and a unit crosses nk/4 of them (k even, the node itself counted): 8/k (Dally and Towles 2004). If
/// k is no multiple of 4, the routes over half a ring of six load its links with 5 and 4 parts: 0.9 of that.
#[test]
fn uniform_traffic_saturates_at_eight_over_k() {
    for (sizes, k, nodes, even) in [("8x8", 8.0, 64, 1.0), ("4x4x4", 4.0, 64, 1.0), ("6x6", 6.0, 36, 0.9)] {
        let share = delivered(sizes, |node, _, random| other_node(node, nodes, random));
        let known = even * 8.0 / k * f64::from(nodes - 1) / f64::from(nodes);
        assert!((0.94 * known..1.01 * known).contains(&share), "{sizes}: {share} of {known}");
    }
}

#[test]
fn neighbours_get_all_links() {
    let topology = torus("4x4x4");
    let neighbours: Vec<Vec<u32>> = (0..64)
        .map(|node| (0..64).filter(|&to| topology.hops(NodeId(node), NodeId(to)) == Some(1)).collect())
        .collect();
    let share = delivered("4x4x4", |node, sent, _| neighbours[node as usize][(sent % 6) as usize]);
    assert!((5.9..6.01).contains(&share), "{share} of 6");
}

/// All traffic goes three hops up a ring of eight: each link up carries three flows, the others none.
#[test]
fn tornado_traffic_uses_one_direction() {
    let share = delivered("8x8", |node, _, _| node / 8 * 8 + (node + 3) % 8);
    assert!((0.323..0.343).contains(&share), "{share} of 1/3");
}

#[test]
fn latency_grows_with_hops() {
    let topology = torus("8x8");
    let network = network(&topology, Parts { hop: 20 * US, ..PURE });
    let one_slice = Grain { unit: GRAIN.slice, ..GRAIN };
    for to in [1, 2, 3, 4, 12, 36] {
        let hops = Time::from(topology.hops(NodeId(0), NodeId(to)).expect("known"));
        assert_eq!(alone(&network, one_slice, one_send(&network, 0, to)), hops * (slice_time() + 20 * US));
        // The slices of a unit follow each other.
        let unit = alone(&network, GRAIN, one_send(&network, 0, to));
        assert_eq!(unit, hops * (slice_time() + 20 * US) + 3 * slice_time());
    }
}

#[test]
fn a_window_of_one_slice_waits_for_each_answer() {
    let network = network(&torus("8x8"), Parts { hop: 20 * US, ..PURE });
    let narrow = Grain { window: 1, ..GRAIN };
    let once = alone(&network, narrow, one_send(&network, 0, 2));
    assert_eq!(once, 4 * 2 * (slice_time() + 20 * US) + 3 * 2 * 20 * US);
}

/// Nodes in a line, the new brick at its begin.
fn line(nodes: u32) -> Topology {
    let cables: Vec<_> = (1..nodes).map(|node| (NodeId(node - 1), NodeId(node))).collect();
    let nodes = (0..nodes).map(|node| (NodeId(node), Default::default())).collect();
    Topology::new(Shape::Links, nodes, &cables).expect("a line")
}

/// Every node is cabled to every other.
fn mesh(nodes: u32) -> Topology {
    Topology::numbered(Shape::Mesh, &(0..nodes).map(NodeId).collect::<BTreeSet<_>>()).expect("a mesh")
}

/// The time of one repair of the parity of `k+1` on node 0, in times of one unit for one link.
fn repair(topology: &Topology, k: u8, route: RebuildRoute, slices: u64) -> f64 {
    let code = Code::new(k, 1).expect("in range");
    let damage = Damage { empty: BTreeSet::from([0]), ..Damage::default() };
    let network = Network::new(topology, damage, PURE).expect("whole");
    let group: Vec<u32> = (1..=u32::from(k)).chain([0]).collect();
    let grain = Grain { unit: slices * GRAIN.slice, ..GRAIN };
    let plan = rebuild(&network, code, route, &group, code.k(), 0).expect("one unit is lost");
    alone(&network, grain, plan) as f64 / (slices * slice_time()) as f64
}

/// (1 + (k-1)/s) t for a pipeline of s slices, k t if all units go into the new brick by one link (Li and others 2017).
#[test]
fn a_pipeline_takes_little_longer_than_one_unit() {
    for (k, slices) in [(4u8, 4u64), (8, 4), (8, 32), (10, 16)] {
        let topology = line(u32::from(k) + 1);
        let known = 1.0 + f64::from(k - 1) / slices as f64;
        assert!((repair(&topology, k, RebuildRoute::Pipeline, slices) - known).abs() < 1e-9, "{k} {slices}");
        assert!(
            (repair(&topology, k, RebuildRoute::Star, slices) - f64::from(k)).abs() < 1e-9,
            "{k} {slices}"
        );
    }
}

/// ceil(log2(k+1)) t if units are sent whole (Mitra and others 2016). There a node has one port, so a round is a round for all.
/// In a mesh it has one for each sender, and the longest chain of sends decides: as many as a number up to k has ones. That is
/// the same where k+1 is a power of two, and less elsewhere.
#[test]
fn partial_sums_take_the_logarithm() {
    for k in 1..=10u8 {
        let rounds = f64::from(u32::from(k) + 1).log2().ceil();
        let chain = f64::from((1..=k).map(u8::count_ones).max().expect("one helper or more"));
        let time = repair(&mesh(u32::from(k) + 1), k, RebuildRoute::Tree, 1);
        assert!((time - chain).abs() < 1e-9 && time <= rounds, "{k}: {time}, {chain} of {rounds}");
        assert!(!(u32::from(k) + 1).is_power_of_two() || chain == rounds);
    }
    // With slices the sends of a chain overlap: one unit, and a slice for each send but the first.
    assert!((repair(&mesh(8), 7, RebuildRoute::Tree, 8) - (1.0 + 2.0 / 8.0)).abs() < 1e-9);
}

/// What the product says about a table. Each node has one brick.
fn report(topology: &Topology, code: Code, groups: &[Vec<u32>]) -> PlacementReport {
    let bricks: Vec<(BrickId, NodeId)> =
        topology.nodes().keys().map(|&node| (BrickId(node.0), node)).collect();
    let table: Vec<Vec<BrickId>> =
        groups.iter().map(|group| group.iter().map(|&node| BrickId(node)).collect()).collect();
    PlacementReport::new(topology, code, &table, &bricks).expect("the tables fit")
}

/// What crosses links is what the plans say, and that is what the product computes for the same table.
#[test]
fn routes_cost_what_the_product_says() {
    let model = Model::new(setup("4x4x4")).expect("a torus");
    let topology = torus("4x4x4");
    let network = network(&topology, PURE);
    let code = model.setup().code;
    for placement in model.placements() {
        let groups = model.table(placement);
        let report = report(&topology, code, groups);
        let cost = |route, client: &dyn Fn(&[u32]) -> Vec<u32>| {
            let (mut hops, mut sent, mut plans) = (0, 0, 0);
            for group in groups {
                for client in client(group) {
                    let plan = write(&network, code, route, client, group, None).expect("whole");
                    (hops, sent, plans) = (hops + plan.unit_hops, sent + plan.sent, plans + 1);
                }
            }
            (f64::from(hops) / f64::from(plans), f64::from(sent) / f64::from(plans))
        };
        let everywhere = |_: &[u32]| (0..64).collect();
        let at_primary = |group: &[u32]| vec![group[primary_slot(code)]];
        // From everywhere, the product looks at some of the trees only.
        for (route, entry, primary, near) in [
            (WriteRoute::Client, report.from_entry.client, report.from_primary.client, 1e-6),
            (WriteRoute::Primary, report.from_entry.primary, report.from_primary.primary, 1e-6),
            (WriteRoute::Relay, report.from_entry.chain, report.from_primary.chain, 0.05),
        ] {
            for (known, (hops, sent), near) in
                [(entry, cost(route, &everywhere), near), (primary, cost(route, &at_primary), 1e-6)]
            {
                let said = format!("{placement:?} {route:?}: {hops} {sent}, {known:?}");
                assert!((known.unit_hops - hops).abs() < near && (known.sent - sent).abs() < near, "{said}");
            }
        }
        let (auto, client) = (cost(WriteRoute::Auto, &everywhere), cost(WriteRoute::Client, &everywhere));
        assert!(auto.0 <= client.0, "{placement:?}: {auto:?} {client:?}");
    }
}

#[test]
fn every_unit_hop_is_a_unit_on_a_link() {
    let model = Model::new(setup("4x4x4")).expect("a torus");
    let network = network(&torus("4x4x4"), PURE);
    let code = model.setup().code;
    let group = &model.table(PlacementName::Random)[5];
    let mut plans: Vec<Plan> =
        WriteRoute::ALL.map(|route| write(&network, code, route, 9, group, None).expect("whole")).into();
    plans.extend(ReadRoute::ALL.map(|route| read(&network, code, route, 9, group, None).expect("whole")));
    plans.extend(RebuildRoute::ALL.map(|route| rebuild(&network, code, route, group, 3, 1).expect("whole")));
    for plan in plans {
        let unit_hops = u64::from(plan.unit_hops);
        assert!(unit_hops > 8);
        let mut engine = Engine::new(network.stations(), GRAIN);
        engine.begin(plan, 0);
        engine.next(Time::MAX).expect("it ends");
        let served: u64 = engine.stations[..network.link_count()].iter().map(|link| link.served).sum();
        assert_eq!(served, unit_hops * GRAIN.unit);
    }
}

#[test]
fn a_read_takes_parity_for_what_is_lost() {
    let topology = torus("4x4");
    let code: Code = "4+2".parse().expect("a code");
    let group = [0, 1, 2, 3, 4, 5];
    let lost = |nodes: &[u32]| {
        let empty = nodes.iter().copied().collect();
        Network::new(&topology, Damage { empty, ..Damage::default() }, PURE).expect("whole")
    };
    let transfers = |nodes: &[u32], route| {
        read(&lost(nodes), code, route, 10, &group, None).map(|plan| plan.transfers.len())
    };
    assert_eq!(transfers(&[], ReadRoute::Direct), Some(4));
    assert_eq!(transfers(&[4, 5], ReadRoute::Direct), Some(4));
    assert_eq!(transfers(&[1, 4], ReadRoute::Direct), Some(5), "four units, and a node that decodes");
    assert_eq!(transfers(&[1, 4], ReadRoute::Gathered), Some(9));
    assert_eq!(transfers(&[1, 2, 4], ReadRoute::Direct), None);
    assert_eq!(transfers(&[1, 2, 4], ReadRoute::Gathered), None);
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let writes = |seed| {
        let model = Model::new(super::Setup { seed, ..setup("4x4x4") }).expect("a torus");
        model.writes(PlacementName::Near, ClientPlace::Anywhere, WriteRoute::Primary)
    };
    let first = writes(1);
    assert_eq!(first, writes(1));
    assert_ne!(first, writes(2));
}

#[test]
fn a_lost_row_is_survived_if_members_are_in_different_rows() {
    let model = Model::new(setup("4x4x4")).expect("a torus");
    let reads = |placement, failure| model.degraded(placement, failure, 1e9);
    let near = reads(PlacementName::Near, Failure::Row);
    assert!(near.unreadable > 0.0 && near.unreadable < 0.5, "{near:?}");
    let apart = reads(PlacementName::NearRows, Failure::Row);
    assert_eq!((apart.unreadable, apart.clients), (0.0, 60));
    assert!(apart.decoded > 0.2, "{apart:?}");
    let node = reads(PlacementName::Near, Failure::Node);
    assert_eq!((node.unreadable, node.clients), (0.0, 63));
    // Each node has 8 of 64 data units, so to speak.
    assert!((node.decoded - 8.0 / 64.0).abs() < 0.01, "{node:?}");
    let cable = reads(PlacementName::Near, Failure::Cable);
    assert_eq!((cable.unreadable, cable.decoded, cable.clients), (0.0, 0.0, 64));
}

/// Reads at a given rate load the links as much as their unit-hops say.
#[test]
fn a_load_is_what_it_is_said_to_be() {
    let model = Model::new(super::Setup { time_us: 200_000, ..setup("4x4x4") }).expect("a torus");
    let rate = 1.2e9;
    let reads = model.degraded(PlacementName::Random, Failure::None, rate);
    let stripes = rate * model.setup().load / model.setup().stripe() as f64;
    let hops = 8.0 * model.mean_hops() * 63.0 / 64.0;
    let known = stripes * hops * model.setup().unit as f64 / 6.0 / model.setup().link.payload();
    assert!((reads.links.mean / known - 1.0).abs() < 0.03, "{} {known}", reads.links.mean);
    assert!(reads.links.worst < 1.0 && reads.loaded.p99_us > reads.loaded.mean_us, "{reads:?}");
}

#[test]
fn near_bricks_are_rebuilt_with_fewer_bytes_on_links() {
    let model = Model::new(setup("4x4x4")).expect("a torus");
    let rebuild = |placement, route| model.rebuild(placement, route, Failure::Node, None);
    for route in RebuildRoute::ALL {
        let (near, random) = (rebuild(PlacementName::Near, route), rebuild(PlacementName::Random, route));
        assert!(near.unit_hops < random.unit_hops, "{route:?}: {near:?} {random:?}");
        assert_eq!((near.bricks, near.possible), (1, 1.0));
    }
    // All units of a star go into one node by its six links; of a pipeline, one sum.
    let most = 6.0 * model.setup().link.payload();
    let star = rebuild(PlacementName::Near, RebuildRoute::Star).rate;
    let pipeline = rebuild(PlacementName::Near, RebuildRoute::Pipeline).rate;
    assert!(star > 0.4 * most / 8.0 && star <= 1.01 * most / 8.0, "{star} of {most} / 8");
    assert!(pipeline > 2.0 * star && pipeline <= 1.01 * most, "{pipeline} and {star}");
}
