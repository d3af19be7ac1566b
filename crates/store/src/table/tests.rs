//! A power cut leaves each descriptor as it was before or after, never both: pages are torn and damaged, and what is
//! read back is compared.

use std::collections::BTreeMap;

use proptest::prelude::*;
use types::{GroupId, ObjectId, Seq};
use world::World;
use world::sim::{SimOptions, Simulation};

use super::*;
use crate::descriptor::Base;
use crate::space::Run;

const PAGES: u32 = 24;
const SALT: u32 = 77;
/// Keys that the tests use.
const KEYS: u64 = 60;

fn key(n: u64) -> StripeKey {
    StripeKey { object: ObjectId(1 + n / 8), stripe: n % 8 }
}

/// A descriptor that tells its version.
fn descriptor(n: u64, version: u64, blocks: u32) -> Descriptor {
    let base = Base {
        identity: Seq(version),
        blocks,
        runs: vec![Run { start: version, blocks }],
        crcs: (0..blocks).map(|i| i ^ version as u32).collect(),
        unit_blocks: vec![blocks],
        identities: Vec::new(),
    };
    Descriptor { key: key(n), group: GroupId::default(), slot: 1, base }
}

async fn open(world: &World, salt: u32) -> Table {
    let disk = match world.open_disk("disk").await {
        Ok(disk) => disk,
        Err(_) => world.create_disk("disk", 1 << 20).await.expect("a new disk"),
    };
    // A small cache: most reads come from the disk.
    Table::open(disk, 8192, PAGES, salt, 4).await.expect("a table opens")
}

#[derive(Clone, Debug)]
struct Batch {
    /// Key, and blocks of its new descriptor; `None` erases it.
    changes: BTreeMap<u64, Option<u32>>,
    /// The power fails so long after the batch has begun, in microseconds.
    cut: Option<u64>,
    /// Then again while the table opens.
    again: Option<u64>,
}

fn batch() -> impl Strategy<Value = Batch> {
    // Sizes of several classes; the largest takes a quarter of a page.
    let blocks = prop_oneof![4 => 1u32..12, 2 => 12u32..100, 1 => 300u32..450];
    let change = (0..KEYS, prop::option::weighted(0.7, blocks));
    let changes = proptest::collection::btree_map(0..KEYS, change.prop_map(|(_, blocks)| blocks), 0..20);
    (changes, prop::option::of(0u64..300), prop::option::weighted(0.3, 0u64..3000))
        .prop_map(|(changes, cut, again)| Batch { changes, cut, again })
}

/// Versions that a key may show: 0 for none.
type May = BTreeMap<u64, Vec<(u64, u32)>>;

async fn check(table: &Table, may: &mut May) {
    let mut at_rest: BTreeMap<StripeKey, u64> = BTreeMap::new();
    table
        .for_each(|found| {
            assert!(at_rest.insert(found.key, found.base.identity.0).is_none(), "{} stands twice", found.key);
        })
        .await
        .expect("readable");
    let mut known = 0;
    for n in 0..KEYS {
        let found = table.find(key(n)).await.expect("readable");
        let shown = found.as_ref().map_or((0, 0), |found| (found.base.identity.0, found.base.blocks));
        let allowed = may.entry(n).or_insert_with(|| vec![(0, 0)]);
        assert!(allowed.contains(&shown), "{}: {shown:?} is none of {allowed:?}", key(n));
        assert_eq!(at_rest.get(&key(n)).copied().unwrap_or(0), shown.0, "a scan finds the same");
        if let Some(found) = found {
            assert!(found == descriptor(n, shown.0, shown.1), "whole");
            known += 1;
        }
        *allowed = vec![shown];
    }
    assert_eq!(table.len(), known);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A power cut while pages are written leaves every unit with its descriptor from before or after (or, if that was
    /// to move to another page, with none: the journal still has it), never with two, and none that was erased and
    /// synced comes back. What is read once stays.
    #[test]
    fn old_or_new_and_never_both(seed: u64, batches in proptest::collection::vec(batch(), 1..20)) {
        let sim = Simulation::new(seed, SimOptions::default());
        let driver = sim.node("driver");
        sim.block_on("driver", async {
            let mut may = May::new();
            let mut table = open(&sim.node("brick"), SALT).await;
            for (version, batch) in (1u64..).zip(&batches) {
                let mut changes = Vec::new();
                for (n, blocks) in &batch.changes {
                    let new = blocks.map_or((0, 0), |blocks| (version, blocks));
                    let old = may.entry(*n).or_insert_with(|| vec![(0, 0)]).clone();
                    let moves = old[0].0 != 0 && new.0 != 0
                        && class_of(&descriptor(*n, 1, old[0].1)) != class_of(&descriptor(*n, 1, new.1));
                    let between = moves.then_some((0, 0));
                    may.insert(*n, old.into_iter().chain([new]).chain(between).collect());
                    let descriptor = blocks.map(|blocks| descriptor(*n, version, blocks));
                    changes.push(Change { key: key(*n), descriptor, is_new: false });
                }
                let Some(us) = batch.cut else {
                    table.write(changes).await.expect("there is room");
                    table.disk.sync().await.expect("synced");
                    for n in batch.changes.keys() {
                        may.entry(*n).and_modify(|all| {
                            let new = batch.changes[n].map_or((0, 0), |blocks| (version, blocks));
                            *all = vec![new];
                        });
                    }
                    check(&table, &mut may).await;
                    continue;
                };
                let _ = driver.timeout(us, table.write(changes)).await;
                drop(table);
                sim.power_cut("brick");
                if let Some(us) = batch.again {
                    let world = sim.node("brick");
                    let _ = driver.timeout(us, open(&world, SALT)).await;
                    sim.power_cut("brick");
                }
                table = open(&sim.node("brick"), SALT).await;
                // As a recovery does.
                table.disk.sync().await.expect("synced");
                check(&table, &mut may).await;
            }
        });
    }
}

/// Runs a story with a fresh table.
fn simulate(story: impl AsyncFnOnce(&Simulation, Table)) {
    let sim = Simulation::new(1, SimOptions::default());
    sim.node("driver");
    sim.block_on("driver", async {
        let table = open(&sim.node("brick"), SALT).await;
        story(&sim, table).await;
    });
}

async fn put(table: &Table, keys: std::ops::Range<u64>, blocks: Option<u32>) {
    let changes =
        keys.map(|n| Change { key: key(n), descriptor: blocks.map(|b| descriptor(n, 1, b)), is_new: false });
    table.write(changes.collect()).await.expect("there is room");
    table.disk.sync().await.expect("synced");
}

/// Every class can have every page, one after the other.
#[test]
fn empty_pages_serve_other_classes() {
    simulate(async |sim, table| {
        let mut table = table;
        for blocks in [1, 40, 1000, 500, 2, 1024] {
            let class = class_of(&descriptor(0, 1, blocks));
            let room = table.room(class) as u64;
            assert!(
                room >= u64::from((PAGES - CLASSES as u32) * entries_of(class)),
                "{room} of {blocks} blocks"
            );
            put(&table, 0..room, Some(blocks)).await;
            assert_eq!(table.len() as u64, room);
            drop(table);
            sim.power_cut("brick");
            table = open(&sim.node("brick"), SALT).await;
            assert_eq!(table.len() as u64, room);
            put(&table, 0..room, None).await;
            assert_eq!(table.len(), 0);
        }
    });
}

#[test]
fn pages_of_another_brick_mean_nothing() {
    simulate(async |sim, table| {
        put(&table, 0..KEYS, Some(3)).await;
        drop(table);
        sim.kill("brick");
        assert_eq!(open(&sim.node("brick"), SALT + 1).await.len(), 0);
    });
}

/// A page that is damaged at rest shows its older version, if that is still there. This weakness is known.
#[test]
fn a_damaged_page_shows_the_one_before() {
    simulate(async |sim, table| {
        put(&table, 0..1, Some(3)).await;
        put(&table, 1..2, Some(3)).await;
        drop(table);
        sim.kill("brick");
        // The second version lies in the first place.
        sim.damage("brick", "disk", 8192, 100);
        let table = open(&sim.node("brick"), SALT).await;
        assert!(table.find(key(0)).await.expect("readable").is_some());
        assert!(table.find(key(1)).await.expect("readable").is_none());
    });
}

/// A later write of the same place that is torn as well must not complete what an earlier one left.
#[test]
fn a_torn_copy_cannot_be_completed_later() {
    simulate(async |sim, table| {
        // Two of these share each half of a page.
        const LARGE: Option<u32> = Some(400);
        put(&table, 0..2, LARGE).await;
        put(&table, 2..3, LARGE).await;
        put(&table, 2..3, None).await;
        let older = table.disk.read(8192, PAGE).await.expect("readable");
        put(&table, 0..1, None).await;
        let newer = table.disk.read(8192, PAGE).await.expect("readable");
        assert_ne!(older[BLOCK..], newer[BLOCK..]);
        // The power fails while the last write has reached its first half, and again while the next one has reached its
        // second half, which is the same.
        table.disk.write(8192 + BLOCK as u64, vec![older.slice(BLOCK..PAGE)]).await.expect("written");
        table.disk.sync().await.expect("synced");
        drop(table);
        sim.kill("brick");
        let table = open(&sim.node("brick"), SALT).await;
        assert!(table.find(key(0)).await.expect("readable").is_some());
        table.disk.write(8192 + BLOCK as u64, vec![newer.slice(BLOCK..PAGE)]).await.expect("written");
        table.disk.sync().await.expect("synced");
        drop(table);
        sim.kill("brick");
        let table = open(&sim.node("brick"), SALT).await;
        assert!(table.find(key(0)).await.expect("readable").is_some(), "what was seen stays");
    });
}
