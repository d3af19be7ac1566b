mod harm;

use types::messages::replica::MetaRepair;
use types::{InodeId, ObjectId, Refusal, VolumeId};

use super::*;
use crate::fixture::{Fixture, ROOT, engines};
use crate::keys;
use crate::kv::Engine;
use crate::ops;
use crate::records::{Entry, Inode, Listed, to_value};

const MEMORY: usize = 1 << 20;

/// What a check says of a store whose bricks hold nothing.
pub(crate) fn checked(tree: &Fixture) -> Checked {
    let mut reader = tree.engine.snapshot().expect("memory does not fail");
    check(&mut reader, MEMORY, 9_000, Some(&Held::new()), &mut |_| {}).expect("there is enough memory")
}

fn words(checked: &Checked) -> Vec<&'static str> {
    checked.found.iter().map(|found| found.fault.word()).collect()
}

/// Makes all repairs. Returns how many were made.
fn repair(tree: &mut Fixture, checked: Checked) -> usize {
    let mut done = 0;
    for request in checked.found.into_iter().filter_map(|found| found.repair) {
        let repaired = tree.idempotent(move |txn| ops::repair(txn, &request));
        done += usize::from(repaired.is_ok_and(|repaired| repaired.is_done));
    }
    done
}

/// Changes the store behind the service's back.
fn damage(tree: &mut Fixture, key: &[u8], value: Option<Vec<u8>>) {
    tree.engine.commit([(key, value.as_deref())].into_iter()).expect("memory does not fail");
    let engine = tree.engine.clone();
    tree.state = crate::state::State::load(engine, 0).expect("there is a cluster");
}

fn change_inode(tree: &mut Fixture, inode: InodeId, change: impl FnOnce(&mut Inode)) {
    let key = keys::inode(tree.volume, inode);
    let mut value: Inode = tree.state.read(|txn| txn.get(&key)).expect("readable").expect("there");
    change(&mut value);
    damage(tree, &key, Some(to_value(&value)));
}

struct Small {
    tree: Fixture,
    directory: InodeId,
    /// With two names.
    file: InodeId,
    link: InodeId,
}

/// `d`, `d/f`, `g` (the same file), `d/s` (a symbolic link), `e`.
fn small(engine: Engine) -> Small {
    let mut tree = Fixture::new(engine);
    let directory = tree.mkdir(ROOT, "d").expect("new").inode;
    let file = tree.create(directory, "f").expect("new").inode;
    tree.link(file, ROOT, "g").expect("new");
    let link = tree.symlink(directory, "s", "target").expect("new").inode;
    tree.mkdir(ROOT, "e").expect("new");
    Small { tree, directory, file, link }
}

/// Damages a small tree, and checks what is found before and after the repair.
fn test(expected: &[&str], harm: impl Fn(&mut Small), after: impl Fn(&Small)) {
    for engine in engines() {
        let mut small = small(engine);
        assert_eq!(words(&checked(&small.tree)), [""; 0]);
        harm(&mut small);
        let found = checked(&small.tree);
        assert_eq!(words(&found), expected, "{:?}", found.found);
        let known = found.found.iter().filter(|found| found.repair.is_some()).count();
        assert_eq!(repair(&mut small.tree, found), known);
        let left: Vec<_> =
            checked(&small.tree).found.into_iter().filter(|found| found.repair.is_some()).collect();
        assert!(left.is_empty(), "{left:?}");
        after(&small);
    }
}

#[test]
fn a_name_that_leads_nowhere_is_removed() {
    test(
        &["name-without-inode", "counts", "inodes"],
        |small| {
            let key = keys::inode(small.tree.volume, small.link);
            damage(&mut small.tree, &key, None);
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f"]),
    );
}

#[test]
fn a_lost_directory_is_made_anew() {
    test(
        &["lost-directory"],
        |small| {
            let key = keys::inode(small.tree.volume, small.directory);
            damage(&mut small.tree, &key, None);
        },
        |small| {
            let directory = small.tree.lookup(ROOT, "d").expect("named");
            assert_eq!((directory.inode, directory.links, directory.uid), (small.directory, 2, 0));
            assert_eq!(small.tree.names(small.directory), ["f", "s"]);
        },
    );
    // Its name is lost, too.
    test(
        &["counts", "no-name"],
        |small| {
            let (volume, directory) = (small.tree.volume, small.directory);
            let entry: Option<Entry> =
                small.tree.state.read(|txn| txn.get(&keys::entry(volume, ROOT, b"d"))).expect("readable");
            let cookie = entry.expect("there").cookie;
            damage(&mut small.tree, &keys::inode(volume, directory), None);
            damage(&mut small.tree, &keys::entry(volume, ROOT, b"d"), None);
            damage(&mut small.tree, &keys::listed(volume, ROOT, cookie), None);
        },
        |small| {
            let home = small.tree.lookup(ROOT, "lost+found").expect("made").inode;
            assert_eq!(small.tree.names(home), [format!("#{}", small.directory.0)]);
            assert_eq!(small.tree.names(small.directory), ["f", "s"]);
        },
    );
}

#[test]
fn a_lost_root_is_made_anew() {
    test(
        &["lost-directory"],
        |small| {
            let key = keys::inode(small.tree.volume, ROOT);
            damage(&mut small.tree, &key, None);
        },
        |small| assert_eq!(small.tree.names(ROOT), ["d", "g", "e"]),
    );
}

#[test]
fn a_name_that_is_still_listed_comes_back() {
    test(
        &["name-lost"],
        |small| {
            let key = keys::entry(small.tree.volume, ROOT, b"d");
            damage(&mut small.tree, &key, None);
        },
        |small| assert_eq!(small.tree.lookup(ROOT, "d").map(|attr| attr.inode), Ok(small.directory)),
    );
}

/// A name is lost in both of its forms.
fn lose_name(tree: &mut Fixture, directory: InodeId, name: &str) {
    let key = keys::entry(tree.volume, directory, name.as_bytes());
    let entry: Entry = tree.state.read(|txn| txn.get(&key)).expect("readable").expect("there");
    damage(tree, &key, None);
    damage(tree, &keys::listed(tree.volume, directory, entry.cookie), None);
}

#[test]
fn what_has_lost_its_name_gets_one() {
    test(
        &["counts", "no-name"],
        |small| lose_name(&mut small.tree, ROOT, "d"),
        |small| {
            let home = small.tree.lookup(ROOT, "lost+found").expect("made");
            let found = small.tree.lookup(home.inode, &format!("#{}", small.directory.0)).expect("there");
            assert_eq!((found.inode, home.links), (small.directory, 3));
            assert_eq!(small.tree.readdir(small.directory, 0, 9).expect("a directory").parent, home.inode);
        },
    );
}

#[test]
fn something_else_may_be_called_lost_and_found() {
    let mut small = small(Engine::memory());
    small.tree.create(ROOT, "lost+found").expect("new");
    lose_name(&mut small.tree, small.directory, "s");
    let found = checked(&small.tree);
    repair(&mut small.tree, found);
    assert_eq!(words(&checked(&small.tree)), [""; 0]);
    let home = small.tree.lookup(ROOT, "lost+found.1").expect("made").inode;
    assert_eq!(small.tree.names(home), [format!("#{}", small.link.0)]);
}

#[test]
fn beside_something_unreadable_nothing_is_repaired() {
    // It may have the names and the objects that are missing elsewhere.
    for what in [
        keys::inode(VolumeId(1), InodeId(4)),
        keys::entry(VolumeId(1), ROOT, b"d"),
        keys::listed(VolumeId(1), ROOT, 3),
    ] {
        let mut small = small(Engine::memory());
        assert_eq!((small.tree.volume, small.file), (VolumeId(1), InodeId(4)));
        let object = small.tree.truncate(small.file, 0).expect("there").object;
        lose_name(&mut small.tree, small.directory, "s");
        damage(&mut small.tree, &what, Some(vec![2, 1]));
        let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
        let held = Held::from([(small.tree.volume, vec![object, ObjectId(2)])]);
        let found = check(&mut reader, MEMORY, 0, Some(&held), &mut |_| {}).expect("there is enough memory");
        assert!(
            words(&found).contains(&"unreadable") && words(&found).contains(&"unowned"),
            "{:?}",
            found.found
        );
        assert!(found.found.iter().all(|found| found.repair.is_none()), "{:?}", found.found);
    }
}

#[test]
fn what_programs_did_meanwhile_is_not_undone() {
    // The check sees the store before the program's change, and the repair comes after it.
    type Change = fn(&mut Small);
    let harm: [(&str, Change, Change); 4] = [
        (
            "not-listed",
            |small| {
                let key = keys::listed(small.tree.volume, small.directory, 3);
                damage(&mut small.tree, &key, None);
            },
            |small| small.tree.unlink(small.directory, "f").expect("there"),
        ),
        (
            "named-orphan",
            |small| {
                let key = keys::orphan(small.tree.volume, small.file);
                damage(&mut small.tree, &key, Some(to_value(&[0u8; 0])));
            },
            |small| small.tree.unlink(ROOT, "g").expect("there"),
        ),
        (
            "purged",
            |small| {
                let key = keys::purge(small.tree.volume, ObjectId(small.file.0));
                damage(&mut small.tree, &key, Some(to_value(&[0u8; 0])));
            },
            |small| assert!(small.tree.truncate(small.file, 0).is_ok()),
        ),
        (
            "no-name",
            |small| lose_name(&mut small.tree, small.directory, "s"),
            |small| assert!(small.tree.link(small.link, ROOT, "again").is_ok()),
        ),
    ];
    for (word, harm, change) in harm {
        let mut small = small(Engine::memory());
        small.tree.grow(&small.tree.getattr(small.file).expect("there"), 5000, true).expect("known");
        harm(&mut small);
        let found = checked(&small.tree).found;
        let found = found.into_iter().find(|found| found.fault.word() == word).expect("found");
        change(&mut small);
        let request = found.repair.expect("one");
        let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request)).expect("answered");
        assert!(!repaired.is_done, "{word}");
    }
}

#[test]
fn counts_are_corrected() {
    test(
        &["counts", "counts", "counts"],
        |small| {
            change_inode(&mut small.tree, small.directory, |inode| {
                (inode.links, inode.size, inode.cookie_next, inode.parent) = (9, 8, 1, InodeId(77));
            });
            change_inode(&mut small.tree, small.file, |inode| inode.links = 1);
            change_inode(&mut small.tree, small.link, |inode| inode.size = 3);
        },
        |small| {
            assert_eq!(small.tree.getattr(small.file).expect("there").links, 2);
            assert_eq!(small.tree.getattr(small.link).expect("there").size, 6);
            let directory = small.tree.getattr(small.directory).expect("there");
            assert_eq!((directory.links, directory.size), (2, 2));
        },
    );
}

#[test]
fn names_and_what_is_listed_agree_again() {
    test(
        &["not-listed"],
        |small| {
            let (volume, directory) = (small.tree.volume, small.directory);
            damage(&mut small.tree, &keys::listed(volume, directory, 3), None);
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
    test(
        &["not-listed"],
        |small| {
            let (volume, directory) = (small.tree.volume, small.directory);
            let listed = Listed { inode: InodeId(99), name: b"x".to_vec() };
            damage(&mut small.tree, &keys::listed(volume, directory, 3), Some(to_value(&listed)));
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
    test(
        &["listed-only"],
        |small| {
            let (volume, directory) = (small.tree.volume, small.directory);
            let listed = Listed { inode: small.file, name: b"x".to_vec() };
            damage(&mut small.tree, &keys::listed(volume, directory, 1000), Some(to_value(&listed)));
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
    // Two names at one place: the second one moves.
    test(
        &["not-listed", "listed-only"],
        |small| {
            let key = keys::entry(small.tree.volume, small.directory, b"s");
            damage(&mut small.tree, &key, Some(to_value(&Entry { inode: small.link, cookie: 3 })));
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
}

#[test]
fn a_directory_has_one_name() {
    // The name that counts is the one in the directory that it says.
    test(
        &["second-name", "counts"],
        |small| {
            let other = small.tree.lookup(ROOT, "e").expect("there").inode;
            let key = keys::entry(small.tree.volume, other, b"again");
            damage(&mut small.tree, &key, Some(to_value(&Entry { inode: small.directory, cookie: 50 })));
        },
        |small| assert_eq!(small.tree.lookup(ROOT, "d").map(|attr| attr.inode), Ok(small.directory)),
    );
}

#[test]
fn directories_in_themselves_come_back() {
    test(
        &["loop", "counts", "counts", "no-name"],
        |small| {
            let (volume, other) = (small.tree.volume, small.tree.lookup(ROOT, "e").expect("there").inode);
            let cookie = 40;
            for (from, name, home, child) in
                [(ROOT, b"d", other, small.directory), (ROOT, b"e", small.directory, other)]
            {
                let key = keys::entry(volume, from, name);
                let entry: Entry =
                    small.tree.state.read(|txn| txn.get(&key)).expect("readable").expect("there");
                damage(&mut small.tree, &key, None);
                damage(&mut small.tree, &keys::listed(volume, from, entry.cookie), None);
                let listed = Listed { inode: child, name: name.to_vec() };
                damage(
                    &mut small.tree,
                    &keys::entry(volume, home, name),
                    Some(to_value(&Entry { inode: child, cookie })),
                );
                damage(&mut small.tree, &keys::listed(volume, home, cookie), Some(to_value(&listed)));
                change_inode(&mut small.tree, child, |inode| inode.parent = home);
                change_inode(&mut small.tree, home, |inode| {
                    (inode.links, inode.size, inode.cookie_next) = (inode.links + 1, inode.size + 1, 41);
                });
            }
        },
        |small| {
            let home = small.tree.lookup(ROOT, "lost+found").expect("made").inode;
            assert_eq!(small.tree.names(home).len(), 1);
        },
    );
}

#[test]
fn what_has_a_name_is_not_removed_or_purged() {
    test(
        &["orphan-without-inode", "named-orphan", "purged"],
        |small| {
            let (volume, file) = (small.tree.volume, small.file);
            damage(&mut small.tree, &keys::orphan(volume, InodeId(12345)), Some(to_value(&[0u8; 0])));
            damage(&mut small.tree, &keys::orphan(volume, file), Some(to_value(&[0u8; 0])));
            damage(&mut small.tree, &keys::purge(volume, ObjectId(file.0)), Some(to_value(&[0u8; 0])));
        },
        |small| {
            assert!(small.tree.state.volatile.orphans.is_empty());
            assert_eq!(small.tree.purges(), []);
        },
    );
}

#[test]
fn ids_in_use_are_not_given_again() {
    test(
        &["ids"],
        |small| damage(&mut small.tree, &keys::id_counter(), Some(to_value(&3u64))),
        |small| {
            let last: Option<u64> =
                small.tree.state.read(|txn| txn.get(&keys::id_counter())).expect("readable");
            let highest = small.tree.lookup(ROOT, "e").expect("there").inode.0;
            assert_eq!(last, Some(highest));
        },
    );
}

#[test]
fn what_nobody_can_repair_is_told() {
    test(
        &["unknown-volume", "unreadable", "shared-object"],
        |small| {
            let object = small.tree.getattr(small.file).expect("there").object;
            let other = small.tree.create(ROOT, "h").expect("new").inode;
            change_inode(&mut small.tree, other, |inode| inode.object = object);
            let key = keys::inode(small.tree.volume, small.link);
            damage(&mut small.tree, &key, Some(vec![1, 2, 3]));
            damage(&mut small.tree, &keys::inode(VolumeId(55), ROOT), Some(vec![1]));
        },
        |_| {},
    );
}

#[test]
fn what_only_bricks_have_is_purged() {
    let mut small = small(Engine::memory());
    let (volume, file) = (small.tree.volume, ObjectId(small.file.0));
    let waits = ObjectId(small.tree.create(ROOT, "h").expect("new").inode.0);
    small
        .tree
        .idempotent(move |txn| {
            txn.purge(volume, waits);
            Ok(types::messages::Done {})
        })
        .expect("it works");
    small.tree.unlink(ROOT, "h").expect("there");
    let lost = ObjectId(small.link.0);
    let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
    let held = Held::from([(volume, vec![ObjectId(2), file, lost, waits, ObjectId::in_tier(5000, 1)])]);
    let found = check(&mut reader, MEMORY, 0, Some(&held), &mut |_| {}).expect("there is enough memory");
    let unowned = |object| Fault::Unowned { object: ObjectId(object) };
    let faults: Vec<Fault> = found.found.iter().map(|found| found.fault.clone()).collect();
    let far = ObjectId::in_tier(5000, 1);
    let ids = Fault::Ids { stored: waits.0, found: 5000 };
    assert_eq!(faults, [ids, unowned(2), unowned(lost.0), unowned(far.0)]);
    assert_eq!(repair(&mut small.tree, found), 4);
    assert_eq!(small.tree.purges(), [ObjectId(2), lost, waits, far]);
    // An id that nobody has got yet may be the next file's.
    let purge = Some(types::messages::replica::PurgeObject { volume, object: ObjectId(6000) });
    let request = MetaRepair { patches: Vec::new(), inodes: None, ids_up_to: 0, adopt: None, purge };
    let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request)).expect("answered");
    assert!(!repaired.is_done, "nobody has it yet");
    let purge = Some(types::messages::replica::PurgeObject { volume, object: file });
    let request = MetaRepair { patches: Vec::new(), inodes: None, ids_up_to: 0, adopt: None, purge };
    let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request)).expect("answered");
    assert!(!repaired.is_done, "the file is there");
}

#[test]
fn files_without_a_byte_anywhere_are_told() {
    let mut small = small(Engine::memory());
    let volume = small.tree.volume;
    let (full, empty) =
        (small.tree.create(ROOT, "full").expect("new"), small.tree.create(ROOT, "empty").expect("new"));
    for file in [full.inode, empty.inode] {
        small.tree.truncate(file, 100).expect("longer");
    }
    let objects = [full.inode, empty.inode].map(|inode| small.tree.getattr(inode).expect("there").object);
    let held = Held::from([(volume, vec![objects[0]])]);
    let look = |now, held| {
        let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
        check(&mut reader, MEMORY, now, held, &mut |_| {}).expect("there is enough memory")
    };
    let found = look(i64::MAX, Some(&held));
    assert_eq!((found.empty_files, found.empty), (1, vec![("home".to_owned(), empty.inode)]));
    assert_eq!(look(i64::MIN, Some(&held)).empty_files, 0, "it has changed lately");
    assert_eq!(look(i64::MAX, None).empty_files, 0, "nobody was asked");
}

#[test]
fn a_disk_is_not_put_elsewhere() {
    let mut tree = Fixture::new(Engine::memory());
    let request = types::messages::cluster::VolumeCreate {
        block: Some(1 << 20),
        ..crate::fixture::volume_create("disk", "2+1")
    };
    let volume = tree.state.volume_create(&request, 5).expect("it fits").id;
    let (listed, entry) = (keys::listed(volume, ROOT, 3), keys::entry(volume, ROOT, b"disk"));
    damage(&mut tree, &entry, None);
    let found = checked(&tree);
    assert_eq!(words(&found), ["name-lost"]);
    assert_eq!(repair(&mut tree, found), 1);
    assert_eq!(words(&checked(&tree)), [""; 0]);
    damage(&mut tree, &entry, None);
    damage(&mut tree, &listed, None);
    let found = checked(&tree);
    assert_eq!(words(&found), ["counts", "no-name"]);
    assert!(found.found[1].repair.is_none(), "nobody would find it elsewhere");
}

#[test]
fn what_may_be_a_lost_file_stays() {
    let mut small = small(Engine::memory());
    let (volume, file, lost) = (small.tree.volume, ObjectId(small.file.0), ObjectId(small.link.0));
    damage(&mut small.tree, &keys::inode(volume, small.link), None);
    let check_with = |tree: &Fixture, held: Option<&Held>| {
        let mut reader = tree.engine.snapshot().expect("memory does not fail");
        check(&mut reader, MEMORY, 0, held, &mut |_| {}).expect("there is enough memory")
    };
    let repairs = |checked: &Checked| {
        let faults = checked.found.iter().filter(|found| found.repair.is_some());
        faults.map(|found| found.fault.word()).collect::<Vec<_>>()
    };
    // The name, the number of inodes and the bytes are all that is left of it.
    let held = Held::from([(volume, vec![file, lost])]);
    let found = check_with(&small.tree, Some(&held));
    assert_eq!(words(&found), ["name-without-inode", "counts", "unowned", "inodes"]);
    assert_eq!(repairs(&found), ["counts"]);
    let found = check_with(&small.tree, None);
    assert_eq!(words(&found), ["name-without-inode", "counts", "inodes"]);
    assert_eq!(repairs(&found), ["counts"]);
    // It has no bytes.
    let found = check_with(&small.tree, Some(&Held::from([(volume, vec![file])])));
    assert_eq!(repairs(&found), ["name-without-inode", "counts", "inodes"]);
}

#[test]
fn ids_are_repaired_before_anything_takes_one() {
    let mut small = small(Engine::memory());
    damage(&mut small.tree, &keys::id_counter(), Some(to_value(&2u64)));
    lose_name(&mut small.tree, small.directory, "s");
    let found = checked(&small.tree);
    assert_eq!(words(&found), ["ids", "counts", "no-name"]);
    // In another order nothing is overwritten.
    let mut reversed = found.clone();
    reversed.found.reverse();
    assert_eq!(repair(&mut small.tree, reversed), 2);
    let found = checked(&small.tree);
    repair(&mut small.tree, found);
    assert_eq!(words(&checked(&small.tree)), [""; 0]);
    assert_eq!(small.tree.getattr(small.file).expect("there").links, 2);
    // Objects that only bricks have count, too.
    let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
    let held = Held::from([(small.tree.volume, vec![ObjectId::in_tier(777, 1)])]);
    let found = check(&mut reader, MEMORY, 0, Some(&held), &mut |_| {}).expect("there is enough memory");
    assert_eq!(words(&found), ["ids", "unowned"]);
    assert_eq!(repair(&mut small.tree, found), 2);
}

#[test]
fn a_second_name_that_is_still_listed_comes_back() {
    test(
        &["name-lost"],
        |small| {
            let key = keys::entry(small.tree.volume, ROOT, b"g");
            damage(&mut small.tree, &key, None);
        },
        |small| assert_eq!(small.tree.lookup(ROOT, "g").expect("there").links, 2),
    );
    // The name leads elsewhere, and what is listed is right.
    test(
        &["name-lost"],
        |small| {
            let key = keys::entry(small.tree.volume, small.directory, b"s");
            damage(&mut small.tree, &key, Some(to_value(&Entry { inode: InodeId(999), cookie: 4 })));
        },
        |small| assert_eq!(small.tree.lookup(small.directory, "s").map(|attr| attr.inode), Ok(small.link)),
    );
}

#[test]
fn numbers_that_nobody_has_counted_to_break_nothing() {
    test(
        &["not-listed", "listed-only"],
        |small| {
            let key = keys::entry(small.tree.volume, small.directory, b"s");
            damage(&mut small.tree, &key, Some(to_value(&Entry { inode: small.link, cookie: u64::MAX })));
        },
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
    test(
        &["counts"],
        |small| change_inode(&mut small.tree, small.directory, |inode| inode.cookie_next = u64::MAX),
        |small| assert_eq!(small.tree.names(small.directory), ["f", "s"]),
    );
    test(
        &["unreadable"],
        |small| change_inode(&mut small.tree, small.file, |inode| inode.object = ObjectId(u64::MAX)),
        |_| {},
    );
    test(
        &["name-without-directory"],
        |small| {
            let key = keys::entry(small.tree.volume, InodeId(1 << 61), b"x");
            damage(&mut small.tree, &key, Some(to_value(&Entry { inode: small.file, cookie: 3 })));
        },
        |_| {},
    );
}

#[test]
fn memory_is_bounded() {
    let small = small(Engine::memory());
    let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
    let found = check(&mut reader, 100, 0, Some(&Held::new()), &mut |_| {});
    assert!(matches!(found, Err(CheckError::Memory { given: 100, .. })));
}

#[test]
fn a_repair_touches_names_only_and_only_what_was_seen() {
    let mut small = small(Engine::memory());
    let patch = |key: Vec<u8>, expected: Option<Vec<u8>>, value: Option<Vec<u8>>| MetaRepair {
        patches: vec![types::messages::replica::MetaPatch { key, expected, value }],
        inodes: None,
        ids_up_to: 0,
        adopt: None,
        purge: None,
    };
    let inode = keys::inode(small.tree.volume, small.file);
    let now = small.tree.state.read(|txn| txn.get_bytes(&inode)).expect("readable");
    let long = keys::entry(small.tree.volume, ROOT, &[b'x'; 300]);
    let many = MetaRepair {
        patches: vec![patch(inode.clone(), now.clone(), now.clone()).patches[0].clone(); 9],
        ..patch(inode.clone(), None, None)
    };
    let refused = [
        patch(long, None, Some(to_value(&Entry { inode: small.file, cookie: 3 }))),
        many,
        MetaRepair { patches: Vec::new(), ids_up_to: 1 << 60, ..patch(inode.clone(), None, None) },
        patch(keys::map_version(), None, Some(vec![2, 1])),
        patch(inode.clone(), now.clone(), Some(vec![9])),
        patch(keys::orphan(small.tree.volume, small.file), None, Some(to_value(&[0u8; 0]))),
    ];
    for request in refused {
        let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request));
        assert_eq!(repaired, Err(Refusal::Invalid));
    }
    // A volume that is gone has nothing to repair.
    let gone = patch(
        keys::listed(VolumeId(77), ROOT, 3),
        None,
        Some(to_value(&Listed { inode: ROOT, name: b"x".to_vec() })),
    );
    let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &gone)).expect("answered");
    assert!(!repaired.is_done);
    let stale = patch(inode, Some(vec![2, 7]), None);
    let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &stale)).expect("answered");
    assert!(!repaired.is_done && small.tree.getattr(small.file).is_ok());
}
