//! Tables for networks of all shapes are made, and their properties are checked with the topology alone: domains, hops,
//! counts.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::messages::cluster::FailureDomain;
use types::{BrickId, Code, NodeId};

use super::*;
use crate::groups::PlacementError;
use crate::mix;
use crate::topology::{Coordinates, NodeEntry, NodeTier, Shape, Topology};

const NODE: FailureDomain = FailureDomain::Node;

fn code(text: &str) -> Code {
    text.parse().expect("code")
}

/// A network of a shape; a flat one or a mesh has 12 nodes.
fn network(shape: &str) -> Topology {
    let shape: Shape = shape.parse().expect("a shape");
    let count = if shape.dimensions() > 0 { shape.places().count() as u32 } else { 12 };
    Topology::numbered(shape, &(0..count).map(NodeId).collect()).expect("fits")
}

/// So many bricks on each node: one number for each, again from the first if they are too few.
fn bricks(topology: &Topology, each: &[usize]) -> Vec<(BrickId, NodeId)> {
    let nodes = topology.nodes().keys().zip(each.iter().cycle());
    let nodes = nodes.flat_map(|(&node, &each)| std::iter::repeat_n(node, each));
    nodes.zip(0..).map(|(node, brick): (NodeId, u32)| (BrickId(brick * 7 + 3), node)).collect()
}

fn placement<'a>(
    code_text: &str,
    topology: &'a Topology,
    bricks: &'a [(BrickId, NodeId)],
    groups: usize,
) -> Placement<'a> {
    Placement {
        code: code(code_text),
        bricks,
        groups: groups as u32,
        topology,
        domain: NODE,
        primaries: Primaries::All,
        scatter: Scatter::Bounded,
    }
}

/// The slot of the primary.
fn lead(code: Code) -> usize {
    if code.m() > 0 { code.k() } else { 0 }
}

fn spread(counts: &BTreeMap<BrickId, usize>) -> usize {
    counts.values().max().expect("bricks") - counts.values().min().expect("bricks")
}

/// A table and what it was made of.
struct Made<'a> {
    asked: Placement<'a>,
    table: Vec<Vec<BrickId>>,
    node_of: BTreeMap<BrickId, NodeId>,
}

impl<'a> Made<'a> {
    fn new(asked: Placement<'a>) -> Made<'a> {
        let table = build_groups_near(&asked).expect("fits");
        Made { asked, table, node_of: asked.bricks.iter().copied().collect() }
    }

    /// How often each brick has one of these slots.
    fn count(&self, slots: std::ops::Range<usize>) -> BTreeMap<BrickId, usize> {
        let mut counts: BTreeMap<BrickId, usize> = self.node_of.keys().map(|&brick| (brick, 0)).collect();
        let had = self.table.iter().flat_map(|group| &group[slots.clone()]);
        had.for_each(|brick| *counts.entry(*brick).or_default() += 1);
        counts
    }

    fn memberships(&self) -> BTreeMap<BrickId, usize> {
        self.count(0..self.asked.code.slots())
    }

    fn hops(&self, a: BrickId, b: BrickId) -> u32 {
        self.asked.topology.hops(self.node_of[&a], self.node_of[&b]).expect("both are there")
    }

    fn domain(&self, brick: BrickId) -> (u64, u64) {
        match self.asked.domain {
            FailureDomain::Brick => (1, brick.0.into()),
            level => {
                let domain = self.asked.topology.domain(self.node_of[&brick], level).expect("has the level");
                (0, domain.expect("is part of it"))
            }
        }
    }

    fn leads(&self) -> Vec<BrickId> {
        let front: BTreeSet<NodeId> = self.asked.topology.front().into_iter().collect();
        let all = self.asked.primaries == Primaries::All || self.asked.topology.is_default();
        let leads = self.node_of.iter().filter(|(_, node)| all || front.contains(node));
        leads.map(|(&brick, _)| brick).collect()
    }

    /// The smallest radius that holds enough domains and nodes around each brick that may be a primary.
    fn radius(&self) -> u32 {
        let slots = self.asked.code.slots();
        let nodes: BTreeSet<NodeId> = self.node_of.values().copied().collect();
        let enough = |primary: BrickId, radius: u32| {
            let near = self.node_of.keys().filter(|&&brick| self.hops(primary, brick) <= radius);
            let domains: BTreeSet<_> = near.clone().map(|&brick| self.domain(brick)).collect();
            let on: BTreeSet<_> = near.map(|brick| self.node_of[brick]).collect();
            domains.len() >= slots
                && (self.asked.domain != FailureDomain::Brick || on.len() >= slots.min(nodes.len()))
        };
        let of = |&primary: &BrickId| (0..).find(|&radius| enough(primary, radius)).expect("all are enough");
        self.leads().iter().map(of).max().expect("one may be a primary")
    }

    /// Whether `to` could have the place of `from` in a group.
    fn fits(&self, group: &[BrickId], from: BrickId, to: BrickId, radius: u32) -> bool {
        let primary = group[lead(self.asked.code)];
        let mut others = group.iter().filter(|&&brick| brick != from);
        from != primary
            && self.hops(primary, to) <= radius
            && others.all(|&other| self.domain(other) != self.domain(to))
    }

    /// Two bricks, the first of which could be in one group less and the second in one more by a chain of exchanges, so that
    /// their numbers of groups would be more even.
    fn uneven(&self, radius: u32) -> Option<(BrickId, BrickId)> {
        let counts = self.memberships();
        for (&start, &count) in &counts {
            let (mut seen, mut queue) = (BTreeSet::from([start]), vec![start]);
            while let Some(from) = queue.pop() {
                for group in self.table.iter().filter(|group| group.contains(&from)) {
                    for &to in counts.keys() {
                        if !seen.contains(&to) && self.fits(group, from, to, radius) {
                            if counts[&to] + 2 <= count {
                                return Some((start, to));
                            }
                            seen.insert(to);
                            queue.push(to);
                        }
                    }
                }
            }
        }
        None
    }
}

#[test]
fn on_a_torus_all_shares_are_equal_and_all_members_near() {
    for (shape, text, radius) in [
        ("torus 4x4", "8+2", 2),
        ("torus 4x4", "2+1", 1),
        ("torus 8x8", "8+2", 2),
        ("torus 5x3", "4+2", 2),
        ("torus 4x4x4", "8+2", 2),
        ("torus 4x4x4", "4+2", 1),
        ("torus 2x4x3", "4+0", 1),
    ] {
        let topology = network(shape);
        let bricks = bricks(&topology, &[1]);
        for scatter in [Scatter::Bounded, Scatter::Wide] {
            let groups = bricks.len() * code(text).slots();
            let made = Made::new(Placement { scatter, ..placement(text, &topology, &bricks, groups) });
            assert_eq!(made.radius(), radius, "{shape} {text}");
            assert_eq!(spread(&made.memberships()), 0, "{shape} {text}");
            let lead = lead(code(text));
            assert_eq!(spread(&made.count(lead..lead + 1)), 0, "{shape} {text}");
            for group in &made.table {
                assert!(group.iter().all(|&brick| made.hops(group[lead], brick) <= radius), "{shape} {text}");
            }
        }
    }
}

/// Bricks with one or more places, by what they have in common with a primary.
fn sets(made: &Made<'_>) -> BTreeMap<BrickId, BTreeSet<BTreeSet<BrickId>>> {
    let mut sets: BTreeMap<BrickId, BTreeSet<BTreeSet<BrickId>>> = BTreeMap::new();
    for group in &made.table {
        let primary = group[lead(made.asked.code)];
        sets.entry(primary).or_default().insert(group.iter().copied().collect());
    }
    sets
}

#[test]
fn bounded_primaries_have_two_sets_of_members_and_wide_ones_many() {
    let topology = network("torus 4x4x4");
    let bricks = bricks(&topology, &[1]);
    let bounded = placement("8+2", &topology, &bricks, 64 * 8);
    let most = |placement| sets(&Made::new(placement)).values().map(BTreeSet::len).max();
    assert!(most(bounded) <= Some(2));
    assert!(most(Placement { scatter: Scatter::Wide, ..bounded }) >= Some(6));
}

#[test]
fn a_torus_with_more_bricks_on_each_node_is_as_fair() {
    let topology = network("torus 4x4");
    for each in [&[2][..], &[3], &[1, 2], &[1, 1, 2]] {
        let bricks = bricks(&topology, each);
        let made = Made::new(placement("4+2", &topology, &bricks, bricks.len() * 3));
        assert!(spread(&made.memberships()) <= 1, "{each:?}");
    }
}

#[test]
fn front_primaries_lead_all_groups() {
    let mut nodes = network("torus 4x4").nodes().clone();
    for node in [0, 4, 8, 12] {
        nodes.get_mut(&NodeId(node)).expect("is there").tier = NodeTier::Front;
    }
    let topology = Topology::new(Shape::Torus(vec![4, 4]), nodes, &[]).expect("sound");
    let bricks = bricks(&topology, &[1]);
    let asked = Placement { primaries: Primaries::Front, ..placement("4+2", &topology, &bricks, 48) };
    let made = Made::new(asked);
    let leads: BTreeMap<BrickId, usize> =
        made.count(4..5).into_iter().filter(|&(_, count)| count > 0).collect();
    assert_eq!(leads.keys().map(|brick| made.node_of[brick].0).collect::<Vec<_>>(), [0, 4, 8, 12]);
    assert_eq!(spread(&leads), 0);
    // A node opposite to the front has one primary within two hops, and is in all of its groups. The others share the rest.
    for (brick, groups) in made.memberships() {
        assert_eq!(groups, if made.node_of[&brick].0 % 4 == 2 { 12 } else { 20 });
    }

    let behind: Vec<_> = bricks.iter().copied().filter(|(_, node)| node.0 % 4 != 0).collect();
    let refused = build_groups_near(&Placement { bricks: &behind, ..asked }).expect_err("none in front");
    assert_eq!(
        refused.to_string(),
        "no brick is on a node in front (node n0, node n4, node n8, node n12): add one, or let all bricks be primaries"
    );
}

#[test]
fn racks_and_rows_have_one_member_each() {
    let tree: Topology = (0..20)
        .fold("fat-tree\n".to_owned(), |text, node| text + &format!("node {node} at {}\n", node % 5))
        .parse()
        .expect("sound");
    let torus = network("torus 4x3x2");
    for (topology, level, text) in [(&tree, FailureDomain::Rack, "3+2"), (&torus, FailureDomain::Row, "4+2")]
    {
        let bricks = bricks(topology, &[1]);
        let asked = placement(text, topology, &bricks, bricks.len() * 5);
        let made = Made::new(Placement { domain: level, ..asked });
        for group in &made.table {
            let domains: BTreeSet<_> = group.iter().map(|&brick| made.domain(brick)).collect();
            assert_eq!(domains.len(), group.len());
        }
        assert_eq!(spread(&made.memberships()), 0);
    }
}

#[test]
fn if_a_rack_holds_all_members_the_groups_stay_within_racks() {
    let tree: Topology = (0..24)
        .fold("fat-tree\n".to_owned(), |text, node| text + &format!("node {node} at {}\n", node / 8))
        .parse()
        .expect("sound");
    let bricks = bricks(&tree, &[1]);
    let made = Made::new(placement("4+2", &tree, &bricks, 96));
    for group in &made.table {
        assert_eq!(group.iter().map(|&brick| made.node_of[&brick].0 / 8).collect::<BTreeSet<_>>().len(), 1);
    }
}

#[test]
fn bricks_as_domains_are_on_as_many_nodes_as_there_are() {
    let topology = network("torus 3x2");
    let bricks = bricks(&topology, &[4]);
    let asked = placement("8+2", &topology, &bricks, 48);
    assert!(build_groups_near(&asked).is_err());
    let made = Made::new(Placement { domain: FailureDomain::Brick, ..asked });
    for group in &made.table {
        let mut on: BTreeMap<NodeId, usize> = BTreeMap::new();
        group.iter().for_each(|brick| *on.entry(made.node_of[brick]).or_default() += 1);
        assert_eq!(on.len(), 6);
        assert!(on.values().all(|&members| members <= 2), "ten members on six nodes: {on:?}");
    }
    assert_eq!(spread(&made.memberships()), 0);
}

#[test]
fn a_network_of_which_nothing_was_said_and_a_mesh_are_placed_too() {
    let nothing = Topology::default();
    let nowhere: Vec<(BrickId, NodeId)> = (0..20).map(|brick| (BrickId(brick), NodeId(brick / 2))).collect();
    let mesh = network("mesh");
    let (on_mesh, flat) = (bricks(&mesh, &[1]), network("flat"));
    for (topology, bricks) in [(&nothing, &nowhere), (&mesh, &on_mesh), (&flat, &on_mesh)] {
        let made = Made::new(placement("4+2", topology, bricks, bricks.len() * 6));
        assert_eq!(spread(&made.memberships()), 0);
        let wide = Made::new(Placement { scatter: Scatter::Wide, ..made.asked });
        let peers = |made: &Made<'_>| {
            let first = bricks[0].0;
            let with = made.table.iter().filter(|group| group.contains(&first));
            with.flatten().collect::<BTreeSet<_>>().len()
        };
        assert!(peers(&made) <= peers(&wide));
        let nodes: BTreeSet<NodeId> = bricks.iter().map(|&(_, node)| node).collect();
        let own = bricks.iter().filter(|(_, node)| *node == bricks[0].1).count();
        // A brick shares groups with all bricks of other nodes, and itself.
        assert_eq!(peers(&wide), bricks.len() - own + 1, "{} nodes", nodes.len());
    }
}

#[test]
fn a_primary_with_too_many_candidates_still_has_all_domains() {
    // Two racks of 200 nodes, and eight of one: every group needs all ten racks.
    let rack = |node: u32| if node < 400 { node % 2 } else { node - 398 };
    let tree: Topology = (0..408)
        .fold("fat-tree\n".to_owned(), |text, node| text + &format!("node {node} at {}\n", rack(node)))
        .parse()
        .expect("sound");
    let bricks = bricks(&tree, &[1]);
    let domain = FailureDomain::Rack;
    let made = Made::new(Placement { domain, ..placement("8+2", &tree, &bricks, 408) });
    let counts = made.memberships();
    // The two large racks are in every group, so each of their bricks is in two or three.
    for (brick, node) in &made.node_of {
        let expected = if node.0 < 400 { 2..=3 } else { 408..=408 };
        assert!(expected.contains(&counts[brick]), "{node}: {}", counts[brick]);
    }
}

#[test]
fn what_cannot_be_placed_is_said() {
    let torus = network("torus 4x4");
    let all = bricks(&torus, &[1]);
    let asked = placement("8+2", &torus, &all, 16);
    let said = |placement: Placement<'_>| build_groups_near(&placement).expect_err("refused").to_string();
    let many: Vec<(BrickId, NodeId)> = (0..513).map(|id| (BrickId(id), NodeId(id % 16))).collect();
    assert_eq!(
        said(Placement { bricks: &many, ..asked }),
        "513 bricks: at most 512 are placed by the topology at once"
    );

    let outside = [(BrickId(1), NodeId(3)), (BrickId(2), NodeId(40)), (BrickId(3), NodeId(41))];
    assert_eq!(
        said(Placement { bricks: &outside, ..asked }),
        "the topology does not have node n40, node n41: add them, or use bricks on other nodes"
    );
    let rows = FailureDomain::Row;
    assert_eq!(
        said(Placement { domain: rows, ..asked }),
        "8+2 needs 10 rows, there are 4 (use `node` to count nodes): 2+2 or 3+1 would fit"
    );
    let racks = FailureDomain::Rack;
    assert_eq!(said(Placement { domain: racks, ..asked }), "a torus 4x4 has no racks: use `node` or `row`");
    assert_eq!(
        said(Placement { bricks: &all[..9], ..asked }),
        "8+2 needs 10 nodes, there are 9: 7+2 or 8+1 would fit"
    );
    assert_eq!(
        said(Placement { domain: FailureDomain::Brick, bricks: &all[..3], code: code("2+2"), ..asked }),
        "2+2 needs 4 failure domains, there are 3: 1+2 or 2+1 would fit"
    );
    assert_eq!(said(Placement { bricks: &[], code: code("1+0"), ..asked }), "1+0 needs 1 node, there are 0");
    let twice = [all.clone(), vec![all[0]]].concat();
    assert_eq!(said(Placement { bricks: &twice, ..asked }), "brick b3 is named twice");
    let none = build_groups_near(&Placement { groups: 0, ..asked });
    assert_eq!(none, Err(PlacementError::GroupsOutOfRange(0)));
}

/// If this fails, the tables have changed. Tables are stored, so old volumes do not mind; simulations and tests may.
#[test]
fn golden_tables() {
    let hash = |table: Vec<Vec<BrickId>>| {
        table.iter().flatten().fold(0, |hash, brick| mix(mix(hash) ^ u64::from(brick.0)))
    };
    let torus = network("torus 4x4x4");
    let on_torus = bricks(&torus, &[1]);
    let tree: Topology = (0..18)
        .fold("fat-tree\n".to_owned(), |text, node| text + &format!("node {node} at {}\n", node * node % 5))
        .parse()
        .expect("sound");
    let on_tree = bricks(&tree, &[1, 2]);
    let table = |asked: Placement<'_>| hash(build_groups_near(&asked).expect("fits"));
    let bounded = placement("8+2", &torus, &on_torus, 256);
    let wide = Placement { scatter: Scatter::Wide, ..bounded };
    let hashes = [table(bounded), table(wide), table(placement("4+2", &tree, &on_tree, 60))];
    assert_eq!(hashes, [13_743_253_736_426_539_860, 17_797_215_974_953_721_928, 2_528_485_931_369_371_654]);
}

/// Networks of all shapes, bricks on them, a code that fits, and what else may be asked for.
#[derive(Clone, Debug)]
struct Case {
    topology: Topology,
    bricks: Vec<(BrickId, NodeId)>,
    code: Code,
    groups: u32,
    domain: FailureDomain,
    primaries: Primaries,
    scatter: Scatter,
    seed: u64,
}

impl Case {
    fn placement(&self) -> Placement<'_> {
        let Case { code, groups, domain, primaries, scatter, .. } = *self;
        Placement { code, bricks: &self.bricks, groups, topology: &self.topology, domain, primaries, scatter }
    }
}

fn topologies() -> impl Strategy<Value = Topology> {
    let torus = prop::collection::vec(2u16..5, 1..=3).prop_map(Shape::Torus);
    let shapes = prop_oneof![3 => torus, 1 => Just(Shape::Mesh), 1 => Just(Shape::Flat)];
    let numbered = shapes.prop_map(|shape| network(&shape.to_string()));
    let racks = prop::collection::vec(0u16..5, 2..16).prop_map(|racks| {
        let entry = |rack| NodeEntry { at: Coordinates(vec![rack]), ..NodeEntry::default() };
        let nodes = racks.into_iter().map(entry).zip(0..).map(|(entry, id)| (NodeId(id), entry)).collect();
        Topology::new(Shape::FatTree, nodes, &[]).expect("racks fit")
    });
    let links = prop::collection::vec((any::<u32>(), any::<u32>()), 1..16).prop_map(|seeds| {
        let nodes = (0..=seeds.len() as u32).map(|id| (NodeId(id), NodeEntry::default())).collect();
        let cables = seeds.iter().zip(1u32..).flat_map(|((a, b), id)| [(a % id, id), (b % id, id)]);
        let cables: BTreeSet<(NodeId, NodeId)> = cables.map(|(a, b)| (NodeId(a), NodeId(b))).collect();
        Topology::new(Shape::Links, nodes, &cables.into_iter().collect::<Vec<_>>()).expect("connected")
    });
    prop_oneof![3 => numbered, 2 => racks, 3 => links]
}

/// Makes every node one in front with a chance of a third.
fn with_front(topology: &Topology, seed: u64) -> Topology {
    let mut nodes = topology.nodes().clone();
    for (node, entry) in &mut nodes {
        if mix(seed ^ u64::from(node.0)).is_multiple_of(3) {
            entry.tier = NodeTier::Front;
        }
    }
    let cables: Vec<(NodeId, NodeId)> = topology.listed().iter().copied().collect();
    Topology::new(topology.shape().clone(), nodes, &cables).expect("was sound")
}

fn cases() -> impl Strategy<Value = Case> {
    let asked = (any::<[bool; 3]>(), 1u32..100, any::<u64>(), 0u8..=6);
    let each = prop_oneof![2 => Just(vec![1]), 1 => prop::collection::vec(1usize..4, 1..6)];
    (topologies(), each, asked).prop_map(|(topology, each, ([front, wide, odd], groups, seed, m))| {
        let topology = if front { with_front(&topology, seed) } else { topology };
        let bricks = bricks(&topology, &each);
        let domain = match (topology.shape(), odd) {
            (Shape::FatTree, true) => FailureDomain::Rack,
            (Shape::Torus(_), true) => FailureDomain::Row,
            (_, true) => FailureDomain::Brick,
            _ => NODE,
        };
        let names: BTreeSet<u64> = match domain {
            FailureDomain::Brick => bricks.iter().map(|(brick, _)| brick.0.into()).collect(),
            level => {
                let name = |&node: &NodeId| topology.domain(node, level).expect("has it").expect("is there");
                topology.nodes().keys().map(name).collect()
            }
        };
        let m = usize::from(m).min(names.len() - 1);
        let k = 1 + (seed >> 8) as usize % (names.len() - m).min(12);
        Case {
            code: Code::new(k as u8, m as u8).expect("in range"),
            primaries: if front { Primaries::Front } else { Primaries::All },
            scatter: if wide { Scatter::Wide } else { Scatter::Bounded },
            topology,
            bricks,
            groups,
            domain,
            seed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn tables_are_safe_near_and_fair(case in cases()) {
        let made = Made::new(case.placement());
        let (code, radius, lead) = (case.code, made.radius(), lead(case.code));
        prop_assert_eq!(made.table.len(), case.groups as usize);
        let may_lead: BTreeSet<BrickId> = made.leads().into_iter().collect();
        for group in &made.table {
            let domains: BTreeSet<_> = group.iter().map(|&brick| made.domain(brick)).collect();
            prop_assert_eq!(domains.len(), code.slots());
            prop_assert!(may_lead.contains(&group[lead]));
            prop_assert!(group.iter().all(|&brick| made.hops(group[lead], brick) <= radius));
        }
        let leads = made.count(lead..lead + 1);
        let (low, high) = (case.groups as usize / may_lead.len(), (case.groups as usize).div_ceil(may_lead.len()));
        prop_assert!(may_lead.iter().all(|brick| (low..=high).contains(&leads[brick])));
        // Each slot but the primary's is a brick's share of those groups of which it is not the primary.
        let all = made.memberships();
        for slot in (0..code.slots()).filter(|&slot| slot != lead) {
            for (brick, had) in made.count(slot..slot + 1) {
                let rest = all[&brick] - leads[&brick];
                let share = rest / (code.slots() - 1)..=rest.div_ceil(code.slots() - 1);
                prop_assert!(share.contains(&had), "slot {slot}: {had} of {rest}");
            }
        }
        // With one brick in each domain no chain of exchanges makes the numbers more even.
        if case.domain == NODE && case.bricks.len() == case.topology.nodes().len() {
            prop_assert_eq!(made.uneven(radius), None, "{:?}", all);
        }
    }

    #[test]
    fn the_same_bricks_give_the_same_table_in_any_order(case in cases()) {
        let table = build_groups_near(&case.placement()).expect("fits");
        let mut shuffled = case.bricks.clone();
        shuffled.sort_by_key(|(brick, _)| mix(case.seed ^ u64::from(brick.0)));
        prop_assert_eq!(build_groups_near(&Placement { bricks: &shuffled, ..case.placement() }), Ok(table));
    }
}
