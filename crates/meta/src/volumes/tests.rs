//! A block volume is one disk that only grows: it is mounted, grown and reopened, and other files and smaller sizes are
//! refused. Settings of a volume are changed and reopened, and bad ones refused. On a known network groups lie near their
//! primaries.

use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::{
    BrickJoin, ClientJoin, DISK, FailureDomain, PlacementSpec, TierSpec, TopologySet, VolumeAddTier,
    VolumeCreate, VolumeGrow, VolumeTune,
};
use types::messages::names::{Attr, SetAttr};
use types::tuning::TUNING_MAX;
use types::{BrickId, InodeId, NodeId, Refusal};

use crate::fixture::{Fixture, ROOT, brick_join, on_all, volume_create};
use crate::ops;
use crate::records::to_value;
use crate::{keys, kv::Writes};

const MIB: u64 = 1 << 20;

/// The fixture's client mounts a block volume.
fn mount(tree: &mut Fixture, size: u64) {
    let create = VolumeCreate { block: Some(size), ..volume_create("vm", "2+1") };
    let made = tree.state.volume_create(&create, 5).expect("it fits");
    assert_eq!(made.block, Some(size));
    tree.volume = made.id;
    let (volume, place) = ("vm".into(), String::new());
    let join = ClientJoin { volume, client: None, opens: Vec::new(), exclusive: false, place };
    tree.client = tree.state.client_join(&join, 0, 0).expect("there is the volume").client;
}

fn disk(tree: &Fixture) -> Attr {
    tree.lookup(ROOT, "disk").expect("the disk is there")
}

fn cut(tree: &mut Fixture, inode: InodeId, size: u64) -> Result<u64, Refusal> {
    let (caller, volume, now) = (tree.caller(), tree.volume, tree.now);
    let request = SetAttr {
        caller: caller.clone(),
        volume,
        inode,
        mode: None,
        uid: None,
        gid: None,
        size: Some(size),
        sent_end: 0,
        atime: None,
        mtime: None,
        now,
    };
    tree.once(caller, move |txn| ops::setattr(txn, &request)).map(|reply| reply.attr.size)
}

fn grow(tree: &mut Fixture, name: &str, size: u64) -> Result<Option<u64>, Refusal> {
    let grown = tree.state.volume_grow(&VolumeGrow { name: name.into(), size });
    grown.map(|volume| volume.block)
}

#[test]
fn a_block_volume_is_its_disk_and_nothing_else() {
    on_all(|mut tree| {
        mount(&mut tree, 100 * MIB);
        let found = disk(&tree);
        assert_eq!((found.size, found.mode, found.links), (100 * MIB, 0o600, 1));
        assert_eq!(tree.inodes(), 2);
        let other = tree.create(ROOT, "other");
        assert_eq!(other, Err(Refusal::NotPermitted));
        assert_eq!(tree.unlink(ROOT, "disk"), Err(Refusal::NotPermitted));
        for size in [0, MIB, 200 * MIB] {
            assert_eq!(cut(&mut tree, found.inode, size), Err(Refusal::NotPermitted));
        }
        assert_eq!(disk(&tree), found);
    });
}

#[test]
fn a_disk_grows_and_never_shrinks_also_over_a_restart() {
    on_all(|mut tree| {
        mount(&mut tree, 8 * MIB);
        assert_eq!(grow(&mut tree, "vm", 16 * MIB), Ok(Some(16 * MIB)));
        assert_eq!(grow(&mut tree, "vm", 16 * MIB), Ok(Some(16 * MIB)), "asked for again");
        for (name, size) in [("vm", 8 * MIB), ("vm", 0), ("vm", 16 * MIB + 1), ("home", 16 * MIB)] {
            assert_eq!(grow(&mut tree, name, size), Err(Refusal::Invalid), "{name} {size}");
        }
        assert_eq!(grow(&mut tree, "vm", FILE_SIZE_MAX + 4096), Err(Refusal::FileTooLarge));
        assert_eq!(grow(&mut tree, "none", MIB), Err(Refusal::Unknown));
        assert_eq!(disk(&tree).size, 16 * MIB);
        let tree = tree.restart_without_clients();
        assert_eq!(disk(&tree).size, 16 * MIB);
        assert_eq!(tree.state.cluster.map().volume_named("vm").and_then(|v| v.block), Some(16 * MIB));
        assert!(tree.state.volatile.disks.contains(&tree.volume));
    });
}

fn tune(tree: &mut Fixture, name: &str, changes: &str) -> Result<String, Refusal> {
    let tuned = tree.state.volume_tune(&VolumeTune { name: name.into(), changes: changes.into() });
    tuned.map(|volume| volume.tuning)
}

/// The settings of the volume `home` in the map.
fn tuning(tree: &Fixture) -> &str {
    &tree.state.cluster.map().volume_named("home").expect("the fixture has it").tuning
}

#[test]
fn settings_of_a_volume_are_kept_over_a_restart() {
    on_all(|mut tree| {
        assert_eq!(tuning(&tree), "");
        let before = tree.state.cluster.version();
        assert_eq!(tune(&mut tree, "home", "read-ahead=off"), Ok("read-ahead=off".into()));
        let both = "io-cache.page=4K read-ahead=off";
        assert_eq!(tune(&mut tree, "home", "io-cache.page=4096"), Ok(both.into()));
        assert_eq!(tree.state.cluster.version().0, before.0 + 2, "clients learn of each change");
        let mut tree = tree.restart_without_clients();
        assert_eq!(tuning(&tree), both);
        assert_eq!(tune(&mut tree, "home", "io-cache.page=inherit read-ahead=inherit"), Ok(String::new()));
        let tree = tree.restart_without_clients();
        assert_eq!(tuning(&tree), "");
    });
}

#[test]
fn settings_that_cannot_be_read_are_refused_and_change_nothing() {
    on_all(|mut tree| {
        assert_eq!(tune(&mut tree, "home", "read-ahead=on"), Ok("read-ahead=on".into()));
        let before = tree.state.cluster.version();
        let long = " ".repeat(TUNING_MAX + 1);
        for changes in ["read-ahead=maybe", "io-cache=off prefetch=on", "on", &long] {
            assert_eq!(tune(&mut tree, "home", changes), Err(Refusal::Invalid), "{changes}");
        }
        assert_eq!(tune(&mut tree, "none", "read-ahead=off"), Err(Refusal::Unknown));
        assert_eq!((tuning(&tree), tree.state.cluster.version()), ("read-ahead=on", before));
        assert_eq!(tuning(&tree.restart_without_clients()), "read-ahead=on");
    });
}

#[test]
fn settings_of_a_newer_build_stay_as_they_are() {
    on_all(|mut tree| {
        let newer = "read-ahead.depth=7".to_owned();
        let key = keys::tuning(tree.volume);
        assert!(tree.state.commit(Writes::from([(key, Some(to_value(&newer)))])));
        let mut tree = tree.restart_without_clients();
        assert_eq!(tuning(&tree), newer);
        assert_eq!(tune(&mut tree, "home", "read-ahead=off"), Err(Refusal::Invalid));
        assert_eq!(tuning(&tree), newer);
    });
}

#[test]
fn a_new_volume_does_not_have_the_settings_of_a_deleted_one() {
    on_all(|mut tree| {
        tree.state.volume_create(&volume_create("more", "2+1"), 5).expect("it fits");
        assert_eq!(tune(&mut tree, "more", "io-cache=off"), Ok("io-cache=off".into()));
        assert_eq!(tree.state.volume_delete("more"), Ok(()));
        let made = tree.state.volume_create(&volume_create("more", "2+1"), 5).expect("it fits");
        assert_eq!(made.tuning, "");
        let tree = tree.restart_without_clients();
        assert!(tree.state.cluster.map().volumes.iter().all(|volume| volume.tuning.is_empty()));
    });
}

#[test]
fn ids_go_on_after_a_disk() {
    on_all(|mut tree| {
        let before = tree.create(ROOT, "a").expect("free").inode;
        let home = (tree.volume, tree.client);
        mount(&mut tree, MIB);
        let between = disk(&tree).inode;
        (tree.volume, tree.client) = home;
        let after = tree.create(ROOT, "b").expect("free").inode;
        assert!(before < between && between < after, "{before} {between} {after}");
    });
}

#[test]
fn bad_sizes_make_no_volume() {
    on_all(|mut tree| {
        for size in [0, 4095, 4097, FILE_SIZE_MAX + 4096] {
            let create = VolumeCreate { block: Some(size), ..volume_create("vm", "2+1") };
            assert!(tree.state.volume_create(&create, 5).is_err(), "{size}");
        }
        assert!(tree.state.cluster.map().volume_named("vm").is_none());
        assert_eq!(DISK, b"disk");
    });
}

/// Six nodes in a ring of cables; bricks 1 to 4 of the fixture, and two more.
fn on_a_ring(tree: &mut Fixture) {
    for brick in 5..=6 {
        let writes = tree.state.cluster.join(&brick_join(brick, 1), 0).expect("new");
        assert!(tree.state.commit(writes));
    }
    let places: String = (1..=6).map(|node| format!("node {node} at {}\n", node - 1)).collect();
    let set = TopologySet { topology: format!("torus 6\n{places}"), may_move: false };
    tree.state.topology_set(&set).expect("sound");
}

fn placed(domain: FailureDomain) -> VolumeCreate {
    let spec = PlacementSpec { domain, front_primaries: false, wide: false };
    VolumeCreate { groups: 12, placement: Some(spec), ..volume_create("ring", "2+1") }
}

#[test]
fn members_of_a_group_are_beside_their_primary() {
    on_all(|mut tree| {
        on_a_ring(&mut tree);
        let made = tree.state.volume_create(&placed(FailureDomain::Node), 5).expect("it fits");
        for group in &made.groups {
            let nodes: Vec<u32> = group.slots.iter().map(|slot| slot.brick.0).collect();
            let primary = nodes[2];
            let beside = [primary % 6 + 1, (primary + 4) % 6 + 1];
            assert!(nodes[..2].iter().all(|node| beside.contains(node)), "{nodes:?}");
        }
        // A volume that was there before lies where it lay, and both are the same after a restart.
        let volumes = tree.state.cluster.map().volumes.clone();
        let tree = tree.restart_without_clients();
        assert_eq!(tree.state.cluster.map().volumes, volumes);
        assert_eq!(volumes[0].placement, None);
        assert_eq!(volumes[1].placement, placed(FailureDomain::Node).placement);
    });
}

#[test]
fn a_further_tier_is_placed_as_its_volume_is() {
    on_all(|mut tree| {
        on_a_ring(&mut tree);
        tree.state.volume_create(&placed(FailureDomain::Node), 5).expect("it fits");
        let geometry = volume_create("", "1+1").geometry;
        let add = VolumeAddTier { name: "ring".into(), tier: TierSpec { geometry, class: None } };
        let grown = tree.state.volume_add_tier(&add).expect("it fits");
        let first = grown.tiers[0].first as usize;
        for group in &grown.groups[first..] {
            let apart = group.slots[0].brick.0.abs_diff(group.slots[1].brick.0);
            assert!(apart == 1 || apart == 5, "{group:?}");
        }
    });
}

#[test]
fn what_the_topology_cannot_give_makes_no_volume() {
    on_all(|mut tree| {
        let no_topology = tree.state.volume_create(&placed(FailureDomain::Row), 5);
        assert_eq!(no_topology.err(), Some(Refusal::Invalid));
        on_a_ring(&mut tree);
        // A ring is one row.
        assert_eq!(
            tree.state.volume_create(&placed(FailureDomain::Row), 5).err(),
            Some(Refusal::TooFewDomains)
        );
        assert_eq!(tree.state.volume_create(&placed(FailureDomain::Rack), 5).err(), Some(Refusal::Invalid));
        let writes = tree.state.cluster.join(&brick_join(9, 1), 0).expect("new");
        assert!(tree.state.commit(writes));
        let outside = tree.state.volume_create(&placed(FailureDomain::Node), 5);
        assert_eq!(outside.err(), Some(Refusal::Invalid), "brick 9 has no place");
        assert!(tree.state.cluster.map().volume_named("ring").is_none());
    });
}

#[test]
fn a_brick_takes_no_place_in_a_domain_that_its_group_has() {
    on_all(|mut tree| {
        let racks = [1, 2, 3, 4, 3, 1].iter().zip(1..).map(|(rack, node)| format!("node {node} at {rack}\n"));
        let topology = format!("fat-tree\n{}", racks.collect::<String>());
        tree.state.topology_set(&TopologySet { topology, may_move: false }).expect("sound");
        tree.state.volume_create(&placed(FailureDomain::Rack), 5).expect("it fits");
        for (brick, node) in [(5, 5), (6, 6), (7, 7)] {
            let join = BrickJoin { node: NodeId(node), ..brick_join(brick, 1) };
            let writes = tree.state.cluster.join(&join, 0).expect("new");
            assert!(tree.state.commit(writes));
        }
        let cluster = &tree.state.cluster;
        let ring = cluster.map().volume_named("ring").expect("it was made");
        // Nodes 1 and 6 are in one rack; node 7 has no place.
        let shares = |brick: u32, node: u32| cluster.share_domain(ring, BrickId(brick), NodeId(node));
        assert!(shares(1, 6) && !shares(2, 6) && shares(3, 5) && shares(2, 7));
        let home = cluster.map().volume_named("home").expect("the fixture has it");
        assert!(!cluster.share_domain(home, BrickId(1), NodeId(6)), "that volume knows nothing of racks");
    });
}
