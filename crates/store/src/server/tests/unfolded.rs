//! A group that has lost its parity folds all overlays all the same: its leader knows nothing of those of other slots,
//! messages about them are lost or wrong, and every byte is compared.

use types::limits::UNFOLDED_MAX;
use types::messages::brick::Unfolded;

use super::cluster::{TestCluster, UNIT, Workload};
use super::*;

const STRIPES: u64 = 6;
/// An idle second, one until the next message, and the fold.
const FOLDED_US: u64 = 5_000_000;

fn key(stripe: u64) -> StripeKey {
    StripeKey { object: ObjectId(1), stripe }
}

impl TestCluster {
    /// Overlays that a brick has.
    fn overlays_of(&self, brick: usize) -> usize {
        self.server(brick).slot.borrow().resident().1
    }

    /// Operations that a brick has ordered.
    fn ordered(&self, brick: usize) -> u64 {
        self.server(brick).counters.ordered.get()
    }

    /// Every stripe has an overlay over its last data unit, and slot 0 leads: the parity is gone.
    async fn lose_parity(&self, workload: &mut Workload) {
        let code = self.geometry.code();
        for stripe in 0..STRIPES {
            workload.write_whole(key(stripe), 1 + stripe as u8).await;
            workload.write(key(stripe), (code.k() - 1) * UNIT + 100, 50, Some(99)).await;
        }
        (code.k()..code.slots()).for_each(|slot| self.crash_and_expire(slot));
        workload.compare("without parity").await;
        assert_eq!(self.primary(), 0);
        assert_eq!((self.overlays_of(0), self.overlays_of(code.k() - 1)), (0, STRIPES as usize));
    }
}

/// Also where so few slots are left that nothing can be written.
#[test]
fn overlays_that_only_other_data_slots_have_are_folded() {
    for (k, m) in [(2, 1), (3, 1), (2, 2)] {
        let what = format!("{k}+{m}");
        let cluster = TestCluster::new(7, k, m, 0, 1024);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            cluster.lose_parity(&mut workload).await;
            workload.client.world.sleep(FOLDED_US).await;
            assert_eq!(cluster.overlays(), 0, "{what}: everything is folded");
            assert_eq!(cluster.server(0).counters.folded.get(), STRIPES, "{what}: once");
            workload.compare(&what).await;
            (k..k + m).for_each(|slot| cluster.start(slot));
            for slot in k..k + m {
                cluster.wait_live(&workload.client.world, slot, &what).await;
            }
            cluster.compare_without_others(&workload, k, &what).await;
        });
    }
}

/// A message is a hint: it may come late, again, to the wrong brick, or name what there is not.
#[test]
fn what_is_told_and_not_so_changes_nothing() {
    let cluster = TestCluster::new(8, 2, 1, 0, 1024);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        cluster.lose_parity(&mut workload).await;
        workload.client.world.sleep(FOLDED_US).await;
        let before = (cluster.ordered(0), cluster.ordered(1));
        let elsewhere = GroupId { volume: VolumeId(77), index: 5 };
        let stranger = StripeKey { object: ObjectId(400), stripe: 3 };
        let mut stripes: Vec<(GroupId, StripeKey)> =
            (0..STRIPES).map(|stripe| (GROUP, key(stripe))).collect();
        stripes.extend([(GROUP, stranger), (elsewhere, stranger), (elsewhere, key(70))]);
        for _ in 0..3 {
            for brick in [0, 1] {
                cluster.server(brick).unfolded(Unfolded { stripes: stripes.clone() }).expect("noted");
            }
            workload.client.world.sleep(FOLDED_US / 2).await;
        }
        assert_eq!((cluster.ordered(0), cluster.ordered(1)), before, "nothing was ordered");
        assert!(
            [0, 1].iter().all(|brick| cluster.server(*brick).unfolded.borrow().is_empty()),
            "nothing is kept"
        );
        workload.compare("told in vain").await;
    });
}

/// Whatever is told, a primary notes a bounded part of it; and a slot with much to tell does so in turn.
#[test]
fn what_is_told_is_bounded() {
    let cluster = TestCluster::new(9, 2, 1, 0, 1024);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        cluster.lose_parity(&mut workload).await;
        {
            let (server, epoch) = (cluster.server(1), workload.client.epoch());
            let slot = server.slot.borrow();
            let page = |after, max| -> Vec<StripeKey> {
                let found = slot.overlaid_before(|id| (id == GROUP).then_some(epoch), after, max);
                found.into_iter().map(|(key, _)| key).collect()
            };
            assert_eq!(page(None, 4), [0, 1, 2, 3].map(key));
            assert_eq!(page(Some(key(3)), 4), [4, 5].map(key));
            assert!(slot.overlaid_before(|_| None, None, 4).is_empty(), "of no group");
            let written = Epoch(epoch.0 - 1);
            assert!(slot.overlaid_before(|_| Some(written), None, 4).is_empty(), "its primary knows them");
        }
        let told = |first: u64, stripes: usize| Unfolded {
            stripes: (first..).take(stripes).map(|stripe| (GROUP, key(stripe))).collect(),
        };
        let server = cluster.server(0);
        assert_eq!(server.unfolded(told(100, UNFOLDED_MAX + 1)), Err(Refusal::Malformed));
        for n in 0..20 {
            server.unfolded(told(100 + n * UNFOLDED_MAX as u64, UNFOLDED_MAX)).expect("noted in part");
        }
        assert_eq!(server.unfolded.borrow().len(), 4 * UNFOLDED_MAX);
        workload.client.world.sleep(4 * FOLDED_US).await;
        assert_eq!((cluster.overlays(), server.unfolded.borrow().len()), (0, 0));
        workload.compare("told too much").await;
    });
}

/// Messages are lost with whoever is struck, and epochs end. In the end everything is folded, and nothing is lost.
#[test]
fn whoever_is_struck_everything_is_folded() {
    for seed in 0..20 {
        let (k, m) = [(2, 1), (3, 1)][seed as usize % 2];
        let what = format!("seed {seed}, {k}+{m}");
        let cluster = TestCluster::new(seed, k, m, 0, 1024);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.steps(&cluster, 30).await;
            cluster.crash_and_expire(k);
            for _ in 0..5 {
                workload.client.world.sleep(workload.below(1_500_000) as u64).await;
                let (struck, power) = (workload.below(k), workload.below(2) == 0);
                cluster.crash(struck, power);
                workload.client.world.sleep(workload.below(100_000) as u64).await;
                cluster.start(struck);
                if workload.below(2) == 0 {
                    workload.step(&cluster).await;
                }
            }
            workload.client.world.sleep(2 * FOLDED_US).await;
            assert_eq!(cluster.overlays(), 0, "{what}: everything is folded");
            workload.compare(&what).await;
            cluster.start(k);
            cluster.wait_rejoined(&workload, k, &what).await;
        });
    }
}
