//! A brick that was away is brought level and admitted, and is then as good as any other: anybody is struck meanwhile,
//! then M other bricks are taken away and every byte is compared.

use types::Seq;
use types::messages::brick::{UnitList, Verify};

use super::cluster::{AdmitBehavior, TestCluster, UNIT, Workload};
use super::*;

const CODES: [(usize, usize); 3] = [(2, 1), (2, 2), (1, 2)];
const ROOM: u64 = 1024;

fn key(stripe: u64) -> StripeKey {
    StripeKey { object: ObjectId(1), stripe }
}

/// Times by which `SHOAL_SEEDS` makes the tests with seeds longer.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let times: u64 = std::env::var("SHOAL_SEEDS").map_or(1, |text| text.parse().expect("a number"));
    let first: u64 = std::env::var("SHOAL_SEED").map_or(0, |text| text.parse().expect("a number"));
    first..first + few * times
}

/// Every slot in turn is away, while all kinds of things happen.
#[test]
fn what_a_slot_has_missed_is_filled() {
    for seed in seeds(4) {
        for (k, m) in CODES {
            for slot in 0..k + m {
                let what = format!("seed {seed}, {k}+{m}, slot {slot}");
                let cluster = TestCluster::new(seed, k, m, 0, ROOM);
                let mut workload = Workload::new(&cluster);
                cluster.sim.block_on("client", async {
                    workload.steps(&cluster, 30).await;
                    cluster.crash_and_expire(slot);
                    workload.steps(&cluster, 5 + seed as usize * 10).await;
                    cluster.start(slot);
                    cluster.wait_rejoined(&workload, slot, &what).await;
                    workload.assert_forgotten(&cluster.server(slot), slot, &what);
                });
            }
        }
    }
}

/// The workload goes on while the slot is brought level.
#[test]
fn operations_go_on_while_a_slot_is_brought_level() {
    for seed in seeds(8) {
        for (k, m) in CODES {
            let slot = seed as usize % (k + m);
            let what = format!("seed {seed}, {k}+{m}, slot {slot}");
            let cluster = TestCluster::new(seed, k, m, 0, ROOM);
            let mut workload = Workload::new(&cluster);
            cluster.sim.block_on("client", async {
                workload.steps(&cluster, 30).await;
                cluster.crash_and_expire(slot);
                workload.steps(&cluster, 20).await;
                cluster.start(slot);
                let give_up = workload.client.world.now() + 60_000_000;
                while !cluster.is_live(slot) {
                    assert!(workload.client.world.now() < give_up, "{what}: live although there is work");
                    workload.step(&cluster).await;
                }
                workload.steps(&cluster, 10).await;
                cluster.compare_without_others(&workload, slot, &what).await;
            });
        }
    }
}

/// The slot's brick, or the primary, or everybody loses power or is killed at any time, again and again.
#[test]
fn a_slot_is_brought_level_whoever_is_struck_meanwhile() {
    for seed in seeds(30) {
        let (k, m) = CODES[seed as usize % CODES.len()];
        let slot = seed as usize / 3 % (k + m);
        let what = format!("seed {seed}, {k}+{m}, slot {slot}");
        let cluster = TestCluster::new(seed, k, m, 0, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.steps(&cluster, 40).await;
            cluster.crash_and_expire(slot);
            workload.steps(&cluster, 30).await;
            cluster.start(slot);
            for _ in 0..6 {
                workload.client.world.sleep(workload.below(500_000) as u64).await;
                let power = workload.below(2) == 0;
                let struck: Vec<usize> = match workload.below(5) {
                    0 | 1 => vec![slot],
                    2 | 3 => vec![cluster.primary()],
                    _ => (0..k + m).collect(),
                };
                struck.iter().for_each(|brick| cluster.crash(*brick, power));
                workload.client.world.sleep(workload.below(100_000) as u64).await;
                struck.iter().for_each(|brick| cluster.start(*brick));
                if workload.below(2) == 0 {
                    workload.step(&cluster).await;
                }
            }
            cluster.wait_rejoined(&workload, slot, &what).await;
            workload.assert_forgotten(&cluster.server(slot), slot, &what);
        });
    }
}

/// The slot's brick ends while stripes are folded for it. What was ordered is decided all the same: otherwise every later
/// attempt would wait for it without end.
#[test]
fn a_slot_that_goes_during_folds_leaves_nothing_undecided() {
    for seed in seeds(12) {
        let (k, m) = CODES[seed as usize % CODES.len()];
        let what = format!("seed {seed}, {k}+{m}");
        let cluster = TestCluster::new(seed, k, m, 0, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            for n in 0..12 {
                workload.write_whole(key(n), 1).await;
            }
            cluster.crash_and_expire(0);
            for _ in 0..5 {
                for n in 0..12 {
                    workload.write(key(n), 100, 200, Some(2)).await;
                }
                cluster.start(0);
                let joins = || cluster.server(cluster.primary()).primary.borrow().has_joins();
                for _ in 0..100_000 {
                    if joins() || cluster.is_live(0) {
                        break;
                    }
                    workload.client.world.sleep(50).await;
                }
                workload.client.world.sleep(workload.below(6000) as u64).await;
                if cluster.is_live(0) {
                    cluster.crash_and_expire(0);
                } else {
                    cluster.crash(0, false);
                }
            }
            cluster.start(0);
            cluster.wait_rejoined(&workload, 0, &what).await;
        });
    }
}

/// The primary is struck, or lost for good, after it has closed the group for the admission.
#[test]
fn a_primary_that_goes_in_the_drain_loses_nothing() {
    for seed in seeds(12) {
        let (k, m) = (2, 2);
        let slot = [0, 2, 3][seed as usize % 3];
        let what = format!("seed {seed}, slot {slot}");
        let cluster = TestCluster::new(seed, k, m, 0, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.steps(&cluster, 30).await;
            cluster.crash_and_expire(slot);
            workload.steps(&cluster, 10).await;
            cluster.start(slot);
            for _ in 0..1_000_000 {
                if cluster.is_closed() {
                    break;
                }
                workload.client.world.sleep(20).await;
            }
            assert!(cluster.is_closed(), "{what}: the drain is seen");
            let primary = cluster.primary();
            assert_ne!(primary, slot, "{what}: it is not admitted yet");
            workload.client.world.sleep(workload.below(3000) as u64).await;
            match seed % 2 {
                0 => {
                    cluster.crash(primary, true);
                    cluster.start(primary);
                }
                _ => cluster.crash_and_expire(primary),
            }
            cluster.wait_live(&workload.client.world, slot, &what).await;
            workload.compare(&what).await;
            if !cluster.runs(primary) {
                cluster.start(primary);
                cluster.wait_live(&workload.client.world, primary, &what).await;
            }
            cluster.compare_without_others(&workload, slot, &what).await;
        });
    }
}

/// The arbiter admits the slot and its answer is lost, or it never hears of the request, or it refuses. What was written
/// meanwhile is there.
#[test]
fn an_admission_without_an_answer_loses_nothing() {
    for (seed, on_admit) in
        (0..).zip([AdmitBehavior::LosesReply, AdmitBehavior::DropsRequest, AdmitBehavior::Refuses])
    {
        let slot = 2;
        // Of an object that is never purged.
        let own = StripeKey { object: ObjectId(900), stripe: 0 };
        let what = format!("{on_admit:?}");
        let cluster = TestCluster::new(seed, 2, 2, 0, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.steps(&cluster, 30).await;
            cluster.crash_and_expire(slot);
            workload.steps(&cluster, 10).await;
            cluster.on_admit.set(on_admit);
            cluster.start(slot);
            while cluster.admissions.get() == 0 {
                workload.client.world.sleep(1000).await;
            }
            match on_admit {
                // It is true all the same, and the map tells.
                AdmitBehavior::LosesReply => assert!(cluster.is_live(slot)),
                AdmitBehavior::DropsRequest => {
                    assert!(cluster.is_closed(), "nothing is accepted until it is known");
                    let patch = workload.client.patch(0, 10, Some(1));
                    let early = workload.client.write_stable(own, &patch);
                    assert!(cluster.sim.node("client").timeout(2_000_000, early).await.is_none());
                    cluster.on_admit.set(AdmitBehavior::Answers);
                    cluster.wait_live(&workload.client.world, slot, &what).await;
                }
                _ => {
                    workload.steps(&cluster, 10).await;
                    assert!(!cluster.is_live(slot), "refused, and served on");
                    cluster.on_admit.set(AdmitBehavior::Answers);
                }
            }
            workload.write(own, 0, 10, Some(1)).await;
            workload.steps(&cluster, 10).await;
            cluster.on_admit.set(AdmitBehavior::Answers);
            cluster.wait_rejoined(&workload, slot, &what).await;
        });
    }
}

/// The first request gets no answer, the second one is refused. The epoch ends, so that the first can do no harm later.
#[test]
fn a_refusal_after_a_lost_answer_ends_the_epoch() {
    let cluster = TestCluster::new(3, 2, 1, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        workload.steps(&cluster, 10).await;
        cluster.crash_and_expire(0);
        cluster.on_admit.set(AdmitBehavior::DropsRequest);
        cluster.start(0);
        while cluster.admissions.get() == 0 {
            workload.client.world.sleep(1000).await;
        }
        let epoch = workload.client.epoch();
        cluster.on_admit.set(AdmitBehavior::Refuses);
        while workload.client.epoch() == epoch {
            workload.client.world.sleep(1000).await;
        }
        assert!(!cluster.is_live(0), "another epoch, without the slot");
        cluster.on_admit.set(AdmitBehavior::Answers);
        cluster.wait_rejoined(&workload, 0, "later").await;
    });
}

/// An empty brick gets the slot, of data or of parity.
#[test]
fn an_empty_brick_takes_the_place() {
    for seed in seeds(4) {
        for (k, m) in CODES {
            let slot = seed as usize % (k + m);
            let what = format!("seed {seed}, {k}+{m}, slot {slot}");
            let cluster = TestCluster::new(seed, k, m, 1, ROOM);
            let mut workload = Workload::new(&cluster);
            cluster.sim.block_on("client", async {
                workload.steps(&cluster, 60).await;
                cluster.crash_and_expire(slot);
                cluster.replace(slot, k + m);
                cluster.wait_rejoined(&workload, slot, &what).await;
            });
        }
    }
}

/// Of a stripe of zeros there is nothing that the new brick could get. So it knows nothing of the stripe, and that is
/// no mismatch.
#[test]
fn a_stripe_of_zeros_fits_a_slot_that_never_had_it() {
    for (k, m) in CODES {
        for slot in 0..k + m {
            let what = format!("{k}+{m}, slot {slot}");
            let cluster = TestCluster::new(1, k, m, 1, ROOM);
            let mut workload = Workload::new(&cluster);
            cluster.sim.block_on("client", async {
                let stripe = workload.client.geometry.stripe();
                workload.write_whole(key(0), 7).await;
                workload.write(key(0), 0, stripe, None).await;
                cluster.crash_and_expire(slot);
                cluster.replace(slot, k + m);
                cluster.wait_live(&workload.client.world, slot, &what).await;
                let verify = Verify { group: GROUP, after: None, limit: 100 };
                let (found, _) =
                    workload.client.call(&verify, Buf::empty()).await.expect("the primary compares");
                assert_eq!((found.mismatched, found.damaged), (vec![], vec![]), "{what}");
            });
        }
    }
}

/// An object is purged while a brick is away whose units of it are empty: the brick forgets them when it comes back.
#[test]
fn a_purged_object_leaves_no_empty_unit() {
    for (k, m) in CODES {
        for slot in 0..k {
            let what = format!("{k}+{m}, slot {slot}");
            let cluster = TestCluster::new(1, k, m, 1, ROOM);
            let mut workload = Workload::new(&cluster);
            cluster.sim.block_on("client", async {
                let stripe = workload.client.geometry.stripe();
                workload.write_whole(key(0), 7).await;
                workload.write(key(0), 0, stripe, None).await;
                workload.client.sync().await;
                assert!(cluster.server(slot).report().units > 0, "{what}: zeros are remembered for a while");
                cluster.crash_and_expire(slot);
                workload.purge(&cluster).await;
                cluster.start(slot);
                cluster.wait_live(&workload.client.world, slot, &what).await;
                assert_eq!(cluster.server(slot).report().units, 0, "{what}");
            });
        }
    }
}

/// The brick was another slot of the group before: what it has from then means nothing.
#[test]
fn what_a_brick_held_as_another_slot_means_nothing() {
    for seed in seeds(4) {
        let what = format!("seed {seed}");
        let cluster = TestCluster::new(seed, 2, 2, 2, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.steps(&cluster, 40).await;
            cluster.crash_and_expire(0);
            cluster.replace(0, 4);
            cluster.wait_live(&workload.client.world, 0, &what).await;
            workload.steps(&cluster, 10).await;
            cluster.crash_and_expire(2);
            cluster.start(0);
            cluster.replace(2, 0);
            workload.steps(&cluster, 5).await;
            cluster.wait_rejoined(&workload, 2, &what).await;
        });
    }
}

/// No parity slot is left: the data slots tell a new one what it has to encode.
#[test]
fn new_parity_is_made_from_data_slots_alone() {
    for seed in seeds(6) {
        for (k, m) in [(2, 1), (3, 2)] {
            let what = format!("seed {seed}, {k}+{m}");
            let cluster = TestCluster::new(seed, k, m, 0, ROOM);
            let mut workload = Workload::new(&cluster);
            cluster.sim.block_on("client", async {
                workload.steps(&cluster, 40).await;
                (k..k + m).for_each(|slot| cluster.crash_and_expire(slot));
                // With two parities nothing is written now.
                if m == 1 {
                    workload.steps(&cluster, 20).await;
                }
                for slot in k..k + m {
                    cluster.start(slot);
                    cluster.wait_live(&workload.client.world, slot, &what).await;
                }
                cluster.compare_without_others(&workload, k, &what).await;
            });
        }
    }
}

/// A returning slot starts clean: an operation that it alone still holds was decided against while it was away.
#[test]
fn amendment_3_a_returning_slot_starts_clean() {
    let cluster = TestCluster::new(1, 2, 2, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        workload.write_whole(key(0), 1).await;
        workload.write_whole(key(1), 2).await;
        // Slot 1 does not get these, so they are never committed; slot 0 holds its part of them.
        cluster.crash(1, false);
        for (n, at) in [(0, UNIT - 50), (1, UNIT - 5)] {
            let patch = workload.client.patch(at, 100, Some(77));
            workload.client.write(key(n), &patch).await.expect("accepted");
        }
        workload.client.world.sleep(200_000).await;
        let held = cluster.server(0).slot.borrow().tail(GROUP, 0).held.len();
        assert_eq!(held, 2, "slot 0 holds what is not committed");
        cluster.crash_and_expire(0);
        // The primary must know, or it would hand them to slot 1 in the old epoch.
        workload.client.world.sleep(2_000_000).await;
        cluster.start(1);
        workload.client.world.sleep(1_000_000).await;
        workload.compare("aborted").await;
        cluster.start(0);
        cluster.wait_live(&workload.client.world, 0, "clean").await;
        let tail = cluster.server(0).slot.borrow().tail(GROUP, 0);
        assert!(tail.held.is_empty(), "{:?}", tail.held);
        cluster.compare_without_others(&workload, 0, "clean").await;
    });
}

/// Admission carries the windows: the slot, alone, knows durably whose writes were seen.
#[test]
fn amendment_4_admission_carries_the_windows() {
    let cluster = TestCluster::new(2, 2, 1, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        workload.write_whole(key(0), 1).await;
        cluster.crash_and_expire(2);
        let repeated = workload.client.patch(10, 10, Some(2));
        workload.client.write_stable(key(0), &repeated).await.expect("room");
        workload.write(key(0), 10, 10, Some(3)).await;
        cluster.start(2);
        cluster.wait_live(&workload.client.world, 2, "parity").await;
        cluster.crash(2, true);
        cluster.start(2);
        while !cluster.runs(2) {
            workload.client.world.sleep(1000).await;
        }
        let windows = cluster.server(2).slot.borrow().tail(GROUP, 0).windows;
        let seen = |seq| windows.iter().any(|w| w.client == CLIENT && w.seen.contains(&ClientSeq(seq)));
        assert!((1..=3).all(seen), "{windows:?}");
        // The slot is the primary now. A repeated write is recognised, and comes over no newer one.
        workload.client.write_stable(key(0), &repeated).await.expect("answered");
        cluster.compare_without_others(&workload, 2, "repeated").await;
    });
}

/// A short write drops nothing of units that it does not write: it is short only where nothing lies yet.
#[test]
fn amendment_10_a_short_write_leaves_what_others_hold() {
    for folded in [false, true] {
        let cluster = TestCluster::new(3, 2, 2, 0, ROOM);
        let mut workload = Workload::new(&cluster);
        cluster.sim.block_on("client", async {
            workload.write(key(0), 0, 1000, Some(1)).await;
            workload.write(key(0), UNIT + 10, 500, Some(2)).await;
            workload.client.world.sleep(if folded { 4_000_000 } else { 1000 }).await;
            workload.write(key(0), 0, UNIT, Some(3)).await;
            workload.compare("the other unit is still there").await;
            workload.write(key(0), 0, 2 * UNIT, None).await;
            workload.compare("nothing is there").await;
            workload.write(key(0), 0, 1000, Some(4)).await;
            cluster.compare_without_others(&workload, 1, "only this is there").await;
        });
    }
}

/// A brick that is back answers no client in an epoch that it knows from before, nor while it is brought level.
#[test]
fn a_slot_that_is_out_answers_no_client() {
    let cluster = TestCluster::new(4, 2, 2, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        let stripe = workload.client.geometry.stripe();
        workload.write_whole(key(0), 1).await;
        workload.client.world.sleep(1_000_000).await;
        let before = workload.client.epoch();
        let read = ReadUnit { group: GROUP, key: key(0), slot: 0, offset: 0, len: UNIT as u32 };
        let ask =
            async |epoch| workload.client.peers.call("brick0:1", epoch, &read, Buf::empty()).await.map(drop);
        assert_eq!(ask(before).await, Ok(()));
        cluster.crash_and_expire(0);
        let patch = Patch { seq: 50, offset: 0, len: stripe, bytes: Some(vec![9; stripe]) };
        workload.client.write_stable(key(0), &patch).await.expect("room");
        cluster.on_admit.set(AdmitBehavior::DropsRequest);
        cluster.start(0);
        // As soon as it answers at all, and until it is admitted.
        for _ in 0..2000 {
            for epoch in [before, workload.client.epoch()] {
                let answer = ask(epoch).await;
                assert!(
                    matches!(answer, Err(CallError::Refused(_) | CallError::Unreachable)),
                    "{answer:?} in {epoch}"
                );
            }
            workload.client.world.sleep(1000).await;
        }
        assert!(cluster.admissions.get() > 0, "it was brought level meanwhile");
        cluster.on_admit.set(AdmitBehavior::Answers);
        cluster.wait_live(&workload.client.world, 0, "admitted").await;
        workload.client.world.sleep(2_000_000).await;
        assert_eq!(ask(workload.client.epoch()).await, Ok(()));
    });
}

/// A brick without room for all units stays Out. Everything else goes on.
#[test]
fn a_brick_that_is_too_small_stays_out() {
    let cluster = TestCluster::new(5, 2, 1, 0, 40);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        let stripe = workload.client.geometry.stripe();
        workload.write_whole(key(0), 1).await;
        cluster.crash_and_expire(0);
        for n in 1..30 {
            workload.write_whole(key(n), n as u8).await;
        }
        cluster.start(0);
        workload.client.world.sleep(5_000_000).await;
        assert!(!cluster.is_live(0), "it has no room");
        workload.write_whole(key(3), 99).await;
        workload.compare("without it").await;
        for n in 3..30 {
            workload.write(key(n), 0, stripe, None).await;
        }
        cluster.wait_rejoined(&workload, 0, "room").await;
    });
}

/// A stripe of which too little can be read keeps the slot Out; the others are filled, and when it is written anew the
/// slot is admitted.
#[test]
fn a_damaged_stripe_keeps_a_slot_out() {
    let cluster = TestCluster::new(6, 2, 1, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        cluster.crash_and_expire(0);
        for n in 0..5 {
            workload.write_whole(key(n), n as u8).await;
        }
        workload.client.world.sleep(100_000).await;
        let server = cluster.server(1);
        let plan = server.slot.borrow().plan_read(key(2), 1, UNIT, 0..UNIT, None, &[]).expect("decided");
        let offset = server.superblock.data_start + plan.blocks.1[0].0 * BLOCK as u64;
        cluster.sim.damage("brick1", "disk", offset, 1);
        cluster.start(0);
        workload.client.world.sleep(5_000_000).await;
        assert!(!cluster.is_live(0), "a stripe cannot be filled");
        let epoch = workload.client.epoch();
        let list = UnitList {
            group: GROUP,
            slot: 0,
            of: 0,
            after: None,
            limit: 10,
            only: Vec::new(),
            decided: Seq::NONE,
        };
        let (page, _) =
            workload.client.peers.call("brick0:1", epoch, &list, Buf::empty()).await.expect("listed");
        let filled: Vec<_> = page.units.iter().map(|unit| unit.key).collect();
        assert_eq!(filled, [key(0), key(1), key(3), key(4)]);
        workload.write_whole(key(2), 8).await;
        cluster.wait_rejoined(&workload, 0, "mended").await;
    });
}

/// The primary tells how far it is.
#[test]
fn progress_is_reported() {
    let cluster = TestCluster::new(7, 2, 1, 0, ROOM);
    let mut workload = Workload::new(&cluster);
    cluster.sim.block_on("client", async {
        cluster.crash_and_expire(0);
        for n in 0..5 {
            workload.write_whole(key(n), n as u8).await;
        }
        cluster.on_admit.set(AdmitBehavior::DropsRequest);
        cluster.start(0);
        while cluster.admissions.get() == 0 {
            workload.client.world.sleep(1000).await;
        }
        let report = workload.client.report().await;
        let [joining] = report.joining.as_slice() else { panic!("{:?}", report.joining) };
        assert_eq!((joining.group, joining.slot, joining.brick), (GROUP, 0, BrickId(0)));
        assert_eq!((joining.stripes, joining.compared, joining.filled), (5, 5, 5));
        assert_eq!(joining.bytes, 5 * UNIT as u64);
        assert!(joining.age > 0);
        cluster.on_admit.set(AdmitBehavior::Answers);
        cluster.wait_live(&workload.client.world, 0, "admitted").await;
        workload.client.world.sleep(3_000_000).await;
        assert!(workload.client.report().await.joining.is_empty());
    });
}
