//! What a brick tells a restored metadata service of its groups, and what it promises with it.

use types::messages::brick::NewEpoch;
use types::messages::recovery::{GroupFloor, HeldGroup, RecoverGroups};

use super::*;

const FLOOR: Epoch = Epoch(50);
const OTHER: GroupId = GroupId { volume: VolumeId(8), index: 3 };

/// Asks about a group that the brick has, and about one that it never had.
async fn ask(client: &Client, floor: Epoch) -> Vec<HeldGroup> {
    let groups = [GROUP, OTHER].map(|group| GroupFloor { group, floor }).to_vec();
    let request = RecoverGroups { groups };
    let call = client.peers.call(AT, Epoch(0), &request, Buf::empty());
    call.await.expect("it answers").0.groups
}

/// Fills the journal several times over.
async fn write_much(client: &mut Client) {
    for round in 0..400u64 {
        let key = StripeKey { object: ObjectId(5), stripe: round % 3 };
        let patch = client.patch(0, 4096, Some(round as u8));
        client.write_stable(key, &patch).await.expect("written");
    }
}

#[test]
fn the_last_configuration_and_the_floor_survive_checkpoints_and_power_cuts() {
    let bench = Bench::new(1, small(256), 4096);
    bench.start_brick();
    let mut client = bench.client();
    bench.sim.block_on("client", async {
        write_much(&mut client).await;
        let config = bench.map.borrow().volumes[0].groups[0].clone();
        let right =
            HeldGroup { group: GROUP, promised: config.epoch, config: Some(config.clone()), floor: FLOOR };
        assert_eq!(ask(&client, FLOOR).await, std::slice::from_ref(&right));
        assert_eq!(ask(&client, Epoch(7)).await, std::slice::from_ref(&right), "a floor is never lowered");
        // What is served goes on, and nothing that the restored service does not know begins.
        write_much(&mut client).await;
        let next = |epoch| NewEpoch {
            group: GROUP,
            config: GroupConfig { epoch, ..config.clone() },
            map: MapVersion(0),
        };
        for epoch in [config.epoch.next(), Epoch(FLOOR.0 - 1)] {
            let new = next(epoch);
            let refused = client.peers.call(AT, epoch, &new, Buf::empty()).await;
            assert_eq!(refused.map(|_| ()), Err(CallError::Refused(Refusal::StaleEpoch)), "{epoch}");
        }
        bench.sim.power_cut("brick");
        bench.start_brick();
        client.world.sleep(2_000_000).await;
        assert_eq!(ask(&client, Epoch(7)).await, [right]);
        let new = next(FLOOR);
        let promised = client.peers.call(AT, FLOOR, &new, Buf::empty()).await;
        promised.expect("it is not below the floor");
        let held = ask(&client, Epoch(7)).await;
        assert_eq!(held[0].config.as_ref().map(|config| config.epoch), Some(FLOOR));
    });
}

#[test]
fn too_many_groups_at_a_time_are_refused() {
    let bench = Bench::new(1, small(256), 4096);
    bench.start_brick();
    let client = bench.client();
    bench.sim.block_on("client", async {
        let groups = vec![GroupFloor { group: OTHER, floor: FLOOR }; types::limits::RECOVER_MAX + 1];
        let answer = client.call(&RecoverGroups { groups }, Buf::empty()).await;
        assert_eq!(answer.map(|_| ()), Err(Refusal::Invalid));
    });
}
