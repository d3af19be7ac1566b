//! Groups keep their units in different failure domains, and every brick has its share: tables for many clusters are
//! made, and slots are counted.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn code(text: &str) -> Code {
    text.parse().expect("code")
}

/// One node for each entry, with so many bricks.
fn cluster(nodes: &[usize]) -> Vec<(BrickId, NodeId)> {
    let nodes = nodes.iter().enumerate().flat_map(|(node, &bricks)| vec![NodeId(node as u32 + 1); bricks]);
    nodes.enumerate().map(|(brick, node)| (BrickId(brick as u32 * 7 + 3), node)).collect()
}

/// How often each brick has a slot within `slots`.
fn count(table: &[Vec<BrickId>], slots: std::ops::Range<usize>) -> BTreeMap<BrickId, usize> {
    let mut counts: BTreeMap<BrickId, usize> = table.iter().flatten().map(|&brick| (brick, 0)).collect();
    table
        .iter()
        .flat_map(|group| &group[slots.clone()])
        .for_each(|brick| *counts.entry(*brick).or_default() += 1);
    counts
}

fn spread(counts: &BTreeMap<BrickId, usize>) -> usize {
    counts.values().max().expect("bricks") - counts.values().min().expect("bricks")
}

/// How often each pair of bricks is in one group.
fn pairs(table: &[Vec<BrickId>]) -> BTreeMap<(BrickId, BrickId), usize> {
    let mut pairs = BTreeMap::new();
    for group in table {
        for a in group {
            group.iter().filter(|b| a < b).for_each(|b| *pairs.entry((*a, *b)).or_default() += 1);
        }
    }
    pairs
}

#[test]
fn the_fitting_number_makes_all_shares_equal() {
    for (text, bricks) in
        [("8+2", 10), ("8+2", 12), ("2+1", 3), ("2+1", 7), ("1+2", 5), ("4+0", 9), ("1+0", 4)]
    {
        let code = code(text);
        let groups = groups_for(code, bricks);
        assert_eq!(groups as usize % bricks, 0);
        let table = build_groups(code, &cluster(&vec![1; bricks]), groups, false).expect("fits");
        for slot in 0..code.slots() {
            assert_eq!(spread(&count(&table, slot..slot + 1)), 0, "{code} on {bricks}, slot {slot}");
        }
    }
}

#[test]
fn the_fitting_number_stays_within_limits() {
    for bricks in [0, 1, 2, 3, 100, 1000, 4095, 4096, 100_000] {
        for text in ["1+0", "2+1", "8+2", "32+6"] {
            let groups = groups_for(code(text), bricks);
            assert!((1..=GROUPS_MAX).contains(&groups), "{text} on {bricks}: {groups}");
        }
    }
    assert_eq!(groups_for(code("8+2"), 10), 40);
    assert_eq!(groups_for(code("2+1"), 3), 42);
}

#[test]
fn peers_are_spread() {
    for (text, bricks) in [("2+1", 12), ("4+2", 12), ("8+2", 20), ("1+1", 16), ("8+2", 40)] {
        let code = code(text);
        let groups = groups_for(code, bricks);
        let table = build_groups(code, &cluster(&vec![1; bricks]), groups, false).expect("fits");
        let pairs = pairs(&table);
        let possible = bricks * (bricks - 1) / 2;
        let even = (groups as usize * code.slots() * (code.slots() - 1) / 2) as f64 / possible as f64;
        assert_eq!(pairs.len(), possible, "{code} on {bricks}: every pair meets");
        let (least, most) = (pairs.values().min().expect("pairs"), pairs.values().max().expect("pairs"));
        assert!(
            *most as f64 <= even * 1.5 + 1.0 && *least as f64 >= even * 0.5 - 1.0,
            "{least}..{most} of {even}"
        );
    }
}

#[test]
fn bricks_of_one_node_share_its_load() {
    let table = build_groups(code("1+1"), &cluster(&[3, 1]), 24, false).expect("fits");
    let counts: Vec<usize> = count(&table, 0..2).into_values().collect();
    assert_eq!(counts, [8, 8, 8, 24]);
    let counts: Vec<usize> = count(&table, 1..2).into_values().collect();
    assert_eq!(counts, [4, 4, 4, 12]);
}

#[test]
fn one_node_with_many_bricks_may_stand_for_many() {
    let bricks = cluster(&[10]);
    assert!(build_groups(code("8+2"), &bricks, 40, false).is_err());
    let table = build_groups(code("8+2"), &bricks, 40, true).expect("fits");
    assert_eq!(spread(&count(&table, 8..9)), 0);
}

#[test]
fn errors_say_what_to_do() {
    let text = |code_text: &str, nodes: &[usize], same_node| {
        let refused = build_groups(code(code_text), &cluster(nodes), 8, same_node);
        refused.expect_err("does not fit").to_string()
    };
    assert_eq!(
        text("8+2", &[3, 3, 3, 3], false),
        "8+2 needs 10 failure domains, there are 4 (use --same-node to count bricks): 2+2 or 3+1 would fit"
    );
    assert_eq!(
        text("8+2", &[1; 4], false),
        "8+2 needs 10 failure domains, there are 4: 2+2 or 3+1 would fit"
    );
    assert_eq!(text("2+1", &[2], true), "2+1 needs 3 failure domains, there are 2: 1+1 would fit");
    assert_eq!(
        text("2+1", &[4], false),
        "2+1 needs 3 failure domains, there is 1 (use --same-node to count bricks): 1+0 would fit"
    );
    assert_eq!(text("4+0", &[1, 1], false), "4+0 needs 4 failure domains, there are 2: 2+0 would fit");
    assert_eq!(text("1+0", &[], false), "1+0 needs 1 failure domain, there are 0");
    let bricks = cluster(&[1, 1]);
    assert_eq!(build_groups(code("1+1"), &bricks, 0, false), Err(PlacementError::GroupsOutOfRange(0)));
    let twice = [bricks[0], bricks[1], (bricks[0].0, NodeId(9))];
    let refused = build_groups(code("1+1"), &twice, 8, false).expect_err("named twice");
    assert_eq!(refused.to_string(), "brick b3 is named twice");
}

/// If this fails, the table has changed. Tables are stored, so old volumes do not mind; simulations and tests may.
#[test]
fn golden_table() {
    let table = build_groups(code("2+1"), &cluster(&[1, 1, 1, 1]), 4, false).expect("fits");
    let table: Vec<Vec<u32>> =
        table.iter().map(|group| group.iter().map(|brick| brick.0).collect()).collect();
    assert_eq!(table, [[10, 24, 17], [24, 17, 3], [3, 10, 24], [17, 3, 10]]);
}

/// Clusters of all shapes, a code that fits them, and a number of groups.
fn placements() -> impl Strategy<Value = (Code, Vec<(BrickId, NodeId)>, u32, bool, u64)> {
    (prop::collection::vec(1usize..5, 1..16), any::<bool>(), 1u32..130, any::<u64>(), 0u8..=6).prop_map(
        |(nodes, same_node, groups, seed, m)| {
            let bricks = cluster(&nodes);
            let domains = if same_node { bricks.len() } else { nodes.len() };
            let m = m.min(domains as u8 - 1);
            let k = 1 + seed as usize % (domains - usize::from(m)).min(32);
            (Code::new(k as u8, m).expect("in range"), bricks, groups, same_node, seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tables_are_safe_fair_and_the_same_in_any_order((code, bricks, groups, same_node, seed) in placements()) {
        let table = build_groups(code, &bricks, groups, same_node).expect("fits");
        prop_assert_eq!(table.len(), groups as usize);
        let node_of: BTreeMap<BrickId, NodeId> = bricks.iter().copied().collect();
        for group in &table {
            prop_assert_eq!(group.len(), code.slots());
            let domains: BTreeSet<Domain> =
                group.iter().map(|&brick| Domain::of(brick, node_of[&brick], same_node)).collect();
            prop_assert_eq!(domains.len(), code.slots());
        }
        // Every slot, and parity as a whole, is a brick's share of its groups, rounded up or down.
        let all = count(&table, 0..code.slots());
        let parity = count(&table, code.k()..code.slots());
        for (brick, &member) in &all {
            let share = member * code.m();
            prop_assert!((share / code.slots()..=share.div_ceil(code.slots())).contains(&parity[brick]));
        }
        for slot in 0..code.slots() {
            for (brick, had) in count(&table, slot..slot + 1) {
                let member = all[&brick];
                prop_assert!((member / code.slots()..=member.div_ceil(code.slots())).contains(&had));
            }
        }
        let mut shuffled = bricks.clone();
        shuffled.sort_by_key(|(brick, _)| crate::mix(seed ^ u64::from(brick.0)));
        prop_assert_eq!(build_groups(code, &shuffled, groups, same_node).expect("fits"), table);
    }

    #[test]
    fn equal_domains_get_equal_shares(nodes in 1usize..24, each in 1usize..4, groups in 1u32..200, seed in any::<u64>()) {
        let bricks = cluster(&vec![each; nodes]);
        let m = (seed >> 32) as usize % nodes.min(7);
        let k = 1 + seed as usize % (nodes - m);
        let code = Code::new(k as u8, m as u8).expect("in range");
        let table = build_groups(code, &bricks, groups, false).expect("fits");
        let mut members = count(&table, 0..code.slots());
        bricks.iter().for_each(|(brick, _)| { members.entry(*brick).or_default(); });
        prop_assert!(spread(&members) <= 1, "members {members:?}");
        let primary = if code.m() > 0 { code.k() } else { 0 };
        for slot in [0, primary] {
            let mut had = count(&table, slot..slot + 1);
            bricks.iter().for_each(|(brick, _)| { had.entry(*brick).or_default(); });
            prop_assert!(spread(&had) <= 1, "slot {slot}: {had:?}");
        }
    }
}
