//! Files move between tiers, and directories have the names that callers mean: operations run on every storage engine.

use types::messages::Done;
use types::messages::cluster::{TierSpec, VolumeAddTier};
use types::messages::names::*;
use types::{ClientId, Geometry, InodeId, Refusal};

use crate::fixture::{Fixture, ROOT, on_all};
use crate::ops;

fn temporary(tree: &mut Fixture, tier: u8) -> Result<Attr, Refusal> {
    let (caller, volume, now) = (tree.caller(), tree.volume, tree.now);
    let request = CreateTemporary { caller: caller.clone(), volume, tier, now };
    tree.once(caller, move |txn| ops::create_temporary(txn, &request)).map(|made| made.attr)
}

fn swap(tree: &mut Fixture, seen: &Attr, temporary: InodeId) -> Result<Attr, Refusal> {
    let (caller, volume, inode) = (tree.caller(), tree.volume, seen.inode);
    let (changes, truncate_seq) = (seen.changes, seen.truncate_seq);
    let request = SwapObjects { caller: caller.clone(), volume, inode, temporary, changes, truncate_seq };
    tree.once(caller, move |txn| ops::swap_objects(txn, &request)).map(|reply| reply.attr)
}

#[test]
fn a_tier_on_the_same_bricks_adds_no_space() {
    on_all(|mut tree| {
        let space = |tree: &Fixture| {
            let request = StatFs { volume: tree.volume };
            tree.state.read(|txn| ops::statfs(txn, tree.state.cluster.map(), &request)).expect("known")
        };
        let before = space(&tree);
        assert!(before.total > 0);
        let geometry = Geometry::new("1+2".parse().expect("a code"), 4096, 64).expect("a geometry");
        let add = VolumeAddTier { name: "home".into(), tier: TierSpec { geometry, class: None } };
        tree.state.volume_add_tier(&add).expect("there is room");
        let after = space(&tree);
        let rounded = before.total..=before.total + 100;
        assert!(rounded.contains(&after.total), "{before:?}, {after:?}");
        assert!(after.free <= after.total && after.free >= before.free);
    });
}

#[test]
fn a_file_moves_to_another_tier_and_its_old_object_goes_with_the_copy() {
    on_all(|mut tree| {
        let spec = TierSpec {
            geometry: Geometry::new("1+2".parse().expect("a code"), 4096, 64).expect("a geometry"),
            class: None,
        };
        // `Exists` would say that there is such a volume: a client that repeats its request takes it for made.
        let mut create = crate::fixture::volume_create("twice", "1+2");
        create.tiers = vec![spec.clone()];
        assert_eq!(tree.state.volume_create(&create, 1).map(|_| ()), Err(Refusal::Invalid));
        let add = VolumeAddTier { name: "home".into(), tier: spec };
        let added = tree.state.volume_add_tier(&add).expect("there is room");
        assert_eq!(
            added.all_tiers().map(|tier| tier.geometry.code().to_string()).collect::<Vec<_>>(),
            ["2+1", "1+2"]
        );
        assert_eq!(tree.state.volume_add_tier(&add), Err(Refusal::Exists));
        assert_eq!(temporary(&mut tree, 2), Err(Refusal::Invalid), "there is no third tier");

        let a = tree.create_open(ROOT, "a").expect("free");
        tree.grow(&a, 9000, true).expect("new");
        let seen = tree.getattr(a.inode).expect("there");
        let copy = temporary(&mut tree, 1).expect("a tier");
        assert_eq!((copy.links, copy.object.tier()), (0, 1));
        assert_eq!(swap(&mut tree, &seen, copy.inode), Err(Refusal::Invalid), "it is not as long");
        tree.grow(&copy, 9000, true).expect("copied");
        assert_eq!(swap(&mut tree, &seen, a.inode), Err(Refusal::Invalid), "no file without a name");

        // Somebody writes meanwhile, or may.
        tree.grow(&a, 9000, true).expect("there");
        assert_eq!(swap(&mut tree, &seen, copy.inode), Err(Refusal::Busy));
        let seen = tree.getattr(a.inode).expect("there");
        let (place, other) = ((tree.volume, a.inode), ClientId(999));
        tree.state.volatile.opens.open(place, other, true);
        assert_eq!(swap(&mut tree, &seen, copy.inode), Err(Refusal::Busy));
        tree.state.volatile.opens.drop_client(other, |_| false);
        tree.grow(&a, 10_000, false).expect("growth that is not stable");
        assert_eq!(swap(&mut tree, &seen, copy.inode), Err(Refusal::Busy));
        let cut = tree.truncate(a.inode, 9000).expect("shorter");
        assert_eq!(cut.stale_end, 10_000);

        let moved = swap(&mut tree, &cut, copy.inode).expect("nobody writes");
        let expected =
            Attr { object: copy.object, stale_end: 0, truncate_seq: cut.truncate_seq + 1, ..cut.clone() };
        assert_eq!(moved, expected, "all else is as it was");
        assert_eq!(tree.getattr(a.inode), Ok(moved));
        assert_eq!(tree.purges(), []);
        let place = (tree.volume, copy.inode);
        tree.state.volatile.opens.release(place, tree.client, true);
        tree.state.drop_orphans(&[place]);
        assert_eq!((tree.purges(), tree.inodes()), (vec![a.object], 2));

        // A service that dies keeps what was decided; a copy whose client does not come back goes.
        let late = temporary(&mut tree, 0).expect("a tier");
        tree.grow(&late, 1, true).expect("copied");
        let mut tree = tree.restart(Vec::new());
        assert_eq!(tree.getattr(late.inode), Err(Refusal::Stale));
        assert_eq!(tree.getattr(a.inode).map(|attr| attr.object), Ok(copy.object));
        // What is truncated to nothing begins in the first tier.
        assert_eq!(tree.truncate(a.inode, 0).map(|attr| attr.object.tier()), Ok(0));
    });
}

#[test]
fn a_directory_that_the_caller_does_not_mean_is_neither_removed_nor_replaced() {
    on_all(|mut tree| {
        let (a, b) = (tree.mkdir(ROOT, "a").expect("free"), tree.mkdir(ROOT, "b").expect("free"));
        let (caller, volume, now) = (tree.caller(), tree.volume, tree.now);
        let meant = Some(b.inode);
        let rmdir = Rmdir { caller: caller.clone(), volume, parent: ROOT, name: "a".into(), meant, now };
        assert_eq!(tree.once(caller, move |txn| ops::rmdir(txn, &rmdir)), Err(Refusal::Stale));
        for (to_name, meant, expected) in [
            ("b", Some(a.inode), Err(Refusal::Stale)),
            ("c", Some(a.inode), Err(Refusal::Stale)),
            ("b", Some(b.inode), Ok(())),
        ] {
            let (caller, from_name, to_name) = (tree.caller(), b"a".to_vec(), to_name.into());
            let how = RenameHow::Replace;
            let rename = Rename {
                caller: caller.clone(),
                volume,
                from: ROOT,
                from_name,
                to: ROOT,
                to_name,
                how,
                meant,
                now,
            };
            assert_eq!(tree.once(caller, move |txn| ops::rename(txn, &rename)).map(|_| ()), expected);
        }
        assert_eq!(tree.lookup(ROOT, "b").map(|attr| attr.inode), Ok(a.inode));
    });
}

#[test]
fn bytes_that_a_lost_client_has_not_reported_are_purged_with_their_file() {
    on_all(|mut tree| {
        let [a, b] = ["a", "b"].map(|name| tree.create(ROOT, name).expect("free"));
        let place = (tree.volume, a.inode);
        tree.idempotent(move |txn| ops::count_changes(txn, &[place]).map(|()| Done {}))
            .expect("it was open for writing");
        tree.unlink(ROOT, "a").expect("there");
        tree.unlink(ROOT, "b").expect("there");
        assert_eq!(tree.purges(), vec![a.object], "nobody had {} open", b.inode);
    });
}

#[test]
fn nobody_makes_the_reserved_name_in_the_root_and_an_old_one_can_go() {
    on_all(|mut tree| {
        let name = std::str::from_utf8(RESERVED_NAME).expect("text");
        let refused = Err(Refusal::NotPermitted);
        let (d, f) = (tree.mkdir(ROOT, "d").expect("free"), tree.create(ROOT, "f").expect("free"));
        assert_eq!(tree.mkdir(ROOT, name).map(|_| ()), refused);
        assert_eq!(tree.create(ROOT, name).map(|_| ()), refused);
        assert_eq!(tree.create_open(ROOT, name).map(|_| ()), refused);
        assert_eq!(tree.symlink(ROOT, name, "f").map(|_| ()), refused);
        assert_eq!(tree.link(f.inode, ROOT, name).map(|_| ()), refused);
        for how in [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange] {
            assert_eq!(tree.rename((ROOT, "d"), (ROOT, name), how), refused);
        }
        assert_eq!(tree.names(ROOT), ["d", "f"]);

        // Elsewhere it is a name like any other.
        let inner = tree.mkdir(d.inode, name).expect("free");

        // An older build has made it.
        let volume = tree.volume;
        let made = tree.idempotent(move |txn| {
            let (mut directory, _, _) = txn.find((volume, ROOT), b"f")?;
            txn.add_entry(&mut directory, RESERVED_NAME, inner.inode, None);
            txn.put_directory(&directory);
            Ok(Done {})
        });
        assert_eq!(made, Ok(Done {}));
        assert_eq!(tree.mkdir(ROOT, name).map(|_| ()), refused);
        assert_eq!(tree.rename((ROOT, name), (ROOT, "d"), RenameHow::Exchange), refused);
        assert_eq!(tree.rename((ROOT, name), (ROOT, "away"), RenameHow::NoReplace), Ok(()));
        assert_eq!(tree.rmdir(ROOT, "away"), Ok(()));
    });
}
