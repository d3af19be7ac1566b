//! The check of one volume, step by step.
//!
//! ```text
//! inodes -> orphans -> names -> directories with several names, or in themselves -> what is listed
//!        -> counts -> inodes without names -> objects and purges -> the number of inodes
//! ```

use types::messages::names::{FileKind, Owner};
use types::messages::replica::{Adopt, InodesChange, MetaPatch, MetaRepair, PurgeObject};
use types::{InodeId, ObjectId, VolumeId};

use super::fault::{Difference, Fault};
use super::inodes::Inodes;
use super::names::Names;
use super::pairs::{CheckError, Pairs, value_of};
use super::whole::{Checked, EMPTY_MAX, FAULTS_MAX, nothing};
use crate::records::{COOKIE_FIRST, Inode, from_value, to_value};
use crate::{COOKIES_END, ids_end, keys};

/// What has changed for so long has been there when the bricks were asked, if clocks do not differ more. In nanoseconds.
const LATELY_NS: i64 = 60_000_000_000;

/// What a check of a volume needs to know.
pub(super) struct About<'a> {
    pub(super) id: VolumeId,
    pub(super) name: &'a str,
    /// About how many bytes it may take.
    pub(super) memory: usize,
    /// The time of repairs, in nanoseconds since 1970.
    pub(super) now: i64,
    /// Objects that bricks hold, in order; `None` if they were not asked.
    pub(super) held: Option<&'a [ObjectId]>,
    /// It is a disk: it has one file, and nobody changes its names.
    pub(super) is_disk: bool,
}

/// Checks a volume. Returns the last id in use in it.
pub(super) fn check<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    checked: &mut Checked,
) -> Result<u64, CheckError<P::Error>> {
    let mut inodes = read_inodes(pairs, about, checked)?;
    read_orphans(pairs, about, &mut inodes, checked)?;
    let mut names = Names::new(about);
    names.read(pairs, &mut inodes, checked)?;
    checked.names += names.count;
    names.settle_directories(pairs, &mut inodes)?;
    names.remove_bad(pairs, &mut inodes, checked)?;
    names.compare_listing(pairs, &mut inodes, checked)?;
    check_inodes(pairs, about, &inodes, checked)?;
    checked.inodes += inodes.rows.len() as u64;
    checked.directories += inodes.directories.len() as u64;
    let last_purge = check_objects(pairs, about, &mut inodes, checked)?;
    check_count(pairs, about, &inodes, checked)?;
    let last_inode = inodes.rows.last().map_or(0, |row| row.inode.0);
    let objects =
        inodes.objects.iter().map(|(object, _)| *object).chain(about.held.into_iter().flatten().copied());
    let numbers = objects.map(ObjectId::number).filter(|number| *number < ids_end(about.id));
    Ok(numbers.fold(last_inode.max(last_purge), u64::max))
}

fn read_inodes<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    checked: &mut Checked,
) -> Result<Inodes, CheckError<P::Error>> {
    let (prefix, mut inodes) = (keys::all::inodes(about.id), Inodes::default());
    pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
        let id = keys::volume_and_number(key).map(|(_, id)| id).filter(|id| *id < ids_end(about.id));
        let inode = from_value::<Inode>(value).ok().filter(|inode| inode.object.number() < ids_end(about.id));
        let (Some(id), inode) = (id, inode) else {
            checked.add(Some(about.name), Fault::Unreadable { key: key.to_vec() }, None);
            return true;
        };
        if inode.is_none() {
            checked.add(Some(about.name), Fault::Unreadable { key: key.to_vec() }, None);
        }
        if inode.as_ref().is_some_and(|inode| is_empty(inode, about)) {
            checked.empty_files += 1;
            if checked.empty.len() < EMPTY_MAX {
                checked.empty.push((about.name.to_owned(), InodeId(id)));
            }
        }
        inodes.push(InodeId(id), inode.as_ref());
        inodes.bytes() <= about.memory
    })?;
    match inodes.bytes() <= about.memory {
        true => Ok(inodes),
        false => Err(CheckError::Memory { volume: about.name.to_owned(), given: about.memory }),
    }
}

/// Whether a file has a length, and no brick has anything of it. Not so of files that have changed lately: the bricks were asked
/// before.
fn is_empty(inode: &Inode, about: &About<'_>) -> bool {
    let Some(held) = about.held.filter(|_| inode.is_file() && inode.size > 0) else { return false };
    let changed = inode.ctime.max(inode.timed);
    changed < about.now.saturating_sub(LATELY_NS) && held.binary_search(&inode.object).is_err()
}

fn read_orphans<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    inodes: &mut Inodes,
    checked: &mut Checked,
) -> Result<(), P::Error> {
    let prefix = keys::all::orphans_of(about.id);
    pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
        let Some(id) = keys::last_u64(key) else { return true };
        match inodes.find(InodeId(id)) {
            Some(row) => inodes.rows[row].is_orphan = true,
            None => {
                let (inode, key, expected) = (InodeId(id), keys::inode(about.id, InodeId(id)), None);
                let still_missing = MetaPatch { key, expected, value: None };
                let patches = vec![removal(&keys::orphan(about.id, inode), value), still_missing];
                let repair = MetaRepair { patches, ..nothing() };
                checked.add(Some(about.name), Fault::OrphanWithoutInode { inode }, Some(repair));
            }
        }
        true
    })
}

/// A patch that changes nothing: it makes sure that a value is still what the check has seen.
pub(super) fn unchanged<P: Pairs>(pairs: &mut P, key: Vec<u8>) -> Result<MetaPatch, P::Error> {
    let value = value_of(pairs, &key)?;
    Ok(MetaPatch { key, expected: value.clone(), value })
}

/// A patch that removes a value.
pub(super) fn removal(key: &[u8], value: &[u8]) -> MetaPatch {
    MetaPatch { key: key.to_vec(), expected: Some(value.to_vec()), value: None }
}

/// Compares what inodes have with what was found of them.
fn check_inodes<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    inodes: &Inodes,
    checked: &mut Checked,
) -> Result<(), P::Error> {
    // Those without names come last: they get names in a directory whose counts must be right before.
    let mut nameless = Vec::new();
    for (at, row) in inodes.rows.iter().enumerate().filter(|(_, row)| !row.is_unreadable) {
        let is_root = row.inode == InodeId::ROOT;
        let is_directory = inodes.directory_of(at).is_some();
        let key = keys::orphan(about.id, row.inode);
        if row.names == 0 && !is_root {
            if !row.is_orphan || row.links > 0 || is_directory {
                nameless.push(at);
            }
            continue;
        }
        if row.is_orphan {
            let value = value_of(pairs, &key)?.unwrap_or_default();
            let inode = unchanged(pairs, keys::inode(about.id, row.inode))?;
            let repair = MetaRepair { patches: vec![removal(&key, &value), inode], ..nothing() };
            checked.add(Some(about.name), Fault::NamedOrphan { inode: row.inode }, Some(repair));
        }
        let differs = match inodes.directory_of(at).map(|at| &inodes.directories[at]) {
            None => row.links != row.names || row.is_cut_link,
            Some(found) => {
                let parent = if is_root { InodeId::ROOT } else { found.found_in };
                found.is_lost
                    || row.links != 2 + found.directories
                    || found.size != found.entries
                    || found.parent != parent
                    || found.cookie_next <= found.last_cookie
                    || found.cookie_next > COOKIES_END
            }
        };
        if differs && let Some((patch, differences)) = corrected(pairs, about, inodes, at)? {
            let repair = MetaRepair { patches: vec![patch], ..nothing() };
            let is_lost = inodes.directory_of(at).is_some_and(|at| inodes.directories[at].is_lost);
            let fault = match is_lost {
                true => Fault::LostDirectory { inode: row.inode },
                false => Fault::Counts { inode: row.inode, differences },
            };
            checked.add(Some(about.name), fault, Some(repair));
        }
    }
    for at in nameless {
        let row = &inodes.rows[at];
        let Some((patch, _)) = corrected(pairs, about, inodes, at)? else { continue };
        let mut patches = vec![patch];
        if row.is_orphan {
            let key = keys::orphan(about.id, row.inode);
            let value = value_of(pairs, &key)?.unwrap_or_default();
            patches.push(removal(&key, &value));
        }
        let adopt = Some(Adopt { volume: about.id, inode: row.inode, now: about.now });
        let repair = (!about.is_disk).then_some(MetaRepair { patches, adopt, ..nothing() });
        checked.add(Some(about.name), Fault::NoName { inode: row.inode }, repair);
    }
    Ok(())
}

/// An inode as it should be, and what differs. An inode without names is as it will be with its new one.
fn corrected<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    inodes: &Inodes,
    at: usize,
) -> Result<Option<(MetaPatch, Vec<Difference>)>, P::Error> {
    let row = &inodes.rows[at];
    let key = keys::inode(about.id, row.inode);
    let value = value_of(pairs, &key)?;
    let is_lost = inodes.directory_of(at).is_some_and(|at| inodes.directories[at].is_lost);
    let mut inode = match &value {
        // Whose it was is not known.
        None if is_lost => Inode::new(FileKind::Directory, &Owner { uid: 0, gid: 0, mode: 0o700 }, about.now),
        None => return Ok(None),
        Some(value) => match from_value::<Inode>(value) {
            Ok(inode) => inode,
            Err(_) => return Ok(None),
        },
    };
    let mut differences = Vec::new();
    let mut note = |what, stored: u64, found: u64| {
        if stored != found {
            differences.push(Difference { what, stored, found });
        }
        found
    };
    match inodes.directory_of(at).map(|at| &inodes.directories[at]) {
        None => {
            inode.links = note("links", inode.links.into(), row.names.max(1).into()) as u32;
            if inode.kind == FileKind::Symlink && !inode.inline.is_empty() {
                inode.size = note("length", inode.size, inode.inline.len() as u64);
            }
        }
        Some(found) => {
            inode.links = note("links", inode.links.into(), (2 + found.directories).into()) as u32;
            inode.size = note("names", inode.size, found.entries);
            let next = Some(inode.cookie_next).filter(|next| *next <= COOKIES_END);
            let next = next.unwrap_or(0).max(found.last_cookie + 1).max(COOKIE_FIRST);
            inode.cookie_next = note("next cookie", inode.cookie_next, next);
            if row.inode == InodeId::ROOT {
                inode.parent = InodeId(note("parent", inode.parent.0, InodeId::ROOT.0));
            } else if row.names > 0 {
                inode.parent = InodeId(note("parent", inode.parent.0, found.found_in.0));
            }
        }
    }
    Ok(Some((MetaPatch { key, expected: value, value: Some(to_value(&inode)) }, differences)))
}

/// Compares the objects of files with each other, with those that wait to be purged, and with what bricks hold. Returns the last
/// number of those that wait.
fn check_objects<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    inodes: &mut Inodes,
    checked: &mut Checked,
) -> Result<u64, P::Error> {
    inodes.objects.sort_unstable();
    for two in inodes.objects.array_windows().filter(|[one, other]| one.0 == other.0) {
        let [(object, one), (_, other)] = *two;
        checked.add(Some(about.name), Fault::SharedObject { inodes: [one, other], object }, None);
    }
    let owner = |object| {
        let at = inodes.objects.partition_point(|(one, _)| *one < object);
        inodes.objects.get(at).filter(|(one, _)| *one == object).map(|(_, inode)| *inode)
    };
    // Both come in the order of their numbers.
    let held = about.held.into_iter().flatten();
    let (mut held, mut unowned) = (held.copied().peekable(), Vec::new());
    let has_owner = |object: &ObjectId| owner(*object).is_some();
    let (mut purged, mut last) = (Vec::new(), 0);
    let prefix = keys::all::purges_of(about.id);
    pairs.range(&prefix, &keys::after_all(&prefix), &mut |key, value| {
        checked.purges += 1;
        let object = ObjectId(keys::last_u64(key).unwrap_or(0));
        while let Some(before) = held.next_if(|one| *one <= object) {
            if before < object && !has_owner(&before) {
                unowned.push(before);
            }
        }
        if let Some(inode) = owner(object).filter(|_| purged.len() < FAULTS_MAX) {
            purged.push((inode, object, removal(key, value)));
        }
        last = last.max(if object.number() < ids_end(about.id) { object.number() } else { 0 });
        true
    })?;
    for (inode, object, removal) in purged {
        let patches = vec![removal, unchanged(pairs, keys::inode(about.id, inode))?];
        let repair = MetaRepair { patches, ..nothing() };
        checked.add(Some(about.name), Fault::Purged { inode, object }, Some(repair));
    }
    unowned.extend(held.filter(|object| !has_owner(object)));
    for object in unowned {
        let purge = Some(PurgeObject { volume: about.id, object });
        checked.add(Some(about.name), Fault::Unowned { object }, Some(MetaRepair { purge, ..nothing() }));
    }
    Ok(last)
}

/// Compares the number of inodes that a volume has with the one that it says.
fn check_count<P: Pairs>(
    pairs: &mut P,
    about: &About<'_>,
    inodes: &Inodes,
    checked: &mut Checked,
) -> Result<(), P::Error> {
    let stored = value_of(pairs, &keys::usage(about.id))?;
    let stored = stored.and_then(|value| from_value::<u64>(&value).ok()).unwrap_or(0);
    let found = inodes.rows.len() as u64;
    if stored != found {
        let change = InodesChange { volume: about.id, by: found.wrapping_sub(stored).cast_signed() };
        let repair = MetaRepair { inodes: Some(change), ..nothing() };
        checked.add(Some(about.name), Fault::Inodes { stored, found }, Some(repair));
    }
    Ok(())
}
