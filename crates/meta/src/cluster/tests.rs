//! The map of bricks, epochs and volumes changes only as it may: bricks fall silent, restart and come back by a clock
//! that the test moves, and the map is compared after each step.

use types::limits::{LEASE_MARGIN_US, LEASE_US};
use types::messages::cluster::{
    BrickHeartbeat, BrickJoin, BrickState, ClientJoin, GroupAdmit, GroupRenew, SlotState, VolumeCreate,
};
use types::messages::names::StatFs;
use types::{BrickId, Epoch, GroupId, Incarnation, Refusal};

use crate::fixture::{Fixture, brick_join, engines, on_all, volume_create};
use crate::kv::Writes;
use crate::{keys, ops};

const GONE: u64 = LEASE_US + LEASE_MARGIN_US;

fn beat(brick: u32, incarnation: u64) -> BrickHeartbeat {
    BrickHeartbeat {
        brick: BrickId(brick),
        incarnation: Incarnation(incarnation),
        free: 5,
        shard: types::ShardId::FIRST,
        reach: Default::default(),
    }
}

/// Epochs of all groups, and the primaries' bricks.
fn epochs(fixture: &Fixture) -> Vec<(u32, BrickId)> {
    let volume = &fixture.state.cluster.map().volumes[0];
    let code = volume.geometry.code();
    let primary = |group: &types::messages::cluster::GroupConfig| {
        group.slots[group.primary(code).expect("enough are live")].brick
    };
    volume.groups.iter().map(|group| (group.epoch.0, primary(group))).collect()
}

fn expire(fixture: &mut Fixture, now: u64) -> bool {
    let writes = fixture.state.cluster.expire(now);
    let decided = !writes.is_empty();
    assert!(fixture.state.commit(writes));
    decided
}

#[test]
fn a_new_life_renews_the_groups_that_it_leads() {
    on_all(|mut fixture| {
        let before = epochs(&fixture);
        let version = fixture.state.cluster.version();
        let writes = fixture.state.cluster.join(&brick_join(1, 2), 10).expect("same address");
        assert!(fixture.state.commit(writes));
        assert_eq!(fixture.state.cluster.version().0, version.0 + 1);
        for (before, after) in before.iter().zip(epochs(&fixture)) {
            assert_eq!(after.0 - before.0, u32::from(after.1 == BrickId(1)));
        }
        // A repeated join is the same life: nothing new.
        let writes = fixture.state.cluster.join(&brick_join(1, 2), 20).expect("the same");
        assert!(writes.is_empty());
        assert_eq!(fixture.state.cluster.beat(&beat(1, 1), 30), Err(Refusal::ServedTwice));
        assert_eq!(fixture.state.cluster.beat(&beat(1, 2), 30), Ok(()));
        assert_eq!(fixture.state.cluster.beat(&beat(77, 2), 30), Err(Refusal::Unknown));
        let map = fixture.state.cluster.map().clone();
        let fixture = fixture.restart(vec![]);
        let mut loaded = fixture.state.cluster.map().clone();
        // Free space is as it was when the brick joined.
        loaded.bricks[0].free = 5;
        assert_eq!(loaded, map);
    });
}

#[test]
fn a_brick_is_served_once() {
    on_all(|mut fixture| {
        let elsewhere = |incarnation| {
            let mut join = brick_join(1, incarnation);
            join.address = "n9:7000".into();
            join
        };
        let cluster = &mut fixture.state.cluster;
        assert_eq!(cluster.join(&elsewhere(2), GONE), Err(Refusal::ServedTwice));
        assert!(cluster.join(&elsewhere(2), GONE + 1).is_ok(), "the old life has no lease any more");
        assert_eq!(cluster.map().bricks[0].address, "n9:7000");
        let mut other = brick_join(2, 9);
        other.device = [99; 16];
        assert_eq!(cluster.join(&other, 0), Err(Refusal::Exists));
    });
}

#[test]
fn silent_bricks_are_expelled_while_enough_are_left() {
    on_all(|mut fixture| {
        let before = epochs(&fixture);
        for brick in 2..=4 {
            assert_eq!(fixture.state.cluster.beat(&beat(brick, 1), 100), Ok(()));
        }
        assert!(!expire(&mut fixture, GONE));
        assert!(expire(&mut fixture, GONE + 1));
        assert!(!expire(&mut fixture, GONE + 2));
        assert_eq!(fixture.state.cluster.map().bricks[0].state, BrickState::Out);
        assert_eq!(fixture.state.cluster.address_of(BrickId(1)), None);
        let groups = fixture.state.cluster.map().volumes[0].groups.clone();
        for (group, before) in groups.iter().zip(&before) {
            let slot = group.slot_of(BrickId(1)).map(|slot| group.slots[slot].state);
            assert_eq!(group.epoch.0 - before.0, u32::from(slot.is_some()));
            assert_ne!(slot, Some(SlotState::Live));
        }
        assert_eq!(fixture.state.cluster.beat(&beat(1, 1), GONE + 3), Err(Refusal::Unknown), "join again");

        // 2+1 cannot lose another: its groups stop by themselves, in the configuration that they have.
        let with_1: Vec<_> = groups.iter().map(|group| group.slot_of(BrickId(1)).is_some()).collect();
        assert!(expire(&mut fixture, GONE + 101));
        let after = fixture.state.cluster.map().volumes[0].groups.clone();
        for (with_1, (before, after)) in with_1.iter().zip(groups.iter().zip(&after)) {
            assert!(after.live().count_ones() >= 2);
            assert!(!with_1 || before == after);
        }

        // Back again: Up, but what it has missed keeps its slots Out.
        let fixture = fixture.restart(vec![]);
        let mut fixture = fixture;
        assert!(fixture.state.cluster.join(&brick_join(1, 1), 0).is_ok());
        assert_eq!(fixture.state.cluster.map().bricks[0].state, BrickState::Up);
        let slots = fixture.state.cluster.map().volumes[0].groups.iter();
        assert!(
            slots
                .filter_map(|g| g.slot_of(BrickId(1)).map(|s| g.slots[s].state))
                .all(|s| s == SlotState::Out)
        );
    });
}

/// Whoever is expelled knows by its own clock that its lease is over, also where that clock is slow.
#[test]
fn amendment_1_nobody_is_expelled_while_its_lease_runs() {
    const SLOWEST_PPM: u64 = 76_000;
    const { assert!(LEASE_US * (1_000_000 + SLOWEST_PPM) / 1_000_000 <= GONE) };
    on_all(|mut fixture| {
        let before = fixture.state.cluster.map().clone();
        assert_eq!(fixture.state.cluster.beat(&beat(1, 1), 1000), Ok(()));
        for brick in 2..=4 {
            assert_eq!(fixture.state.cluster.beat(&beat(brick, 1), 2 * GONE), Ok(()));
        }
        for now in [LEASE_US, LEASE_US + 1001, GONE, GONE + 1000] {
            assert!(!expire(&mut fixture, now));
            assert_eq!(fixture.state.cluster.map().volumes, before.volumes);
        }
        assert!(expire(&mut fixture, GONE + 1001));
        assert_ne!(fixture.state.cluster.map().volumes, before.volumes);
    });
}

#[test]
fn time_in_which_nobody_could_be_heard_does_not_count() {
    on_all(|mut fixture| {
        fixture.state.cluster.extend_leases(1000);
        fixture.state.sessions.extend_leases(1000);
        assert!(!expire(&mut fixture, GONE + 1000));
        assert_eq!(fixture.state.expire_clients(GONE + 1000), 0);
        assert!(expire(&mut fixture, GONE + 1001));
        assert_eq!(fixture.state.expire_clients(GONE + 1001), 1);
    });
}

#[test]
fn primaries_may_renew_their_groups() {
    on_all(|mut fixture| {
        let group = GroupId { volume: fixture.volume, index: 2 };
        let (epoch, primary) = epochs(&fixture)[2];
        let other = BrickId(primary.0 % 4 + 1);
        let renew = |brick, epoch| GroupRenew { group, epoch: Epoch(epoch), brick };
        assert_eq!(fixture.state.cluster.renew(&renew(other, epoch)), Err(Refusal::NotPrimary));
        assert!(fixture.state.cluster.renew(&renew(primary, epoch)).is_ok_and(|writes| !writes.is_empty()));
        assert_eq!(epochs(&fixture)[2], (epoch + 1, primary));
        assert!(fixture.state.cluster.renew(&renew(primary, epoch)).is_ok_and(|writes| writes.is_empty()));
        let nowhere = GroupRenew { group: GroupId { index: 99, ..group }, ..renew(primary, 1) };
        assert_eq!(fixture.state.cluster.renew(&nowhere), Err(Refusal::Unknown));
    });
}

#[test]
fn a_slot_that_was_brought_level_is_live_again() {
    on_all(|mut fixture| {
        for brick in 2..=4 {
            assert_eq!(fixture.state.cluster.beat(&beat(brick, 1), GONE), Ok(()));
        }
        assert!(expire(&mut fixture, GONE + 1));
        let before = fixture.state.cluster.map().clone();
        let groups = &before.volumes[0].groups;
        let index = groups.iter().position(|g| g.slot_of(BrickId(1)).is_some()).expect("2+1 on four bricks");
        let slot = groups[index].slot_of(BrickId(1)).expect("just found") as u8;
        let (epoch, brick) = epochs(&fixture)[index];
        let group = GroupId { volume: fixture.volume, index: index as u32 };
        let admit = GroupAdmit { group, epoch: Epoch(epoch), brick, slot };
        let cluster = &mut fixture.state.cluster;

        assert_eq!(cluster.admit(&admit, GONE), Err(Refusal::NotUp), "its brick is out");
        assert!(cluster.join(&brick_join(1, 2), GONE).is_ok());
        let map = cluster.map().clone();
        assert_eq!(cluster.admit(&GroupAdmit { brick: BrickId(1), ..admit }, GONE), Err(Refusal::NotPrimary));
        assert_eq!(cluster.admit(&GroupAdmit { slot: 3, ..admit }, GONE), Err(Refusal::Invalid));
        let other = (0..3).find(|other| *other != slot).expect("three slots");
        assert_eq!(cluster.admit(&GroupAdmit { slot: other, ..admit }, GONE), Err(Refusal::Invalid), "live");
        let stale = |epoch| GroupAdmit { epoch: Epoch(epoch), ..admit };
        assert_eq!(cluster.admit(&stale(epoch - 1), GONE), Err(Refusal::StaleEpoch));
        assert_eq!(cluster.admit(&stale(epoch + 1), GONE), Err(Refusal::StaleEpoch));
        let nowhere = GroupAdmit { group: GroupId { index: 99, ..group }, ..admit };
        assert_eq!(cluster.admit(&nowhere, GONE), Err(Refusal::Unknown));
        assert_eq!(cluster.admit(&admit, 2 * GONE + 1), Err(Refusal::NotServing), "nobody has been heard");
        assert_eq!(cluster.beat(&beat(brick.0, 1), 2 * GONE), Ok(()));
        assert_eq!(cluster.admit(&admit, 2 * GONE + 1), Err(Refusal::NotUp), "silent, not yet expelled");
        assert_eq!(cluster.map(), &map, "nothing of this has changed anything");

        let writes = cluster.admit(&admit, GONE + 1).expect("all is as it says");
        assert!(fixture.state.commit(writes));
        let cluster = &mut fixture.state.cluster;
        let after = cluster.map().clone();
        assert_eq!(after.version.0, map.version.0 + 1);
        let changed = &after.volumes[0].groups[index];
        assert_eq!((changed.epoch.0, changed.live()), (epoch + 1, 0b111));
        // The answer was lost: asked again, it is done, also in later epochs.
        assert!(cluster.admit(&admit, GONE + 1).is_ok_and(|writes| writes.is_empty()));
        let primary = changed.slots[changed.primary(before.volumes[0].geometry.code()).expect("live")].brick;
        let renew = GroupRenew { group, epoch: Epoch(epoch + 1), brick: primary };
        assert!(cluster.renew(&renew).is_ok_and(|writes| !writes.is_empty()));
        assert!(cluster.admit(&admit, GONE + 1).is_ok_and(|writes| writes.is_empty()));
        let map = fixture.restart(vec![]).state.cluster.map().clone();
        assert_eq!(map.volumes[0].groups[index].live(), 0b111, "it is durable");
    });
}

/// Bytes of keys and values.
fn size(writes: &Writes) -> usize {
    writes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum()
}

#[test]
fn a_change_of_one_group_writes_that_group_alone() {
    on_all(|mut fixture| {
        for brick in 5..=12 {
            let writes = fixture.state.cluster.join(&brick_join(brick, 1), 0).expect("new");
            assert!(fixture.state.commit(writes));
        }
        let request = VolumeCreate { groups: 4096, ..volume_create("wide", "8+2") };
        let volume = fixture.state.volume_create(&request, 1).expect("it fits").clone();
        let group = GroupId { volume: volume.id, index: 4000 };
        for times in 1..=2 {
            let (_, config) = fixture.state.cluster.map().group(group).expect("it is there");
            let primary = config.primary(volume.geometry.code()).expect("all are live");
            let renew = GroupRenew { group, epoch: config.epoch, brick: config.slots[primary].brick };
            let writes = fixture.state.cluster.renew(&renew).expect("its primary asks");
            assert!(size(&writes) < 300, "{} bytes", size(&writes));
            assert!(fixture.state.commit(writes));
            let before = fixture.state.cluster.map().clone();
            let (_, config) = before.group(group).expect("it is there");
            assert_eq!(config.epoch.0, volume.groups[4000].epoch.0 + times);
            fixture = fixture.restart(vec![]);
            let after = fixture.state.cluster.map();
            assert_eq!((&after.volumes, after.version), (&before.volumes, before.version));
        }
        let (_, writes) = fixture.state.cluster.delete_volume("wide").expect("it is there");
        assert!(fixture.state.commit(writes));
        let mut left = 0;
        let (from, to) = (keys::all::groups(), keys::after_all(&keys::all::groups()));
        let counted = fixture.state.store.range(&from, &to, &Writes::new(), &mut |_, _| {
            left += 1;
            true
        });
        counted.expect("readable");
        assert_eq!(left, 0, "a volume that takes the number later would get these groups");
    });
}

#[test]
fn volumes_have_good_names_and_room() {
    on_all(|mut fixture| {
        let mut make = |name: &str, code: &str| {
            fixture.state.volume_create(&volume_create(name, code), 1).map(|volume| volume.groups.len())
        };
        assert_eq!(make("home", "2+1"), Err(Refusal::Exists));
        assert_eq!(make("", "2+1"), Err(Refusal::Invalid));
        assert_eq!(make("a b", "2+1"), Err(Refusal::Invalid));
        assert_eq!(make(&"v".repeat(65), "2+1"), Err(Refusal::NameTooLong));
        assert_eq!(make("wide", "4+1"), Err(Refusal::TooFewDomains));
        assert_eq!(make("A.b_c-1", "2+2"), Ok(4));
        let mut many = volume_create("many", "1+0");
        many.groups = 0;
        let made = fixture.state.volume_create(&many, 1).expect("it fits");
        assert_eq!(made.groups.len() as u32, layout::groups_for(made.geometry.code(), 4));
        many.groups = 5000;
        many.name = "more".into();
        assert_eq!(fixture.state.volume_create(&many, 1), Err(Refusal::Invalid));
    });
}

#[test]
fn what_everybody_is_sent_stays_within_a_record() {
    let mut fixture = Fixture::new(engines()[0].clone());
    let mut made = 0;
    let refused = loop {
        let mut request = volume_create(&format!("v{made}"), "2+1");
        request.groups = types::limits::GROUPS_MAX;
        match fixture.state.volume_create(&request, 1) {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refused, Refusal::TooMany);
    let bytes = types::wire::to_bytes(fixture.state.cluster.map()).len();
    assert!(made > 10 && bytes <= types::limits::MAP_MAX, "{made} volumes, {bytes} bytes");
    let long = BrickJoin { address: "h".repeat(300), ..brick_join(9, 1) };
    assert!(matches!(fixture.state.cluster.join(&long, 0), Err(Refusal::Invalid)));
    for any in ["0.0.0.0:7411", "[::]:7411", "n9:7411+0.0.0.0:7411"] {
        let join = BrickJoin { address: any.to_owned(), ..brick_join(9, 1) };
        assert_eq!(fixture.state.cluster.join(&join, 0).err(), Some(Refusal::Invalid), "{any}");
    }
}

#[test]
fn mounts_are_counted() {
    let mut fixture = Fixture::new(engines()[0].clone());
    let join = ClientJoin {
        volume: "home".into(),
        client: None,
        opens: Vec::new(),
        exclusive: false,
        place: "p".repeat(types::limits::PLACE_MAX),
    };
    let mut mounts = 1;
    let refused = loop {
        match fixture.state.client_join(&join, 0, 0) {
            Ok(_) => mounts += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refused, mounts), (Refusal::TooMany, types::limits::MOUNTS_MAX));
    let bytes = types::wire::to_bytes(&fixture.state.sessions.mounts(0, 0)).len();
    assert!(types::limits::MAP_MAX + bytes < types::limits::RECORD_MAX, "{bytes} bytes");
}

#[test]
fn space_is_what_the_fullest_brick_leaves() {
    on_all(|mut fixture| {
        let space = |fixture: &Fixture| {
            let request = StatFs { volume: fixture.volume };
            let map = fixture.state.cluster.map();
            fixture.state.read(|txn| ops::statfs(txn, map, &request)).expect("known")
        };
        // Four bricks of a GiB with equal shares, two thirds of it data.
        let all = space(&fixture);
        assert_eq!((all.total, all.free), ((4 << 30) * 2 / 3, (4 << 29) * 2 / 3));
        let almost_full = BrickHeartbeat { free: 3 << 20, ..beat(3, 1) };
        assert_eq!(fixture.state.cluster.beat(&almost_full, 0), Ok(()));
        assert_eq!(space(&fixture).free, (4 * (3 << 20)) * 2 / 3);
    });
}

#[test]
fn files_are_not_sent_to_groups_with_an_almost_full_brick() {
    on_all(|mut fixture| {
        let volume = fixture.volume;
        let map = fixture.state.cluster.map();
        let groups = &map.volume(volume).expect("there").groups;
        let without_third = |index: &u32| groups[*index as usize].slot_of(BrickId(3)).is_none();
        let others: Vec<u32> = (0..4).filter(without_third).collect();
        assert!(others.len() < 4, "the third brick is in some group");
        assert_eq!(fixture.state.cluster.with_room(volume, &[0, 1, 2, 3, 4]), [0, 1, 2, 3]);
        let beat = |free| BrickHeartbeat { free, ..beat(3, 1) };
        assert_eq!(fixture.state.cluster.beat(&beat((1 << 26) - 1), 0), Ok(()));
        assert_eq!(fixture.state.cluster.with_room(volume, &[0, 1, 2, 3]), others);
        assert_eq!(fixture.state.cluster.beat(&beat(1 << 26), 0), Ok(()));
        assert_eq!(fixture.state.cluster.with_room(volume, &[0, 1, 2, 3]), [0, 1, 2, 3]);
    });
}

#[test]
fn a_cluster_is_made_once() {
    for engine in engines() {
        let id = types::ClusterId([3; 16]);
        assert_eq!(crate::cluster_of(&engine).expect("readable"), None);
        assert!(matches!(crate::state::State::load(engine.clone(), 0), Err(crate::MetaError::NoCluster)));
        crate::create_cluster(&engine, id).expect("empty");
        assert!(matches!(crate::create_cluster(&engine, id), Err(crate::MetaError::Exists)));
        assert_eq!(crate::cluster_of(&engine).expect("readable"), Some(id));
    }
}

/// It is not taken for a damaged one, and nothing else of it is read.
#[test]
fn a_store_of_another_version_is_refused() {
    for engine in engines() {
        let mut value = crate::records::to_value(&types::ClusterId([3; 16]));
        value[0] = 1;
        let pairs = [(keys::cluster(), value)];
        let pairs = pairs.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())));
        engine.commit(pairs).expect("it works");
        let loaded = crate::state::State::load(engine.clone(), 0).err();
        let error = loaded.expect("refused");
        assert!(matches!(error, crate::MetaError::Version { found: 1 }), "{error}");
        assert!(error.to_string().contains("version 1"), "{error}");
        let made = crate::create_cluster(&engine, types::ClusterId([4; 16]));
        assert!(matches!(made, Err(crate::MetaError::Version { found: 1 })));
    }
}
