//! Removed objects: whom the purger asks, and how often.

use super::*;

#[test]
fn purges_wait_for_bricks_that_hold_live_slots_and_for_those_that_come_back_meanwhile() {
    let house = House::new(7);
    house.run(async {
        let bricks = furnish(&house).await;
        let client = house.mounted("a").await;
        house.simulation.kill("n3");
        let file = client.create("f", false).await.expect("free").attr;
        client.grow(&file, 100_000, true).await.expect("there");
        client.unlink("f").await.expect("there");
        client.world.sleep(LEASE_US / 2).await;
        assert_eq!(client.status().await.purges, 1, "its slots are live");
        client.world.sleep(2 * LEASE_US).await;
        assert_eq!(client.status().await.purges, 0, "it is out, and compared when it is back");
        assert!(bricks[0].purged.borrow().contains(&file.object));
        // Groups that had brick 3 cannot lose another one: its slots stay live.
        house.simulation.kill("n2");
        client.world.sleep(2 * LEASE_US).await;
        let file = client.create("h", false).await.expect("free").attr;
        client.grow(&file, 100_000, true).await.expect("there");
        client.unlink("h").await.expect("there");
        client.world.sleep(2 * LEASE_US).await;
        assert_eq!(client.status().await.purges, 1);
        let back = house.brick(3);
        back.start(2).await.expect("its old life is gone");
        let second = house.brick(2);
        second.start(2).await.expect("its old life is gone");
        client.world.sleep(2 * HEARTBEAT_US).await;
        assert_eq!(client.status().await.purges, 0);
        for brick in [&back, &second] {
            assert!(brick.purged.borrow().contains(&file.object));
        }

        // A volume goes with everything in it.
        let file = client.create("g", false).await.expect("free").attr;
        client.grow(&file, 100_000, true).await.expect("there");
        let delete = VolumeDelete { name: "home".into(), shard: None };
        assert_eq!(client.ask(&delete).await, Err(Refusal::Busy));
        client.ask(&ClientLeave { client: client.client }).await.expect("always");
        client.ask(&delete).await.expect("nobody has it");
        assert_eq!(client.getattr(ROOT).await, Err(Refusal::Unknown));
        client.world.sleep(2 * HEARTBEAT_US).await;
        assert!(back.purged.borrow().contains(&file.object));
        let status = client.status().await;
        let volumes = client.map().await.volumes.len();
        assert_eq!((status.purges, volumes, status.memory), (0, 0, 0));
    });
}

#[test]
fn a_brick_that_comes_back_during_a_purge_is_asked_as_well() {
    let house = House::new(13);
    house.run(async {
        let bricks = furnish(&house).await;
        let client = house.mounted("a").await;
        house.simulation.kill("n3");
        client.world.sleep(2 * LEASE_US).await;
        let file = client.create("f", false).await.expect("free").attr;
        client.grow(&file, 100_000, true).await.expect("there");
        bricks[0].purge_us.set(500_000);
        client.unlink("f").await.expect("there");
        client.world.sleep(100_000).await;
        // It could be compared with brick 1, which still has the object, and keep it for ever.
        let back = house.brick(3);
        back.start(2).await.expect("its old life is gone");
        client.world.sleep(2 * HEARTBEAT_US).await;
        assert_eq!(client.status().await.purges, 0);
        assert!(back.purged.borrow().contains(&file.object));
    });
}

#[test]
fn a_program_that_removes_one_file_after_the_other_does_not_make_a_purge_of_each() {
    let house = House::new(31);
    house.run(async {
        let bricks = furnish(&house).await;
        let client = house.mounted("a").await;
        const FILES: usize = 300;
        for n in 0..FILES {
            let file = client.create(&format!("f{n}"), false).await.expect("free").attr;
            client.grow(&file, 4096, true).await.expect("there");
        }
        let begun = client.world.now();
        for n in 0..FILES {
            client.unlink(&format!("f{n}")).await.expect("there");
        }
        let took = client.world.now() - begun;
        client.world.sleep(LEASE_US).await;
        assert_eq!((client.status().await.purges, bricks[0].purged.borrow().len()), (0, FILES));
        // What is removed within 20 ms is one request.
        let most = took / 20_000 + 2;
        assert!(
            u64::from(bricks[0].purges.get()) <= most,
            "{} requests in {took} us",
            bricks[0].purges.get()
        );
    });
}

/// A brick that renews its lease and answers nothing else costs each pass one wait, and not one for each part.
#[test]
fn a_brick_that_does_not_answer_holds_the_others_up_once() {
    let house = House::new(32);
    house.run(async {
        let bricks = furnish(&house).await;
        let client = house.mounted("a").await;
        const FILES: usize = 1_000;
        for n in 0..FILES {
            let file = client.create(&format!("f{n}"), false).await.expect("free").attr;
            client.grow(&file, 4096, true).await.expect("there");
        }
        bricks[0].purge_us.set(100 * CALL_TIMEOUT_US);
        for n in 0..FILES {
            client.unlink(&format!("f{n}")).await.expect("there");
        }
        // The first pass may begin with the first few of them.
        client.world.sleep(2 * (CALL_TIMEOUT_US + HEARTBEAT_US) + CALL_TIMEOUT_US / 2).await;
        assert_eq!(bricks[1].purged.borrow().len(), FILES);
        assert_eq!(client.status().await.purges, FILES as u64, "one brick has not purged them");
    });
}
