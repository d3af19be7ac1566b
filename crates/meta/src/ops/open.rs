//! Opens a file: checks that it can be opened, and truncates it if asked.

use types::Refusal;
use types::messages::names::{Attr, FileKind, NamedAs};

use super::truncate;
use crate::keys;
use crate::kv::Txn;
use crate::records::Entry;
use crate::volume_inode::VolumeInode;

/// The attributes of a file that can be opened.
pub(crate) fn openable(txn: &Txn<'_>, place: VolumeInode) -> Result<Attr, Refusal> {
    txn.table(place.0)?;
    let inode = txn.inode(place)?;
    match inode.kind {
        FileKind::File => Ok(txn.attr(place, &inode)),
        FileKind::Directory => Err(Refusal::IsDirectory),
        _ => Err(Refusal::Invalid),
    }
}

/// The attributes of a file that can be opened, if it still has all of these names.
pub(crate) fn openable_as(txn: &Txn<'_>, place: VolumeInode, names: &[NamedAs]) -> Result<Attr, Refusal> {
    let attr = openable(txn, place)?;
    for NamedAs { parent, name } in names {
        let entry = txn.get::<Entry>(&keys::entry(place.0, *parent, name))?;
        if entry.is_none_or(|entry| entry.inode != place.1) {
            return Err(Refusal::Stale);
        }
    }
    Ok(attr)
}

/// Truncates a file to nothing, because the open asks for it.
pub(crate) fn open_truncated(txn: &mut Txn<'_>, place: VolumeInode, now: i64) -> Result<Attr, Refusal> {
    txn.table(place.0)?;
    let mut inode = txn.inode(place)?;
    truncate::check(txn, place, &inode, 0)?;

    truncate::truncate(txn, place, &mut inode, 0, 0, now)?;
    txn.put_inode(place, &inode);
    Ok(txn.durable_attr(place, &inode))
}
