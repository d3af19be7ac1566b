use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::messages::replica::MetaRepair;
use types::{InodeId, ObjectId, Refusal, VolumeId};

use super::*;
use crate::fixture::{Fixture, ROOT, engines};
use crate::keys::{self, NameKey};
use crate::kv::Engine;
use crate::ops;
use crate::records::{Entry, Inode, Listed, from_value, to_value};

const MEMORY: usize = 1 << 20;

/// What a check says of a store.
pub(crate) fn checked(tree: &Fixture) -> Checked {
    let mut reader = tree.engine.snapshot().expect("memory does not fail");
    check(&mut reader, MEMORY, 9_000, &Held::new(), &mut |_| {}).expect("there is enough memory")
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
        let found = check(&mut reader, MEMORY, 0, &held, &mut |_| {}).expect("there is enough memory");
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
    let found = check(&mut reader, MEMORY, 0, &held, &mut |_| {}).expect("there is enough memory");
    let unowned = |object| Fault::Unowned { object: ObjectId(object) };
    let faults: Vec<Fault> = found.found.iter().map(|found| found.fault.clone()).collect();
    assert_eq!(faults, [unowned(2), unowned(lost.0), unowned(ObjectId::in_tier(5000, 1).0)]);
    // An id that nobody has got yet may be the next file's.
    assert_eq!(repair(&mut small.tree, found), 2);
    assert_eq!(small.tree.purges(), [ObjectId(2), lost, waits]);
    let purge = Some(types::messages::replica::PurgeObject { volume, object: file });
    let request = MetaRepair { patches: Vec::new(), inodes: None, ids_up_to: 0, adopt: None, purge };
    let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request)).expect("answered");
    assert!(!repaired.is_done, "the file is there");
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
fn memory_is_bounded() {
    let small = small(Engine::memory());
    let mut reader = small.tree.engine.snapshot().expect("memory does not fail");
    let found = check(&mut reader, 100, 0, &Held::new(), &mut |_| {});
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

/// A change of a value, chosen by numbers.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Remove(usize),
    Exchange(usize, usize),
    Point(usize, u64),
    Links(usize, u32),
    Home(usize, u64),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let at = 0..1000usize;
    let harm = prop_oneof![
        4 => at.clone().prop_map(Harm::Remove),
        1 => (at.clone(), at.clone()).prop_map(|(one, other)| Harm::Exchange(one, other)),
        3 => (at.clone(), 0..20u64).prop_map(|(at, to)| Harm::Point(at, to)),
        1 => (at.clone(), 0..5u32).prop_map(|(at, links)| Harm::Links(at, links)),
        1 => (at, 0..20u64).prop_map(|(at, home)| Harm::Home(at, home)),
    ];
    proptest::collection::vec(harm, 1..8)
}

/// The keys of names, with their values.
fn names(tree: &Fixture) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    let reader = tree.engine.snapshot().expect("memory does not fail");
    let range = reader.range(&[0x10], &[0x14], &mut |key, value| {
        pairs.insert(key.to_vec(), value.to_vec());
        true
    });
    range.expect("memory does not fail");
    pairs
}

fn do_harm(tree: &mut Fixture, harm: Harm) {
    let pairs: Vec<_> = names(tree).into_iter().collect();
    if pairs.is_empty() {
        return;
    }
    let pick = |at: usize| pairs[at % pairs.len()].clone();
    let change = |at, f: &dyn Fn(&mut Inode)| {
        let (key, value) = pick(at);
        let mut inode = from_value::<Inode>(&value)
            .ok()
            .filter(|_| matches!(keys::name_key(&key), Some(NameKey::Inode(_))))?;
        f(&mut inode);
        Some((key, to_value(&inode)))
    };
    match harm {
        Harm::Remove(at) => damage(tree, &pick(at).0, None),
        Harm::Exchange(one, other) => {
            let ((one, its), (other, others)) = (pick(one), pick(other));
            if one[0] == other[0] && one[0] != 0x10 {
                damage(tree, &one, Some(others));
                damage(tree, &other, Some(its));
            }
        }
        Harm::Point(at, to) => {
            let (key, value) = pick(at);
            if let (Some(NameKey::Entry(..)), Ok(entry)) = (keys::name_key(&key), from_value::<Entry>(&value))
            {
                damage(tree, &key, Some(to_value(&Entry { inode: InodeId(to), ..entry })));
            }
        }
        Harm::Links(at, links) => {
            if let Some((key, value)) = change(at, &|inode| inode.links = links) {
                damage(tree, &key, Some(value));
            }
        }
        Harm::Home(at, home) => {
            if let Some((key, value)) = change(at, &|inode| inode.parent = InodeId(home)) {
                damage(tree, &key, Some(value));
            }
        }
    }
}

/// All inodes that can be reached from the root.
fn reached(tree: &Fixture) -> BTreeSet<InodeId> {
    let (mut reached, mut wanted) = (BTreeSet::new(), vec![ROOT]);
    while let Some(directory) = wanted.pop() {
        assert!(reached.insert(directory), "a directory is in two places");
        for entry in tree.readdir(directory, 0, 1000).expect("a directory").entries {
            let name = String::from_utf8(entry.name).expect("text");
            let attr = tree.lookup(directory, &name).expect("listed");
            assert_eq!(attr.inode, entry.attr.inode);
            if attr.kind == types::messages::names::FileKind::Directory {
                wanted.push(attr.inode);
            } else {
                reached.insert(attr.inode);
            }
        }
    }
    reached
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    /// Whatever keys and values are lost or exchanged: after some rounds of repairs nothing is wrong that can be repaired, and
    /// every inode that was not lost itself has a name.
    #[test]
    fn any_harm_is_repaired(shape in proptest::collection::vec((0..8usize, 0..3u8), 1..20), harms in harms()) {
        let mut tree = Fixture::new(Engine::memory());
        let mut directories = vec![ROOT];
        for (at, (home, kind)) in shape.into_iter().enumerate() {
            let (home, name) = (directories[home % directories.len()], format!("n{at}"));
            match kind {
                0 => directories.push(tree.mkdir(home, &name).expect("new").inode),
                1 => drop(tree.create(home, &name).expect("new")),
                _ => drop(tree.symlink(home, &name, "t").expect("new")),
            }
        }
        for harm in harms {
            do_harm(&mut tree, harm);
        }
        let inodes: BTreeSet<InodeId> = names(&tree).into_keys().filter_map(|key| match keys::name_key(&key) {
            Some(NameKey::Inode((_, inode))) => Some(inode),
            _ => None,
        }).collect();
        let mut rounds = 0;
        loop {
            let found = checked(&tree);
            if found.found.iter().all(|found| found.repair.is_none()) {
                break;
            }
            rounds += 1;
            prop_assert!(rounds < 6, "{:?}", found.found);
            repair(&mut tree, found);
        }
        let reached = reached(&tree);
        prop_assert!(inodes.is_subset(&reached), "{:?}", inodes.difference(&reached));
    }
}
