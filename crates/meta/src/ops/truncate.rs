//! Changes the size of a file; part of `setattr` and `open`.
//!
//! | new size | what happens |
//! |---|---|
//! | 0 | the file gets a new object, the old one is queued to be purged |
//! | smaller | the end of what the bricks may still hold is kept as `stale_end` until a client has zeroed it |
//! | larger | refused with `Busy` while stale bytes lie above the size: they would be seen |

use types::limits::FILE_SIZE_MAX;
use types::{ObjectId, Refusal};

use crate::kv::Txn;
use crate::live::{Effect, Place};
use crate::records::Inode;

/// Refuses what cannot be.
pub(super) fn check(txn: &Txn<'_>, place: Place, inode: &Inode, size: u64) -> Result<(), Refusal> {
    if inode.is_directory() {
        return Err(Refusal::IsDirectory);
    }
    if !inode.is_file() {
        return Err(Refusal::Invalid);
    }
    txn.check_not_a_disk(place.0)?;
    if size > FILE_SIZE_MAX {
        return Err(Refusal::FileTooLarge);
    }
    let shown = txn.live().size(place, inode);
    if size > shown && inode.stale_end > shown {
        return Err(Refusal::Busy);
    }
    Ok(())
}

/// Changes the size and the times; the caller puts the inode.
pub(super) fn truncate(
    txn: &mut Txn<'_>,
    place: Place,
    inode: &mut Inode,
    size: u64,
    sent_end: u64,
    now: u64,
) -> Result<(), Refusal> {
    let end = txn.live().size(place, inode).max(sent_end);
    if size == 0 {
        txn.queue_purge(place, inode, end)?;
        inode.object = ObjectId(txn.new_id()?);
        inode.stale_end = 0;
    } else if size < end {
        inode.stale_end = cut_end(inode.stale_end, end);
    }
    inode.size = size;
    inode.touch(now);
    txn.effect(Effect::Settled(place));
    Ok(())
}

/// The new `stale_end` of a file cut below `end`. It always differs from the old one: a client that has zeroed up to
/// the old one did not zero what this cut leaves.
fn cut_end(stale_end: u64, end: u64) -> u64 {
    if stale_end >= end { stale_end + 1 } else { end }
}
