//! A group that has lost its parity: overlays from before, of which the data slot that leads it knows nothing, are folded
//! all the same.

use types::limits::UNFOLDED_MAX;
use types::messages::brick::Unfolded;

use super::fleet::{Fleet, UNIT, Work};
use super::*;

const STRIPES: u64 = 6;
/// An idle second, one until the next message, and the fold.
const FOLDED_US: u64 = 5_000_000;

fn key(stripe: u64) -> StripeKey {
    StripeKey { object: ObjectId(1), stripe }
}

impl Fleet {
    /// Overlays that a brick has.
    fn overlays_of(&self, brick: usize) -> usize {
        self.server(brick).slot.borrow().resident().1
    }

    /// Operations that a brick has ordered.
    fn ordered(&self, brick: usize) -> u64 {
        self.server(brick).counters.ordered.get()
    }

    /// Every stripe has an overlay over its last data unit, and slot 0 leads: the parity is gone.
    async fn lose_parity(&self, work: &mut Work) {
        let code = self.geometry.code();
        for stripe in 0..STRIPES {
            work.write_whole(key(stripe), 1 + stripe as u8).await;
            work.write(key(stripe), (code.k() - 1) * UNIT + 100, 50, Some(99)).await;
        }
        (code.k()..code.slots()).for_each(|slot| self.away(slot));
        work.compare("without parity").await;
        assert_eq!(self.primary(), 0);
        assert_eq!((self.overlays_of(0), self.overlays_of(code.k() - 1)), (0, STRIPES as usize));
    }
}

/// Also where so few slots are left that nothing can be written.
#[test]
fn overlays_that_only_other_data_slots_have_are_folded() {
    for (k, m) in [(2, 1), (3, 1), (2, 2)] {
        let what = format!("{k}+{m}");
        let fleet = Fleet::new(7, k, m, 0, 1024);
        let mut work = Work::new(&fleet);
        fleet.sim.block_on("client", async {
            fleet.lose_parity(&mut work).await;
            work.client.world.sleep(FOLDED_US).await;
            assert_eq!(fleet.overlays(), 0, "{what}: everything is folded");
            assert_eq!(fleet.server(0).counters.folded.get(), STRIPES, "{what}: once");
            work.compare(&what).await;
            (k..k + m).for_each(|slot| fleet.start(slot));
            for slot in k..k + m {
                fleet.wait_live(&work.client.world, slot, &what).await;
            }
            fleet.compare_without_others(&work, k, &what).await;
        });
    }
}

/// A message is a hint: it may come late, again, to the wrong brick, or name what there is not.
#[test]
fn what_is_told_and_not_so_changes_nothing() {
    let fleet = Fleet::new(8, 2, 1, 0, 1024);
    let mut work = Work::new(&fleet);
    fleet.sim.block_on("client", async {
        fleet.lose_parity(&mut work).await;
        work.client.world.sleep(FOLDED_US).await;
        let before = (fleet.ordered(0), fleet.ordered(1));
        let elsewhere = GroupId { volume: VolumeId(77), index: 5 };
        let stranger = StripeKey { object: ObjectId(400), stripe: 3 };
        let mut stripes: Vec<(GroupId, StripeKey)> =
            (0..STRIPES).map(|stripe| (GROUP, key(stripe))).collect();
        stripes.extend([(GROUP, stranger), (elsewhere, stranger), (elsewhere, key(70))]);
        for _ in 0..3 {
            for brick in [0, 1] {
                fleet.server(brick).unfolded(Unfolded { stripes: stripes.clone() }).expect("noted");
            }
            work.client.world.sleep(FOLDED_US / 2).await;
        }
        assert_eq!((fleet.ordered(0), fleet.ordered(1)), before, "nothing was ordered");
        assert!(
            [0, 1].iter().all(|brick| fleet.server(*brick).unfolded.borrow().is_empty()),
            "nothing is kept"
        );
        work.compare("told in vain").await;
    });
}

/// Whatever is told, a primary notes a bounded part of it; and a slot with much to tell does so in turn.
#[test]
fn what_is_told_is_bounded() {
    let fleet = Fleet::new(9, 2, 1, 0, 1024);
    let mut work = Work::new(&fleet);
    fleet.sim.block_on("client", async {
        fleet.lose_parity(&mut work).await;
        {
            let (server, epoch) = (fleet.server(1), work.client.epoch());
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
        let server = fleet.server(0);
        assert_eq!(server.unfolded(told(100, UNFOLDED_MAX + 1)), Err(Refusal::Malformed));
        for n in 0..20 {
            server.unfolded(told(100 + n * UNFOLDED_MAX as u64, UNFOLDED_MAX)).expect("noted in part");
        }
        assert_eq!(server.unfolded.borrow().len(), 4 * UNFOLDED_MAX);
        work.client.world.sleep(4 * FOLDED_US).await;
        assert_eq!((fleet.overlays(), server.unfolded.borrow().len()), (0, 0));
        work.compare("told too much").await;
    });
}

/// Messages are lost with whoever is struck, and epochs end. In the end everything is folded, and nothing is lost.
#[test]
fn whoever_is_struck_everything_is_folded() {
    for seed in 0..20 {
        let (k, m) = [(2, 1), (3, 1)][seed as usize % 2];
        let what = format!("seed {seed}, {k}+{m}");
        let fleet = Fleet::new(seed, k, m, 0, 1024);
        let mut work = Work::new(&fleet);
        fleet.sim.block_on("client", async {
            work.steps(&fleet, 30).await;
            fleet.away(k);
            for _ in 0..5 {
                work.client.world.sleep(work.below(1_500_000) as u64).await;
                let (struck, power) = (work.below(k), work.below(2) == 0);
                fleet.strike(struck, power);
                work.client.world.sleep(work.below(100_000) as u64).await;
                fleet.start(struck);
                if work.below(2) == 0 {
                    work.step(&fleet).await;
                }
            }
            work.client.world.sleep(2 * FOLDED_US).await;
            assert_eq!(fleet.overlays(), 0, "{what}: everything is folded");
            work.compare(&what).await;
            fleet.start(k);
            fleet.comes_back(&work, k, &what).await;
        });
    }
}
