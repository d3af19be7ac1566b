//! Lists a directory.

use types::Refusal;
use types::messages::names::{DirEntries, DirEntry, ReadDir, ReadDirFrom};

use crate::keys;
use crate::kv::Txn;
use crate::records::{Listed, from_value};
use crate::tree::Directory;

/// Most entries in one answer; with the longest names they take a third of the largest record.
const ENTRIES_MAX: usize = 4096;

pub(crate) fn readdir(txn: &Txn<'_>, request: &ReadDir) -> Result<DirEntries, Refusal> {
    let directory = txn.directory((request.volume, request.inode))?;
    entries(txn, &directory, request.cookie.saturating_add(1), request.count)
}

pub(crate) fn readdir_from(txn: &Txn<'_>, request: &ReadDirFrom) -> Result<DirEntries, Refusal> {
    let volume = request.volume;
    let (directory, entry, _) = txn.find((volume, request.parent), &request.name)?;
    let mut listed = entries(txn, &directory, entry.cookie, request.count)?;
    // Whoever wants the size of a file that only bricks know waits for it: see `Shared::read_size`. So the answer ends before it.
    let is_unknown = |entry: &DirEntry| txn.volatile().noting.is_unknown((volume, entry.attr.inode));
    if let Some(at) = listed.entries.iter().skip(1).position(is_unknown) {
        listed.entries.truncate(1 + at);
        listed.end = false;
    }
    Ok(listed)
}

/// Up to `count` entries from the cookie `from` on.
fn entries(txn: &Txn<'_>, directory: &Directory, from: u64, count: u32) -> Result<DirEntries, Refusal> {
    let (volume, inode) = directory.place;
    let count = (count as usize).clamp(1, ENTRIES_MAX);
    let from = keys::listed(volume, inode, from);
    let to = keys::after_all(&keys::all::listed_in(volume, inode));
    let mut pairs = txn.range(&from, &to, count + 1)?;
    let end = pairs.len() <= count;
    pairs.truncate(count);

    let mut entries = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let cookie = keys::last_u64(&key).ok_or(Refusal::MetaFailed)?;
        let listed: Listed = from_value(&value)?;
        let place = (volume, listed.inode);
        let attr = txn.attr(place, &txn.inode(place)?);
        entries.push(DirEntry { cookie, name: listed.name, attr });
    }
    Ok(DirEntries { entries, end, parent: directory.inode.parent })
}
