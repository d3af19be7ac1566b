//! The two forms of a directory's names against each other: by name, and in the order of listing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use types::InodeId;
use types::messages::replica::{MetaPatch, MetaRepair};

use super::fault::Fault;
use super::inodes::Inodes;
use super::names::{Names, hash_of};
use super::pairs::{Pairs, value_of};
use super::volume::{removal, unchanged};
use super::whole::{Checked, nothing};
use crate::COOKIES_END;
use crate::keys::{self, NameKey};
use crate::records::{Entry, Inode, Listed, from_value, to_value};
use crate::tree::check_name;

/// How many names that are listed are compared at a time.
const WINDOW: usize = 1 << 18;

/// What is listed in a part of a directory, by cookie.
type Window = BTreeMap<u64, (Listed, Vec<u8>)>;

/// A name that is not listed where it says.
struct Unlisted {
    name: Vec<u8>,
    entry: Entry,
    value: Vec<u8>,
}

impl Names<'_> {
    /// Compares what is listed with the names.
    pub(super) fn compare_listing<P: Pairs>(
        &mut self,
        pairs: &mut P,
        inodes: &mut Inodes,
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let prefix = keys::all::listed(self.about.id);
        let name = self.about.name;
        pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
            let (Some(NameKey::Listed((_, directory), cookie)), Ok(listed)) =
                (keys::name_key(key), from_value::<Listed>(value))
            else {
                checked.add(Some(name), Fault::Unreadable { key: key.to_vec() }, None);
                return true;
            };
            if self.gone.contains(&(directory, cookie)) {
                return true;
            }
            if let Some(home) = inodes.find_directory(directory) {
                let home = &mut inodes.directories[home];
                home.listed += 1;
                home.listed_sum = home.listed_sum.wrapping_add(hash_of(&listed.name, listed.inode, cookie));
                return true;
            }
            let is_unreadable = inodes.find(directory).is_some_and(|at| inodes.rows[at].is_unreadable);
            if !is_unreadable {
                let repair = MetaRepair { patches: vec![removal(key, value)], ..nothing() };
                let fault = Fault::ListedOnly { directory, name: listed.name };
                checked.add(Some(name), fault, Some(repair));
            }
            true
        })?;
        for at in 0..inodes.directories.len() {
            let home = &inodes.directories[at];
            if (home.entries, home.names_sum) != (home.listed, home.listed_sum) {
                self.compare_one(pairs, inodes, at, checked)?;
            }
        }
        Ok(())
    }

    /// Compares the two forms of one directory's names, part by part.
    fn compare_one<P: Pairs>(
        &self,
        pairs: &mut P,
        inodes: &mut Inodes,
        at: usize,
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let (mut from, mut more) = (0, true);
        while more && !checked.is_cut {
            let (mut window, next) = self.window(pairs, inodes.directories[at].inode, from)?;
            let part = from..next.unwrap_or(u64::MAX);
            let (unlisted, taken) = self.unlisted(pairs, inodes, at, &part, &mut window, checked)?;
            self.list(pairs, inodes, at, (unlisted, taken), &mut window, checked)?;
            for (cookie, (listed, value)) in window {
                self.name_again(pairs, inodes, at, (cookie, listed, value), checked)?;
            }
            (from, more) = (part.end, next.is_some());
        }
        Ok(())
    }

    /// A part of what is listed in a directory, and where the next part begins.
    fn window<P: Pairs>(
        &self,
        pairs: &mut P,
        directory: InodeId,
        from: u64,
    ) -> Result<(Window, Option<u64>), P::Error> {
        let (mut window, mut next) = (Window::new(), None);
        let end = keys::after_all(&keys::all::listed_in(self.about.id, directory));
        pairs.range(&keys::listed(self.about.id, directory, from), &end, &mut |key, value| {
            let Some(cookie) = keys::last_u64(key) else { return true };
            if window.len() == WINDOW {
                next = Some(cookie);
                return false;
            }
            if !self.gone.contains(&(directory, cookie))
                && let Ok(listed) = from_value::<Listed>(value)
            {
                window.insert(cookie, (listed, value.to_vec()));
            }
            true
        })?;
        Ok((window, next))
    }

    /// The names whose cookies lie in this part and that are not listed so, and the cookies of those that are: they leave
    /// the window.
    fn unlisted<P: Pairs>(
        &self,
        pairs: &mut P,
        inodes: &Inodes,
        at: usize,
        part: &Range<u64>,
        window: &mut Window,
        checked: &mut Checked,
    ) -> Result<(Vec<Unlisted>, BTreeSet<u64>), P::Error> {
        let directory = inodes.directories[at].inode;
        let prefix = keys::entry(self.about.id, directory, b"");
        let (mut unlisted, mut taken, mut is_cut) = (Vec::new(), BTreeSet::new(), false);
        pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
            let (Some(NameKey::Entry(_, name)), Ok(entry)) =
                (keys::name_key(key), from_value::<Entry>(value))
            else {
                return true;
            };
            let is_bad = self.gone.contains(&(directory, entry.cookie)) || inodes.find(entry.inode).is_none();
            if is_bad || !part.contains(&entry.cookie) && (part.end, entry.cookie) != (u64::MAX, u64::MAX) {
                return true;
            }
            let is_listed = window
                .get(&entry.cookie)
                .is_some_and(|(listed, _)| listed.inode == entry.inode && listed.name == name);
            if is_listed {
                window.remove(&entry.cookie);
                taken.insert(entry.cookie);
            } else if unlisted.len() < WINDOW {
                unlisted.push(Unlisted { name, entry, value: value.to_vec() });
            } else {
                is_cut = true;
            }
            true
        })?;
        checked.is_cut |= is_cut;
        Ok((unlisted, taken))
    }

    /// Lists names: at their places if these are free, or in place of something that is to go, or at new ones.
    fn list<P: Pairs>(
        &self,
        pairs: &mut P,
        inodes: &mut Inodes,
        at: usize,
        (unlisted, mut taken): (Vec<Unlisted>, BTreeSet<u64>),
        window: &mut Window,
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let volume = self.about.id;
        let mut own = OwnInode::new(pairs, keys::inode(volume, inodes.directories[at].inode))?;
        for Unlisted { name, entry, value } in unlisted {
            let home = &mut inodes.directories[at];
            let (mut patches, mut cookie, mut expected) = (Vec::new(), entry.cookie, None);
            if taken.contains(&cookie) || cookie >= COOKIES_END {
                let next = Some(home.cookie_next).filter(|next| *next <= COOKIES_END);
                home.last_cookie = home.last_cookie.max(next.unwrap_or(0).saturating_sub(1)) + 1;
                cookie = home.last_cookie;
                // Nothing else gets this cookie.
                patches.extend(own.with_cookies_after(cookie));
                home.cookie_next = cookie + 1;
            } else {
                expected = window.remove(&cookie).map(|(_, value)| value);
            }
            patches.push(MetaPatch {
                key: keys::entry(volume, home.inode, &name),
                expected: Some(value),
                value: Some(to_value(&Entry { inode: entry.inode, cookie })),
            });
            taken.insert(cookie);
            let listed = Listed { inode: entry.inode, name: name.clone() };
            patches.push(MetaPatch {
                key: keys::listed(volume, home.inode, cookie),
                expected,
                value: Some(to_value(&listed)),
            });
            let fault = Fault::NotListed { directory: home.inode, name };
            checked.add(Some(self.about.name), fault, Some(MetaRepair { patches, ..nothing() }));
        }
        Ok(())
    }

    /// Something is listed that is not there: if it was the only name of an inode, it comes back.
    fn name_again<P: Pairs>(
        &self,
        pairs: &mut P,
        inodes: &mut Inodes,
        at: usize,
        (cookie, listed, value): (u64, Listed, Vec<u8>),
        checked: &mut Checked,
    ) -> Result<(), P::Error> {
        let (volume, directory) = (self.about.id, inodes.directories[at].inode);
        let key = keys::listed(volume, directory, cookie);
        let Listed { inode, name } = listed;
        let entry_key = keys::entry(volume, directory, &name);
        let is_name = check_name(&name).is_ok() && directory != inode && cookie < COOKIES_END;
        let nameless = inodes.find(inode).filter(|row| is_name && inodes.is_nameless(*row));
        let Some(row) = nameless else {
            let repair = MetaRepair { patches: vec![removal(&key, &value)], ..nothing() };
            checked.add(Some(self.about.name), Fault::ListedOnly { directory, name }, Some(repair));
            return Ok(());
        };
        if value_of(pairs, &entry_key)?.is_some() {
            let repair = MetaRepair { patches: vec![removal(&key, &value)], ..nothing() };
            checked.add(Some(self.about.name), Fault::ListedOnly { directory, name }, Some(repair));
            return Ok(());
        }
        inodes.give_name(row, at, &name, cookie);
        let entry =
            MetaPatch { key: entry_key, expected: None, value: Some(to_value(&Entry { inode, cookie })) };
        let still = [unchanged(pairs, key)?, unchanged(pairs, keys::inode(volume, inode))?];
        let patches = std::iter::once(entry).chain(still).collect();
        let fault = Fault::NameLost { directory, name, inode };
        checked.add(Some(self.about.name), fault, Some(MetaRepair { patches, ..nothing() }));
        Ok(())
    }
}

/// A directory's inode, as repairs leave it one after the other.
struct OwnInode {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl OwnInode {
    fn new<P: Pairs>(pairs: &mut P, key: Vec<u8>) -> Result<OwnInode, P::Error> {
        let value = value_of(pairs, &key)?;
        Ok(OwnInode { key, value })
    }

    /// The patch after which new names get cookies above this one.
    fn with_cookies_after(&mut self, cookie: u64) -> Option<MetaPatch> {
        let mut inode: Inode = from_value(self.value.as_deref()?).ok()?;
        inode.cookie_next = cookie + 1;
        let value = Some(to_value(&inode));
        let expected = std::mem::replace(&mut self.value, value.clone());
        Some(MetaPatch { key: self.key.clone(), expected, value })
    }
}
