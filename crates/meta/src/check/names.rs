//! The names of a volume, and directories that have two or contain themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use types::InodeId;
use types::messages::replica::{MetaPatch, MetaRepair};

use super::fault::Fault;
use super::inodes::Inodes;
use super::pairs::{Pairs, value_of};
use super::volume::{About, removal, unchanged};
use super::whole::{Checked, FAULTS_MAX, nothing};
use crate::keys::{self, NameKey};
use crate::records::{Entry, Listed, from_value, to_value};
use crate::{COOKIES_END, ids_end};

/// A name that is to go.
struct Bad {
    directory: InodeId,
    name: Vec<u8>,
    entry: Entry,
    why: Why,
}

#[derive(Clone, Copy, PartialEq)]
enum Why {
    NoInode,
    NoDirectory,
    Second,
    Loop,
}

/// What is known of the names of a volume.
pub(super) struct Names<'a> {
    pub(super) about: &'a About<'a>,
    /// How many there are.
    pub(super) count: u64,
    bad: Vec<Bad>,
    /// Where names are listed that are to go with their names.
    pub(super) gone: BTreeSet<(InodeId, u64)>,
}

/// A hash of a name, where it leads, and its place in the listing.
pub(super) fn hash_of(name: &[u8], inode: InodeId, cookie: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, inode.0, cookie).hash(&mut hasher);
    hasher.finish()
}

impl<'a> Names<'a> {
    pub(super) fn new(about: &'a About<'a>) -> Names<'a> {
        Names { about, count: 0, bad: Vec::new(), gone: BTreeSet::new() }
    }

    fn is_full(&self) -> bool {
        self.bad.len() >= FAULTS_MAX
    }

    /// Reads all names, and counts them where they are and where they lead to.
    pub(super) fn read<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let mut lost = BTreeSet::new();
        if inodes.find(InodeId::ROOT).is_none() {
            lost.insert(InodeId::ROOT);
        }
        self.read_once(pairs, inodes, &mut lost, |key| {
            checked.add(Some(self.about.name), Fault::Unreadable { key: key.to_vec() }, None);
        })?;
        if !lost.is_empty() {
            // They are directories, because there are names in them.
            inodes.add_lost(&lost);
            self.read_once(pairs, inodes, &mut BTreeSet::new(), |_| {})?;
        }
        Ok(())
    }

    /// Counts all names. Notes directories that do not exist, but have names in them.
    fn read_once<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
        lost: &mut BTreeSet<InodeId>,
        mut is_unreadable: impl FnMut(&[u8]),
    ) -> Result<(), P::Error> {
        let prefix = keys::all::entries(self.about.id);
        (self.count, self.bad) = (0, Vec::new());
        pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
            self.count += 1;
            let (Some(NameKey::Entry((volume, directory), name)), Ok(entry)) =
                (keys::name_key(key), from_value(value))
            else {
                is_unreadable(key);
                return true;
            };
            let Err(why) = count(inodes, directory, &name, &entry) else { return true };
            let is_lost = directory.0 < ids_end(volume) && inodes.find(directory).is_none();
            if is_lost && lost.len() < FAULTS_MAX {
                lost.insert(directory);
            } else if !self.is_full() {
                self.bad.push(Bad { directory, name, entry, why });
            }
            true
        })
    }

    /// Lets each directory have one name, in one place under the root.
    pub(super) fn settle_directories<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
    ) -> Result<(), P::Error> {
        let several = |at: &usize| inodes.rows[*at].names > 1 && inodes.directory_of(*at).is_some();
        let several: BTreeSet<InodeId> =
            (0..inodes.rows.len()).filter(several).map(|at| inodes.rows[at].inode).collect();
        if !several.is_empty() {
            self.keep_one_name(pairs, inodes, &several)?;
        }
        for inode in loops(inodes) {
            let Some(at) = inodes.find_directory(inode) else { continue };
            let found_in = inodes.directories[at].found_in;
            let prefix = keys::entry(self.about.id, found_in, b"");
            let mut found = None;
            pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
                if let (Some(NameKey::Entry(_, name)), Ok(entry)) =
                    (keys::name_key(key), from_value::<Entry>(value))
                    && entry.inode == inode
                {
                    found = Some((name, entry));
                }
                found.is_none()
            })?;
            if let Some((name, entry)) = found {
                self.take_away(inodes, found_in, name, entry, Why::Loop);
            }
        }
        Ok(())
    }

    /// Of several names of a directory, the one stays that is where the directory says.
    fn keep_one_name<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
        several: &BTreeSet<InodeId>,
    ) -> Result<(), P::Error> {
        let mut names: BTreeMap<InodeId, Vec<(InodeId, Vec<u8>, Entry)>> = BTreeMap::new();
        let mut count = 0;
        let prefix = keys::all::entries(self.about.id);
        pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
            if let (Some(NameKey::Entry((_, directory), name)), Ok(entry)) =
                (keys::name_key(key), from_value::<Entry>(value))
                && several.contains(&entry.inode)
                && inodes.find_directory(directory).is_some()
            {
                names.entry(entry.inode).or_default().push((directory, name, entry));
                count += 1;
            }
            count <= FAULTS_MAX
        })?;
        for (inode, names) in names {
            let Some(at) = inodes.find_directory(inode) else { continue };
            let parent = inodes.directories[at].parent;
            let kept = names.iter().position(|(directory, ..)| *directory == parent).unwrap_or(0);
            for (number, (directory, name, entry)) in names.into_iter().enumerate() {
                if number == kept {
                    inodes.directories[at].found_in = directory;
                } else if !self.is_full() {
                    self.take_away(inodes, directory, name, entry, Why::Second);
                }
            }
        }
        Ok(())
    }

    /// A name that was counted is to go.
    fn take_away(&mut self, inodes: &mut Inodes, directory: InodeId, name: Vec<u8>, entry: Entry, why: Why) {
        if let Some(row) = inodes.find(entry.inode) {
            inodes.rows[row].names -= 1;
        }
        if let Some(at) = inodes.find_directory(directory) {
            let home = &mut inodes.directories[at];
            home.entries -= 1;
            home.directories -= 1;
            home.names_sum = home.names_sum.wrapping_sub(hash_of(&name, entry.inode, entry.cookie));
        }
        self.bad.push(Bad { directory, name, entry, why });
    }

    /// Removes the names that are to go, with what is listed of them.
    pub(super) fn remove_bad<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let volume = self.about.id;
        for Bad { directory, name, entry, why } in std::mem::take(&mut self.bad) {
            let key = keys::entry(volume, directory, &name);
            let value = value_of(pairs, &key)?.unwrap_or_default();
            // What is missing must still be missing.
            let missing = if why == Why::NoInode { entry.inode } else { directory };
            let mut patches = vec![removal(&key, &value)];
            if matches!(why, Why::NoInode | Why::NoDirectory) {
                patches.push(unchanged(pairs, keys::inode(volume, missing))?);
            }
            let listed_key = keys::listed(volume, directory, entry.cookie);
            let listed = value_of(pairs, &listed_key)?;
            let found = listed.as_ref().and_then(|value| from_value::<Listed>(value).ok());
            let found = found.filter(|listed| listed.name == name);
            if why == Why::NoInode
                && let Some(row) = found.as_ref().and_then(|listed| inodes.find(listed.inode))
                && let Some(home) = inodes.find_directory(directory)
                && inodes.is_nameless(row)
            {
                // What is listed is right.
                let inode = inodes.rows[row].inode;
                inodes.give_name(row, home, &name, entry.cookie);
                let right = to_value(&Entry { inode, cookie: entry.cookie });
                let entry = MetaPatch { key, expected: Some(value), value: Some(right) };
                let still = [unchanged(pairs, listed_key)?, unchanged(pairs, keys::inode(volume, inode))?];
                let patches = std::iter::once(entry).chain(still).collect();
                let fault = Fault::NameLost { directory, name, inode };
                checked.add(Some(self.about.name), fault, Some(MetaRepair { patches, ..nothing() }));
                continue;
            }
            if let Some(value) = listed.filter(|_| found.is_some())
                && self.gone.insert((directory, entry.cookie))
            {
                patches.push(removal(&listed_key, &value));
            }
            let inode = entry.inode;
            let fault = match why {
                Why::NoInode => Fault::NameWithoutInode { directory, name, inode },
                Why::NoDirectory => Fault::NameWithoutDirectory { directory, name, inode },
                Why::Second => Fault::SecondName { directory, name, inode },
                Why::Loop => Fault::Loop { inode },
            };
            checked.add(Some(self.about.name), fault, Some(MetaRepair { patches, ..nothing() }));
        }
        Ok(())
    }
}

/// Counts a name where it is and where it leads to.
fn count(inodes: &mut Inodes, directory: InodeId, name: &[u8], entry: &Entry) -> Result<(), Why> {
    let home = inodes.find(directory).ok_or(Why::NoDirectory)?;
    let Some(child) = inodes.find(entry.inode) else { return Err(Why::NoInode) };
    let Some(home) = inodes.directory_of(home) else {
        // Nothing is known of a directory that cannot be read; its names stay.
        let is_unreadable = inodes.rows[home].is_unreadable;
        inodes.rows[child].names += u32::from(is_unreadable);
        if let Some(child) = inodes.directory_of(child).filter(|_| is_unreadable) {
            inodes.directories[child].found_in = directory;
        }
        return if is_unreadable { Ok(()) } else { Err(Why::NoDirectory) };
    };
    if entry.inode == InodeId::ROOT {
        return Err(Why::Second);
    }
    inodes.rows[child].names = inodes.rows[child].names.saturating_add(1);
    let child = inodes.directory_of(child);
    if let Some(child) = child {
        inodes.directories[child].found_in = directory;
    }
    let home = &mut inodes.directories[home];
    home.entries += 1;
    home.directories += u32::from(child.is_some());
    if entry.cookie < COOKIES_END {
        home.last_cookie = home.last_cookie.max(entry.cookie);
    }
    home.names_sum = home.names_sum.wrapping_add(hash_of(name, entry.inode, entry.cookie));
    Ok(())
}

/// One directory of each loop.
fn loops(inodes: &Inodes) -> Vec<InodeId> {
    const NEW: u32 = 0;
    const ENDS: u32 = u32::MAX;
    // The number of the walk that has passed a directory, until its end is known.
    let mut walks = vec![NEW; inodes.directories.len()];
    let mut found = Vec::new();
    for start in 0..walks.len() {
        let walk = start as u32 + 1;
        let (mut at, mut passed) = (start, Vec::new());
        while walks[at] == NEW {
            walks[at] = walk;
            passed.push(at);
            let directory = &inodes.directories[at];
            let is_named = inodes.find(directory.inode).is_some_and(|row| inodes.rows[row].names > 0);
            match inodes.find_directory(directory.found_in) {
                Some(next) if is_named && directory.inode != InodeId::ROOT => at = next,
                _ => break,
            }
        }
        if walks[at] == walk && passed.last() != Some(&at) || is_own_parent(inodes, at, &passed) {
            found.push(inodes.directories[at].inode);
        }
        passed.into_iter().for_each(|at| walks[at] = ENDS);
    }
    found
}

/// Whether a walk has ended with a directory that lies in itself, directly.
fn is_own_parent(inodes: &Inodes, at: usize, passed: &[usize]) -> bool {
    let directory = &inodes.directories[at];
    passed.last() == Some(&at) && directory.inode != InodeId::ROOT && directory.found_in == directory.inode
}
