//! Any sequence of operations on names gives what a simple tree of files gives: random operations run on both, and
//! answers and trees are compared.

use std::collections::BTreeMap;

use proptest::prelude::*;
use types::messages::names::{FileKind, RenameHow};
use types::{InodeId, Refusal};

use crate::check::tests::checked;
use crate::fixture::{Fixture, ROOT, engines};

type Id = usize;

/// A file tree that is obviously right.
#[derive(Clone)]
struct Node {
    directory: bool,
    symlink: bool,
    links: u32,
    size: u64,
    /// The size up to which everything is stable.
    stored: u64,
    open: u32,
    stale: bool,
    parent: Id,
    names: BTreeMap<String, Id>,
}

struct Model {
    /// Those that are gone have no links and are not open.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8, bool),
    Mkdir(usize, u8),
    Symlink(usize, u8),
    Link(usize, usize, u8),
    Unlink(usize, u8),
    Rmdir(usize, u8),
    Rename(usize, u8, usize, u8, RenameHow),
    Truncate(usize, u64),
    Grow(usize, u64, bool),
    /// A file, the last stable byte of its client, and the last byte that it sent.
    Retract(usize, u64, u64),
    Zero(usize),
    Close(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (at, name, size) = (0..12usize, 0..4u8, 0..40_000u64);
    let how = prop_oneof![
        3 => Just(RenameHow::Replace), 1 => Just(RenameHow::NoReplace), 1 => Just(RenameHow::Exchange)
    ];
    let step = prop_oneof![
        4 => (at.clone(), name.clone(), any::<bool>()).prop_map(|(p, n, o)| Step::Create(p, n, o)),
        4 => (at.clone(), name.clone()).prop_map(|(p, n)| Step::Mkdir(p, n)),
        1 => (at.clone(), name.clone()).prop_map(|(p, n)| Step::Symlink(p, n)),
        2 => (at.clone(), at.clone(), name.clone()).prop_map(|(i, p, n)| Step::Link(i, p, n)),
        2 => (at.clone(), name.clone()).prop_map(|(p, n)| Step::Unlink(p, n)),
        2 => (at.clone(), name.clone()).prop_map(|(p, n)| Step::Rmdir(p, n)),
        6 => (at.clone(), name.clone(), at.clone(), name, how)
            .prop_map(|(f, a, t, b, h)| Step::Rename(f, a, t, b, h)),
        2 => (at.clone(), size.clone()).prop_map(|(i, s)| Step::Truncate(i, s % 3 * s)),
        3 => (at.clone(), size.clone(), any::<bool>()).prop_map(|(i, s, k)| Step::Grow(i, s, k)),
        2 => (at.clone(), size.clone(), size).prop_map(|(i, s, e)| Step::Retract(i, s, e)),
        1 => at.clone().prop_map(Step::Zero),
        2 => at.prop_map(Step::Close),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..80)
}

fn named(name: u8) -> String {
    char::from(b'a' + name).to_string()
}

impl Model {
    fn new() -> Model {
        let root = Node { directory: true, links: 2, ..Model::node() };
        Model { nodes: vec![root] }
    }

    fn node() -> Node {
        let (directory, symlink, links, size, stored, open, stale) = (false, false, 1, 0, 0, 0, false);
        Node { directory, symlink, links, size, stored, open, stale, parent: 0, names: BTreeMap::new() }
    }

    fn alive(&self, id: Id) -> bool {
        self.nodes[id].links > 0 || self.nodes[id].open > 0
    }

    fn directory(&self, id: Id) -> Result<(), Refusal> {
        match &self.nodes[id] {
            _ if !self.alive(id) => Err(Refusal::Stale),
            node if !node.directory => Err(Refusal::NotDirectory),
            _ => Ok(()),
        }
    }

    fn find(&self, parent: Id, name: &str) -> Result<Id, Refusal> {
        self.directory(parent)?;
        self.nodes[parent].names.get(name).copied().ok_or(Refusal::NotFound)
    }

    fn add(&mut self, parent: Id, name: &str, node: Node) -> Result<Id, Refusal> {
        self.directory(parent)?;
        if self.nodes[parent].names.contains_key(name) {
            return Err(Refusal::Exists);
        }
        let id = self.nodes.len();
        self.nodes[parent].links += u32::from(node.directory);
        self.nodes[parent].names.insert(name.into(), id);
        self.nodes.push(Node { parent, ..node });
        Ok(id)
    }

    fn link(&mut self, id: Id, parent: Id, name: &str) -> Result<(), Refusal> {
        self.directory(parent)?;
        if self.nodes[parent].names.contains_key(name) {
            return Err(Refusal::Exists);
        }
        match &self.nodes[id] {
            _ if !self.alive(id) => Err(Refusal::Stale),
            node if node.directory => Err(Refusal::NotPermitted),
            node if node.links == 0 => Err(Refusal::NotFound),
            _ => {
                self.nodes[id].links += 1;
                self.nodes[parent].names.insert(name.into(), id);
                Ok(())
            }
        }
    }

    fn remove(&mut self, parent: Id, name: &str, directory: bool) -> Result<(), Refusal> {
        let id = self.find(parent, name)?;
        match (directory, self.nodes[id].directory) {
            (true, false) => return Err(Refusal::NotDirectory),
            (false, true) => return Err(Refusal::IsDirectory),
            _ if !self.nodes[id].names.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
        self.drop_name(parent, name);
        Ok(())
    }

    fn drop_name(&mut self, parent: Id, name: &str) {
        let id = self.nodes[parent].names.remove(name).expect("found");
        if self.nodes[id].directory {
            self.nodes[id].links = 0;
            self.nodes[parent].links -= 1;
        } else {
            self.nodes[id].links -= 1;
        }
    }

    fn lies_in(&self, mut id: Id, above: Id) -> bool {
        while id != 0 {
            if id == above {
                return true;
            }
            id = self.nodes[id].parent;
        }
        false
    }

    fn rename(&mut self, from: Id, a: &str, to: Id, b: &str, how: RenameHow) -> Result<(), Refusal> {
        let source = self.find(from, a)?;
        self.directory(to)?;
        let target = self.nodes[to].names.get(b).copied();
        match (how, target) {
            (RenameHow::NoReplace, Some(_)) => return Err(Refusal::Exists),
            (RenameHow::Exchange, None) => return Err(Refusal::NotFound),
            _ => {}
        }
        if self.nodes[source].directory && self.lies_in(to, source) {
            return Err(Refusal::Invalid);
        }
        if target == Some(source) {
            return Ok(());
        }
        if let (RenameHow::Exchange, Some(target)) = (how, target) {
            if self.nodes[target].directory && self.lies_in(from, target) {
                return Err(Refusal::Invalid);
            }
            self.nodes[from].names.insert(a.into(), target);
            self.nodes[to].names.insert(b.into(), source);
            for (id, old, new) in [(source, from, to), (target, to, from)] {
                if self.nodes[id].directory {
                    self.nodes[old].links -= 1;
                    self.nodes[new].links += 1;
                }
                self.nodes[id].parent = new;
            }
            return Ok(());
        }
        if let Some(target) = target {
            match (self.nodes[source].directory, self.nodes[target].directory) {
                (true, false) => return Err(Refusal::NotDirectory),
                (false, true) => return Err(Refusal::IsDirectory),
                _ if !self.nodes[target].names.is_empty() => return Err(Refusal::NotEmpty),
                _ => self.drop_name(to, b),
            }
        }
        self.nodes[from].names.remove(a);
        self.nodes[to].names.insert(b.into(), source);
        if self.nodes[source].directory {
            self.nodes[from].links -= 1;
            self.nodes[to].links += 1;
        }
        self.nodes[source].parent = to;
        Ok(())
    }

    fn file(&mut self, id: Id) -> Result<&mut Node, Refusal> {
        match &mut self.nodes[id] {
            node if node.links == 0 && node.open == 0 => Err(Refusal::Stale),
            node if node.directory => Err(Refusal::IsDirectory),
            node if node.symlink => Err(Refusal::Invalid),
            node => Ok(node),
        }
    }

    fn truncate(&mut self, id: Id, size: u64) -> Result<(), Refusal> {
        let node = self.file(id)?;
        if size > node.size && node.stale {
            return Err(Refusal::Busy);
        }
        node.stale = size > 0 && (node.stale || size < node.size);
        (node.size, node.stored) = (size, size);
        Ok(())
    }

    fn grow(&mut self, id: Id, size: u64, stable: bool) -> Result<(), Refusal> {
        let Ok(node) = self.file(id) else { return Ok(()) };
        if size > node.size && node.stale {
            return Err(Refusal::Busy);
        }
        node.size = node.size.max(size);
        if stable {
            node.stored = node.stored.max(size);
        }
        Ok(())
    }

    /// The client, which has the file to itself if it is `alone`, has lost all bytes from `size` to `sent_end` that are not stored.
    fn retract(&mut self, id: Id, (size, sent_end): (u64, u64), alone: bool) -> Result<(), Refusal> {
        let node = self.file(id).map_err(|_| Refusal::Invalid)?;
        let end = node.size.max(sent_end);
        match node {
            _ if !alone => return Err(Refusal::Busy),
            _ if size > end => return Err(Refusal::Invalid),
            node if size > node.stored && node.stale => return Err(Refusal::Busy),
            _ => {}
        }
        node.stored = node.stored.max(size);
        node.size = node.stored;
        node.stale |= end > node.size;
        Ok(())
    }
}

/// The two side by side.
struct Pair {
    model: Model,
    tree: Fixture,
    inodes: Vec<InodeId>,
}

impl Pair {
    fn both<T>(&mut self, ours: Result<T, Refusal>, theirs: Result<Id, Refusal>) -> Option<T> {
        match (ours, theirs) {
            (Ok(ours), Ok(_)) => Some(ours),
            (Err(ours), Err(theirs)) if ours == theirs => None,
            (ours, theirs) => panic!("{:?} where the model says {theirs:?}", ours.map(|_| ())),
        }
    }

    fn made(&mut self, ours: Result<types::messages::names::Attr, Refusal>, theirs: Result<Id, Refusal>) {
        if let Some(attr) = self.both(ours, theirs) {
            self.inodes.push(attr.inode);
        }
    }

    fn done(&mut self, ours: Result<(), Refusal>, theirs: Result<(), Refusal>) {
        assert_eq!(ours, theirs);
    }

    fn step(&mut self, step: &Step) {
        let at = |index: usize| index % self.inodes.len();
        match *step {
            Step::Create(parent, name, open) => {
                let (parent, name) = (at(parent), named(name));
                let inode = self.inodes[parent];
                let ours =
                    if open { self.tree.create_open(inode, &name) } else { self.tree.create(inode, &name) };
                let node = Node { open: open.into(), ..Model::node() };
                let theirs = self.model.add(parent, &name, node);
                self.made(ours, theirs);
            }
            Step::Mkdir(parent, name) => {
                let (parent, name) = (at(parent), named(name));
                let ours = self.tree.mkdir(self.inodes[parent], &name);
                let node = Node { directory: true, links: 2, ..Model::node() };
                let theirs = self.model.add(parent, &name, node);
                self.made(ours, theirs);
            }
            Step::Symlink(parent, name) => {
                let (parent, name) = (at(parent), named(name));
                let ours = self.tree.symlink(self.inodes[parent], &name, "target");
                let theirs = self.model.add(parent, &name, Node { symlink: true, size: 6, ..Model::node() });
                self.made(ours, theirs);
            }
            Step::Link(file, parent, name) => {
                let (file, parent, name) = (at(file), at(parent), named(name));
                let ours = self.tree.link(self.inodes[file], self.inodes[parent], &name).map(|_| ());
                let theirs = self.model.link(file, parent, &name);
                self.done(ours, theirs);
            }
            Step::Unlink(parent, name) => {
                let (parent, name) = (at(parent), named(name));
                let ours = self.tree.unlink(self.inodes[parent], &name);
                let theirs = self.model.remove(parent, &name, false);
                self.done(ours, theirs);
            }
            Step::Rmdir(parent, name) => {
                let (parent, name) = (at(parent), named(name));
                let ours = self.tree.rmdir(self.inodes[parent], &name);
                let theirs = self.model.remove(parent, &name, true);
                self.done(ours, theirs);
            }
            Step::Rename(from, a, to, b, how) => {
                let (from, a, to, b) = (at(from), named(a), at(to), named(b));
                let ours = self.tree.rename((self.inodes[from], &a), (self.inodes[to], &b), how);
                let theirs = self.model.rename(from, &a, to, &b, how);
                self.done(ours, theirs);
            }
            _ => self.step_file(step),
        }
    }

    fn step_file(&mut self, step: &Step) {
        let at = |index: usize| index % self.inodes.len();
        match *step {
            Step::Truncate(file, size) => {
                let ours = self.tree.truncate(self.inodes[at(file)], size).map(|_| ());
                let theirs = self.model.truncate(at(file), size);
                self.done(ours, theirs);
            }
            Step::Grow(file, size, stable) => {
                let Ok(attr) = self.tree.getattr(self.inodes[at(file)]) else { return };
                let ours = self.tree.grow(&attr, size, stable);
                // What is unstable does not survive a restart; here everything becomes stable in the end.
                let theirs = self.model.grow(at(file), size, stable);
                self.done(ours, theirs);
            }
            Step::Retract(file, size, sent_end) => {
                let Ok(attr) = self.tree.getattr(self.inodes[at(file)]) else { return };
                let place = (self.tree.volume, attr.inode);
                let alone = self.tree.state.volatile.opens.is_still_alone(place, self.tree.client);
                let ours = self.tree.retract(&attr, size, sent_end).map(|_| ());
                let theirs = self.model.retract(at(file), (size, sent_end), alone);
                self.done(ours, theirs);
            }
            Step::Zero(file) => {
                let Ok(attr) = self.tree.getattr(self.inodes[at(file)]) else { return };
                self.tree.zeroed(&attr).expect("there");
                if !self.model.nodes[at(file)].directory {
                    self.model.nodes[at(file)].stale = false;
                }
            }
            Step::Close(file) => {
                let file = at(file);
                if self.model.nodes[file].open > 0 {
                    self.model.nodes[file].open = 0;
                    let place = (self.tree.volume, self.inodes[file]);
                    self.tree.state.volatile.opens.release(place, self.tree.client, true);
                    self.tree.state.drop_orphans(&[place]);
                }
            }
            _ => self.restart(),
        }
    }

    fn restart(&mut self) {
        self.stabilise();
        let opens = self.model.nodes.iter().zip(&self.inodes).filter(|(node, _)| node.open > 0);
        let opens = opens.map(|(_, inode)| types::messages::cluster::OpenInode {
            inode: *inode,
            readers: 0,
            writers: 1,
            zeroing: None,
            note: None,
        });
        let opens = opens.collect();
        let engine = self.tree.engine.clone();
        let Fixture { volume, client, op, now, .. } = self.tree;
        let state = crate::state::State::load(engine.clone(), 0).expect("there is a cluster");
        self.tree = Fixture { engine, state, volume, client, op, now }.restart(opens);
    }

    fn stabilise(&mut self) {
        for inode in self.inodes.clone() {
            if let Ok(attr) = self.tree.getattr(inode)
                && attr.kind == FileKind::File
            {
                self.tree.grow(&attr, attr.size, true).expect("not beyond its size");
            }
        }
        for node in &mut self.model.nodes {
            node.stored = node.size;
        }
    }

    /// Everything is as the model says.
    fn compare(&self) {
        let mut alive = 0;
        for (id, node) in self.model.nodes.iter().enumerate() {
            let inode = self.inodes[id];
            if !self.model.alive(id) {
                assert_eq!(self.tree.getattr(inode), Err(Refusal::Stale));
                continue;
            }
            alive += 1;
            let attr = self.tree.getattr(inode).expect("alive");
            assert_eq!(attr.links, node.links, "links of {inode}");
            if !node.directory {
                assert_eq!(attr.size, node.size, "size of {inode}");
                assert_eq!(attr.stale_end > attr.size, node.stale, "stale bytes of {inode}");
                continue;
            }
            let mut names = self.tree.names(inode);
            names.sort();
            assert_eq!(names, node.names.keys().cloned().collect::<Vec<_>>());
            for (name, child) in &node.names {
                assert_eq!(self.tree.lookup(inode, name).map(|attr| attr.inode), Ok(self.inodes[*child]));
            }
            let listed = self.tree.readdir(inode, 0, 100).expect("a directory");
            assert_eq!(listed.parent, self.inodes[node.parent]);
        }
        assert_eq!(self.tree.inodes(), alive);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn random_operations_match_the_model(steps in steps()) {
        for engine in engines() {
            let tree = Fixture::new(engine);
            let mut pair = Pair { model: Model::new(), tree, inodes: vec![ROOT] };
            for step in &steps {
                pair.step(step);
            }
            pair.compare();
            assert_eq!(checked(&pair.tree).found.len(), 0);
            pair.restart();
            pair.compare();
            pair.tree.purges();
            assert_eq!(checked(&pair.tree).found.len(), 0);
        }
    }
}
