//! A patch is on all its slots or on none: slots are lost at every stage of it, a block is damaged, or a journal is
//! full, and every byte is compared after the take-over.

mod verify;

use types::Seq;
use types::messages::brick::OpKind;

use super::cluster::{TestCluster, node};
use super::*;
use crate::pressure::Pressure;

const UNIT: usize = 32 << 10;
const K: usize = 2;
const KEY: StripeKey = StripeKey { object: ObjectId(1), stripe: 0 };
/// Bricks idle for a second fold, and look every fifth of one.
const ALMOST_IDLE_US: u64 = 900_000;
const FOLDED_US: u64 = 4_000_000;

/// How far a patch has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    SomeHold,
    AllHold,
    SomeDecided,
}

/// What happens then.
#[derive(Clone, Copy, Debug)]
enum Fault {
    PowerCutOfAll,
    PowerCut(usize),
    Lost(usize),
}

fn cluster(seed: u64, m: usize) -> TestCluster {
    let code = Code::new(K as u8, m as u8).expect("a code");
    TestCluster::of(seed, Geometry::new(code, UNIT as u32, 64).expect("a geometry"), 0, 512)
}

impl TestCluster {
    fn inject(&self, fault: Fault) {
        let struck = match fault {
            Fault::PowerCutOfAll => 0..self.geometry.code().slots(),
            Fault::PowerCut(brick) => brick..brick + 1,
            Fault::Lost(brick) => return self.crash_and_expire(brick),
        };
        struck.clone().for_each(|brick| self.crash(brick, true));
        struck.for_each(|brick| self.start(brick));
    }

    /// How far the patch has come, `patch` its number once that was seen.
    fn stage(&self, patch: &mut Option<Seq>) -> Option<Stage> {
        let servers = self.servers.borrow();
        let held = |server: &Rc<Server>| {
            let tail = server.slot.borrow().tail(GROUP, 0);
            tail.held.iter().find(|op| op.kind == OpKind::Patch).map(|op| op.seq)
        };
        *patch = patch.or_else(|| servers.values().find_map(held));
        let seq = (*patch)?;
        let decided = |server: &&Rc<Server>| server.slot.borrow().decided(GROUP) >= seq;
        let decisions = servers.values().filter(decided).count();
        let holders = servers.values().filter(|s| decided(s) || held(s) == Some(seq)).count();
        match (holders, decisions) {
            (_, decisions) if decisions == servers.len() => None,
            (_, 1..) => Some(Stage::SomeDecided),
            (holders, _) if holders == servers.len() => Some(Stage::AllHold),
            _ => Some(Stage::SomeHold),
        }
    }

    /// A stripe with stable overlays in both data units, three blocks of sixteen. Returns its bytes.
    async fn overlaid(&self, client: &mut Client) -> Vec<u8> {
        let mut expected = vec![0; K * UNIT];
        let places = [(0, K * UNIT, 1), (BLOCK + 100, 200, 2), (UNIT + 3 * BLOCK + 50, 5000, 3)];
        for (offset, len, fill) in places {
            let patch = client.patch(offset, len, Some(fill));
            client.write(KEY, &patch).await.expect("room");
            client.sync().await;
            patch.apply(&mut expected);
        }
        expected
    }

    async fn same(&self, client: &Client, expected: &[u8], when: &str) {
        let mut found = client.read_stripe(KEY).await.expect("readable").to_vec();
        found.resize(expected.len(), 0);
        let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{when}: the stripe differs from here on");
    }
}

/// Strikes when a patch has come so far; then everything must be there, also without a data brick.
fn struck(seed: u64, m: usize, stage: Stage, fault: Fault) {
    let cluster = cluster(seed, m);
    let mut client = cluster.client();
    let what = format!("seed {seed}, 2+{m}, {fault:?} when {stage:?}");
    cluster.sim.block_on("client", async {
        let expected = cluster.overlaid(&mut client).await;
        client.world.sleep(ALMOST_IDLE_US).await;
        let mut patch = None;
        for _ in 0..50_000 {
            if cluster.stage(&mut patch) == Some(stage) {
                break;
            }
            client.world.sleep(10).await;
        }
        assert_eq!(cluster.stage(&mut patch), Some(stage), "{what}: the stage is reached");
        cluster.inject(fault);
        cluster.same(&client, &expected, &what).await;
        // Another fold might mend what the patch has left: every second time there is none before more is lost.
        let folds = seed.is_multiple_of(2);
        if folds {
            client.world.sleep(FOLDED_US).await;
            cluster.same(&client, &expected, &what).await;
        }
        let lost = match fault {
            Fault::Lost(brick) => Some(brick),
            _ => None,
        };
        if folds && lost.is_none() {
            assert_eq!(cluster.overlays(), 0, "{what}: what was begun is finished, or done again");
        }
        for brick in (0..K).filter(|brick| Some(*brick) != lost).take(m - usize::from(lost.is_some())) {
            cluster.crash_and_expire(brick);
            cluster.same(&client, &expected, &what).await;
        }
    });
}

fn struck_at_every_stage(m: usize) {
    for stage in [Stage::SomeHold, Stage::AllHold, Stage::SomeDecided] {
        for seed in 0..4 {
            struck(seed, m, stage, Fault::PowerCutOfAll);
            for brick in 0..K + m {
                struck(seed, m, stage, Fault::PowerCut(brick));
                struck(seed, m, stage, Fault::Lost(brick));
            }
        }
    }
}

/// A take-over by a data slot: with one parity there is no other.
#[test]
fn losses_at_every_stage_with_one_parity() {
    struck_at_every_stage(1);
}

/// A take-over by the other parity slot.
#[test]
fn losses_at_every_stage_with_two_parities() {
    struck_at_every_stage(2);
}

/// A touched block is damaged, of data or of parity: no patch can be made, the stripe is written whole.
#[test]
fn a_damaged_block_is_folded_whole() {
    for (seed, slot) in [(1, 0), (2, 1), (3, K)] {
        let cluster = cluster(seed, 1);
        let mut client = cluster.client();
        cluster.sim.block_on("client", async {
            let expected = cluster.overlaid(&mut client).await;
            client.world.sleep(50_000).await;
            let server = cluster.server(slot);
            let row = if slot == 1 { 3 } else { 1 };
            let plan = server.slot.borrow().plan_read(KEY, slot as u8, 0, 0..UNIT, None, &[]);
            let (block, _) = plan.expect("decided").blocks.1[row];
            let offset = server.superblock.data_start + block * BLOCK as u64;
            cluster.sim.damage(&node(slot), "disk", offset, 1);
            client.world.sleep(FOLDED_US).await;
            let (folded, patched) =
                (cluster.server(K).counters.folded.get(), cluster.server(K).counters.patched.get());
            assert_eq!((folded, patched, cluster.overlays()), (1, 0, 0), "slot {slot}");
            cluster.same(&client, &expected, "damaged").await;
            cluster.crash_and_expire(0);
            cluster.same(&client, &expected, "damaged, without a data brick").await;
        });
    }
}

/// A stable write is answered when every live slot holds it, not before: then it survives a power cut of everything.
#[test]
fn a_stable_write_waits_for_every_slot() {
    for seed in 0..5 {
        let cluster = cluster(seed, 1);
        let mut client = cluster.client();
        cluster.sim.block_on("client", async {
            let mut expected = cluster.overlaid(&mut client).await;
            cluster.crash(1, true);
            let patch = client.patch(UNIT + 10, 100, Some(9));
            let epoch = client.epoch();
            let waiting = client.write_stable(KEY, &patch);
            let early = client.world.timeout(800_000, waiting).await;
            assert_eq!((early, client.epoch()), (None, epoch), "a slot that takes part is away");
            cluster.start(1);
            client.write_stable(KEY, &patch).await.expect("answered");
            cluster.inject(Fault::PowerCutOfAll);
            patch.apply(&mut expected);
            cluster.same(&client, &expected, "after the power cut").await;
        });
    }
}

/// Overlays would fill a journal that is nearly full; a whole stripe goes past it.
#[test]
fn where_a_journal_is_full_a_small_write_is_written_whole() {
    for (journal_fill, overlaid) in [(0, true), (100, false)] {
        let cluster = cluster(5, 2);
        let mut client = cluster.client();
        cluster.sim.block_on("client", async {
            let base = client.patch(0, client.geometry.stripe(), Some(1));
            client.write_stable(KEY, &base).await.expect("room");
            let mut expected = vec![0; client.geometry.stripe()];
            base.apply(&mut expected);
            // Not asked again for an hour: the write gives up waiting for folds before.
            let at = client.world.now() + 3_600_000_000;
            let pressure = Pressure { free: u64::MAX, journal_fill, at };
            cluster.server(cluster.primary()).pressure.borrow_mut().insert(BrickId(0), pressure);
            let small = client.patch(UNIT - 50, 100, Some(2));
            client.write_stable(KEY, &small).await.expect("room");
            small.apply(&mut expected);
            assert_eq!(cluster.overlays() > 0, overlaid, "a journal {journal_fill} % full");
            cluster.same(&client, &expected, "written").await;
        });
    }
}

/// The fill of its own journal is what it is now, not what the answer to a primary's last operation said.
#[test]
fn a_primary_knows_how_full_it_is_itself() {
    let cluster = cluster(5, 2);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        let base = client.patch(0, client.geometry.stripe(), Some(1));
        client.write_stable(KEY, &base).await.expect("room");
        let primary = cluster.primary();
        let server = cluster.server(primary);
        server.note_pressure(server.options.brick, u64::MAX, 100);
        let small = client.patch(UNIT - 50, 100, Some(2));
        let early = client.world.timeout(1_000_000, client.write_stable(KEY, &small)).await;
        assert!(early.is_some(), "nothing is full, so there is nothing to wait for");
        assert!(cluster.overlays() > 0);
    });
}

/// A patch that failed keeps its stripe until the epoch is over: a write that overtook it would count as stable, and go
/// with what the take-over aborts.
#[test]
fn after_a_failed_patch_nothing_enters_in_its_epoch() {
    let cluster = cluster(4, 1);
    let mut client = cluster.client();
    cluster.sim.block_on("client", async {
        let mut expected = cluster.overlaid(&mut client).await;
        client.world.sleep(50_000).await;
        let server = cluster.server(0);
        let plan = server.slot.borrow().plan_read(KEY, 0, 0, 0..UNIT, None, &[]);
        let (block, _) = plan.expect("decided").blocks.1[1];
        let offset = server.superblock.data_start + block * BLOCK as u64;
        cluster.sim.damage(&node(0), "disk", offset, 1);
        cluster.refuses_renewal.set(true);
        for _ in 0..3000 {
            if cluster.server(K).unpatched.borrow().contains(&KEY) {
                break;
            }
            client.world.sleep(1000).await;
        }
        assert!(cluster.server(K).unpatched.borrow().contains(&KEY), "the patch fails");
        let epoch = client.epoch();
        let patch = client.patch(10, 100, Some(9));
        let early = client.world.timeout(500_000, client.write_stable(KEY, &patch)).await;
        assert_eq!((early, client.epoch()), (None, epoch), "nothing is stable in the failed epoch");
        cluster.refuses_renewal.set(false);
        client.write_stable(KEY, &patch).await.expect("answered");
        assert!(client.epoch() > epoch);
        patch.apply(&mut expected);
        cluster.same(&client, &expected, "in the next epoch").await;
        client.world.sleep(FOLDED_US).await;
        cluster.same(&client, &expected, "folded").await;
        assert_eq!(cluster.overlays(), 0);
    });
}
