//! A block volume is one disk that only grows: it is mounted, grown and reopened, and other files and smaller sizes are
//! refused. Settings of a volume are changed and reopened, and bad ones refused.

use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::{ClientJoin, DISK, VolumeCreate, VolumeGrow, VolumeTune};
use types::messages::names::{Attr, SetAttr};
use types::tuning::TUNING_MAX;
use types::{InodeId, Refusal};

use crate::fixture::{Fixture, ROOT, on_all, volume_create};
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
