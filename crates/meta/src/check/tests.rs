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
fn names_in_a_lost_directory_are_saved() {
    test(
        &[
            "name-without-inode",
            "name-without-directory",
            "name-without-directory",
            "counts",
            "counts",
            "no-name",
            "inodes",
        ],
        |small| {
            let key = keys::inode(small.tree.volume, small.directory);
            damage(&mut small.tree, &key, None);
        },
        |small| {
            assert_eq!(small.tree.names(ROOT), ["g", "e", "lost+found"]);
            let home = small.tree.lookup(ROOT, "lost+found").expect("made").inode;
            assert_eq!(small.tree.names(home), [format!("#{}", small.link.0)]);
            assert_eq!(small.tree.lookup(ROOT, "g").expect("there").links, 1);
        },
    );
}

#[test]
fn what_has_lost_its_name_gets_one() {
    test(
        &["listed-only", "counts", "no-name"],
        |small| {
            let key = keys::entry(small.tree.volume, ROOT, b"d");
            damage(&mut small.tree, &key, None);
        },
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
    let key = keys::entry(small.tree.volume, small.directory, b"s");
    damage(&mut small.tree, &key, None);
    let found = checked(&small.tree);
    repair(&mut small.tree, found);
    assert_eq!(words(&checked(&small.tree)), [""; 0]);
    let home = small.tree.lookup(ROOT, "lost+found.1").expect("made").inode;
    assert_eq!(small.tree.names(home), [format!("#{}", small.link.0)]);
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
        &["not-listed", "listed-only", "counts"],
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
    let refused = [
        patch(keys::map_version(), None, Some(vec![2, 1])),
        patch(inode.clone(), now.clone(), Some(vec![9])),
        patch(keys::orphan(small.tree.volume, small.file), None, Some(to_value(&[0u8; 0]))),
    ];
    for request in refused {
        let repaired = small.tree.idempotent(move |txn| ops::repair(txn, &request));
        assert_eq!(repaired, Err(Refusal::Invalid));
    }
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
    let pick = |at: usize| pairs[at % pairs.len()].clone();
    let change = |at, f: &dyn Fn(&mut Inode)| {
        let (key, value) = pick(at);
        let mut inode = from_value::<Inode>(&value)
            .ok()
            .filter(|_| matches!(keys::name_key(&key), Some(NameKey::Inode(_))))?;
        f(&mut inode);
        Some((key, to_value(&inode)))
    };
    // A volume without a root is no file tree that anybody could repair.
    let root = keys::inode(tree.volume, ROOT);
    match harm {
        Harm::Remove(at) if pick(at).0 != root => damage(tree, &pick(at).0, None),
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
        Harm::Remove(_) => {}
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
