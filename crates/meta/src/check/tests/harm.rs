//! Random damage: whatever keys and values are lost or exchanged, repairs end, and every inode that was not lost has a name.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::keys::NameKey;
use crate::records::from_value;

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
