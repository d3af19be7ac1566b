//! Opens a file: what can be opened, and the truncation that goes with it.

use types::Refusal;
use types::messages::names::{Attr, FileKind};

use super::truncate;
use crate::kv::Txn;
use crate::volatile::VolumeInode;

/// The attributes of a file that can be opened.
pub(crate) fn openable(txn: &Txn<'_>, place: VolumeInode) -> Result<Attr, Refusal> {
    txn.geometry(place.0)?;
    let inode = txn.inode(place)?;
    match inode.kind {
        FileKind::File => Ok(txn.attr(place, &inode)),
        FileKind::Directory => Err(Refusal::IsDirectory),
        _ => Err(Refusal::Invalid),
    }
}

/// Cuts a file to nothing because it is opened so.
pub(crate) fn open_truncated(txn: &mut Txn<'_>, place: VolumeInode, now: i64) -> Result<Attr, Refusal> {
    txn.geometry(place.0)?;
    let mut inode = txn.inode(place)?;
    truncate::check(txn, place, &inode, 0)?;

    truncate::truncate(txn, place, &mut inode, 0, 0, now)?;
    txn.put_inode(place, &inode);
    Ok(inode.attr(place.1))
}
