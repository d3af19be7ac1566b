//! Removes the metadata of a deleted volume, a part at a time.

use types::{Refusal, VolumeId};

use crate::keys;
use crate::kv::Txn;
use crate::records::{Inode, from_value};

/// Keys removed by one transaction.
const PART: usize = 2048;

/// Removes inodes, names and other keys, and queues the files' objects to be purged. False if nothing was left.
pub(crate) fn sweep(txn: &mut Txn<'_>, volume: VolumeId) -> Result<bool, Refusal> {
    let prefixes = [
        keys::all::inodes(volume),
        keys::all::entries(volume),
        keys::all::listed(volume),
        keys::all::orphans_of(volume),
        keys::all::noting_of(volume),
    ];
    for (at, prefix) in prefixes.iter().enumerate() {
        let pairs = txn.range(prefix, &keys::after_all(prefix), PART)?;
        let some = !pairs.is_empty();
        for (key, value) in pairs {
            if at == 0 {
                let inode: Inode = from_value(&value)?;
                // Even if nothing was reported: a lost client may have written bytes.
                if inode.is_file() {
                    txn.purge(volume, inode.object);
                }
            }
            txn.remove(key);
        }
        if some {
            return Ok(true);
        }
    }
    Ok(false)
}
