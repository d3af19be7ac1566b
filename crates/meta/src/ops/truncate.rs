//! Changes the size of a file; part of `setattr` and `open`.
//!
//! | new size | what happens |
//! |---|---|
//! | 0 | the file gets a new object, the old one is queued to be purged |
//! | smaller | `stale_end` is the end of the bytes that the bricks may still hold, until a client has zeroed them |
//! | larger | refused with `Busy` while there are stale bytes beyond the size: they would become visible |
//!
//! The inode counts truncations to a smaller size or 0. Reports of sizes and of zeroed bytes name the count that they
//! were made for.

use types::limits::FILE_SIZE_MAX;
use types::{ObjectId, Refusal};

use super::place::new_object_id_like;
use crate::kv::Txn;
use crate::records::Inode;
use crate::volatile::Effect;
use crate::volume_inode::VolumeInode;

/// Refuses a size that the file cannot get.
pub(super) fn check(txn: &Txn<'_>, place: VolumeInode, inode: &Inode, size: u64) -> Result<(), Refusal> {
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
    let shown = txn.volatile().size(place, inode);
    if size > shown && inode.stale_end > shown {
        return Err(Refusal::Busy);
    }
    Ok(())
}

/// Changes the size and the times; the caller puts the inode.
pub(super) fn truncate(
    txn: &mut Txn<'_>,
    place: VolumeInode,
    inode: &mut Inode,
    size: u64,
    sent_end: u64,
    now: i64,
) -> Result<(), Refusal> {
    let end = txn.volatile().size(place, inode).max(sent_end);
    if size == 0 {
        txn.queue_purge(place, inode, end)?;
        inode.begin_anew(ObjectId::in_tier(new_object_id_like(txn, place.0, inode.object)?, 0));
    } else if size < end {
        inode.leave_stale(end);
    }
    inode.size = size;
    inode.touch(now);
    txn.effect(Effect::Settled(place));
    Ok(())
}
