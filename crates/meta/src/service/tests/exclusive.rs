//! A volume with an exclusive mount has no other mount: others ask before and after it leaves, falls silent, or the
//! service restarts.

use types::limits::PLACE_MAX;

use super::*;

#[test]
fn an_exclusive_mount_keeps_others_out_until_it_leaves() {
    let house = House::new(31);
    house.run(async {
        furnish(&house).await;
        let [mut a, mut b, mut c] = ["a", "b", "c"].map(|name| house.client(name));
        a.join_as(vec![], true).await.expect("nobody else is there");
        assert_eq!(b.join_as(vec![], false).await, Err(Refusal::MountedExclusively));
        assert_eq!(b.join_as(vec![], true).await, Err(Refusal::MountedExclusively));
        let mounts = b.status().await.mounts;
        let [mount] = mounts.as_slice() else { panic!("one mount, not {mounts:?}") };
        assert_eq!((mount.client, mount.volume, mount.exclusive), (a.client, a.volume, true));
        assert_eq!(mount.place, "here:/mnt");
        assert!(mount.silent < HEARTBEAT_US, "it has just been heard");

        a.ask(&ClientLeave { client: a.client }).await.expect("always");
        b.join_as(vec![], false).await.expect("free at once");
        c.join_as(vec![], false).await.expect("several that are not exclusive");
        a.client = ClientId(0);
        assert_eq!(a.join_as(vec![], true).await, Err(Refusal::Mounted));
    });
}

#[test]
fn other_volumes_are_not_concerned() {
    let house = House::new(32);
    house.run(async {
        furnish(&house).await;
        let [mut a, tool] = ["a", "tool"].map(|name| house.client(name));
        a.join_as(vec![], true).await.expect("nobody else is there");
        tool.ask(&volume_create("other", "2+1")).await.expect("it fits");
        let join = |place: String| ClientJoin {
            volume: "other".into(),
            client: None,
            opens: vec![],
            exclusive: true,
            place,
        };
        assert_eq!(tool.ask(&join("x".repeat(PLACE_MAX + 1))).await.err(), Some(Refusal::Invalid));
        tool.ask(&join(String::new())).await.expect("the only one of its volume");
    });
}

#[test]
fn the_end_of_the_lease_lets_others_in() {
    let house = House::new(33);
    house.run(async {
        furnish(&house).await;
        let [mut a, mut b] = ["a", "b"].map(|name| house.client(name));
        a.join_as(vec![], true).await.expect("nobody else is there");
        b.world.sleep(LEASE_US).await;
        assert_eq!(b.join_as(vec![], false).await, Err(Refusal::MountedExclusively), "it may still act");
        b.world.sleep(LEASE_MARGIN_US + HEARTBEAT_US).await;
        b.join_as(vec![], false).await.expect("nobody holds it any more");
        assert_eq!(a.join_as(vec![], true).await, Err(Refusal::Fenced), "its id is worth nothing");
        a.client = ClientId(0);
        assert_eq!(a.join_as(vec![], true).await, Err(Refusal::Mounted));
    });
}

#[test]
fn an_exclusive_mount_survives_a_restart_of_the_service() {
    let house = House::new(34);
    house.run(async {
        furnish(&house).await;
        let [mut a, mut b] = ["a", "b"].map(|name| house.client(name));
        a.join_as(vec![], true).await.expect("nobody else is there");
        house.simulation.kill("meta");
        b.world.sleep(4 * LEASE_US).await;
        house.start_meta();
        assert_eq!(b.join_as(vec![], false).await, Err(Refusal::MountedExclusively));
        assert_eq!(a.join_as(vec![], false).await, Err(Refusal::Invalid), "it is what it was let in as");
        let id = a.client;
        a.join_as(vec![], true).await.expect("it comes back in time");
        assert_eq!(a.client, id);
        assert_eq!(b.join_as(vec![], false).await, Err(Refusal::MountedExclusively));
        let mounts = b.status().await.mounts;
        assert!(mounts[0].exclusive && mounts[0].age >= 4 * LEASE_US, "{mounts:?}");
        // Now it stays away.
        b.world.sleep(GONE + HEARTBEAT_US).await;
        b.join_as(vec![], true).await.expect("the lease has run out");
    });
}
