//! A block volume is one disk that only grows: it is mounted, grown and reopened, and other files and smaller sizes are
//! refused.

use types::limits::FILE_SIZE_MAX;
use types::messages::cluster::{ClientJoin, DISK, VolumeCreate, VolumeGrow};
use types::messages::names::{Attr, SetAttr};
use types::{InodeId, Refusal};

use crate::fixture::{Fixture, ROOT, on_all, volume_create};
use crate::ops;

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
