//! The last close of a file without names.

use types::Refusal;

use crate::keys;
use crate::kv::Txn;
use crate::volume_inode::VolumeInode;

/// Removes those of `places` that have no name and that nobody has open. Returns how many.
pub(crate) fn drop_orphans(txn: &mut Txn<'_>, places: &[VolumeInode]) -> Result<u64, Refusal> {
    let mut dropped = 0;
    for place in places {
        let key = keys::orphan(place.0, place.1);
        if txn.volatile().maybe_open(*place) || !txn.has(&key)? {
            continue;
        }
        let inode = txn.inode(*place)?;
        txn.forget_inode(*place, &inode)?;
        txn.remove(key);
        dropped += 1;
    }
    Ok(dropped)
}
