//! Takes the end of a file back whose last bytes were lost.

use types::Refusal;
use types::messages::names::{AttrReply, Retract};

use crate::kv::Txn;
use crate::volatile::Effect;

/// The file ends where its client has the last stable byte, and not before the size that is stored. What was shown beyond is
/// shown no more. Bricks may hold bytes up to `sent_end`, so these count as stale.
///
/// The file keeps the time of the bytes that it has. An empty one gets the time 0: `make` and `cp -u` compare times alone, and would
/// take an empty file for newer than its source.
///
/// A report from before a truncation, or a copy of this one, changes nothing. The answer has the file's attributes.
pub(crate) fn retract(txn: &mut Txn<'_>, request: &Retract) -> Result<AttrReply, Refusal> {
    txn.table(request.volume)?;
    let place = (request.volume, request.inode);
    let mut inode = txn.inode(place)?;
    if !inode.is_file() {
        return Err(Refusal::Invalid);
    }
    txn.check_not_a_disk(place.0)?;
    if inode.truncate_seq != request.truncate_seq {
        return Ok(AttrReply { attr: txn.durable_attr(place, &inode) });
    }
    // Others may have made the file longer since, and may rely on what lies beyond.
    if !txn.volatile().opens.is_still_alone(place, request.client) {
        return Err(Refusal::Busy);
    }
    let end = txn.volatile().size(place, &inode).max(request.sent_end);
    if request.size > end {
        return Err(Refusal::Invalid);
    }
    // Stale bytes between the old and the new size would become visible.
    if request.size > inode.size && inode.stale_end > inode.size {
        return Err(Refusal::Busy);
    }
    inode.size = inode.size.max(request.size);
    inode.leave_stale(end);
    let mtime = if inode.size == 0 { 0 } else { inode.mtime };
    inode.touch(request.now);
    inode.mtime = mtime;
    txn.put_inode(place, &inode);
    txn.effect(Effect::Settled(place));
    Ok(AttrReply { attr: txn.durable_attr(place, &inode) })
}
