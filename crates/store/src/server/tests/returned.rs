//! A brick that was put Out and is back.

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
        client.world.sleep(2 * types::limits::BEAT_US).await;
        let answer = client.peers.call(AT, before, &read, Buf::empty()).await;
        assert_eq!(answer.map(|_| ()), Err(CallError::Refused(Refusal::StaleEpoch)));
    });
}
