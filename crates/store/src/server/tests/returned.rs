//! A brick that was put Out and is back answers no client with old bytes, and hears what was decided: it returns with a
//! lease and without the latest news.

use super::cluster::{TestCluster, Workload};
use super::*;

/// It holds a lease again, and nobody tells its slots of new epochs: only its map knows that they have missed writes.
#[test]
fn a_slot_that_is_out_answers_no_client_of_an_older_epoch() {
    let bench = Bench::new(1, small(256), 4096);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        let key = StripeKey { object: ObjectId(5), stripe: 0 };
        let patch = client.patch(0, 4096, Some(1));
        client.write_stable(key, &patch).await.expect("written");
        let before = client.epoch();
        {
            let mut map = client.map.borrow_mut();
            map.version = MapVersion(map.version.0 + 1);
            let group = &mut map.volumes[0].groups[0];
            (group.epoch, group.slots[0].state) = (group.epoch.next(), SlotState::Out);
        }
        let read = ReadUnit { group: GROUP, key, slot: 0, offset: 0, len: 4096 };
        // The brick learns it with its next beat.
        client.world.sleep(2 * types::limits::HEARTBEAT_US).await;
        let answer = client.peers.call(AT, before, &read, Buf::empty()).await;
        assert_eq!(answer.map(|_| ()), Err(CallError::Refused(Refusal::StaleEpoch)));
    });
}

/// Nobody waits for the record of a decision to be durable, so a power cut may take it; and nothing else happens in the
/// group that would carry the decision once more.
#[test]
fn a_slot_that_forgot_a_decision_hears_it_in_an_idle_group_too() {
    let mut forgotten = 0;
    for seed in 0..20 {
        let cluster = TestCluster::new(seed, 2, 1, 0, 1024);
        let mut workload = Workload::new(&cluster);
        let world = workload.client.world.clone();
        cluster.sim.block_on("client", async {
            let waits = || cluster.server(0).slot.borrow().undecided().next().is_some();
            let key = StripeKey { object: ObjectId(1), stripe: 0 };
            workload.write_whole(key, 1).await;
            while waits() {
                world.sleep(100).await;
            }
            cluster.crash(0, true);
            cluster.start(0);
            while !cluster.runs(0) {
                world.sleep(10_000).await;
            }
            forgotten += u32::from(waits());
            world.sleep(5_000_000).await;
            assert!(!waits(), "seed {seed}: it still does not know the decision");
            workload.compare("a restarted slot").await;
        });
    }
    assert!(forgotten > 0, "no power cut took the record of the decision");
}
