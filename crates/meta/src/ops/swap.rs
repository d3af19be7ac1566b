//! Two files swap their objects: the last step of a move to another tier.

use types::Refusal;
use types::messages::names::{AttrReply, SwapObjects};

use crate::kv::Txn;
use crate::volatile::Effect;

/// The file keeps its contents, so its times and its count of changes stay. Its count of truncations grows: reports
/// from before the swap are about the old object. The temporary file takes the old object along when it goes.
pub(crate) fn swap_objects(txn: &mut Txn<'_>, request: &SwapObjects) -> Result<AttrReply, Refusal> {
    txn.check_not_a_disk(request.volume)?;
    let client = request.caller.client;
    let (place, other) = ((request.volume, request.inode), (request.volume, request.temporary));
    let (mut inode, mut temporary) = (txn.inode(place)?, txn.inode(other)?);
    let opens = &txn.volatile().opens;
    let is_temporary = temporary.is_file() && temporary.links == 0 && opens.has(other, client);
    if !inode.is_file() || !is_temporary || place == other || !opens.has(place, client) {
        return Err(Refusal::Invalid);
    }
    let now = txn.durable_attr(place, &inode);
    let is_as_copied = now.changes == request.changes && now.truncate_seq == request.truncate_seq;
    let is_growing = txn.volatile().size(place, &inode) > inode.size;
    if !is_as_copied || is_growing || opens.is_written_by_others(place, client) {
        return Err(Refusal::Busy);
    }
    if temporary.size != inode.size || temporary.stale_end > temporary.size {
        return Err(Refusal::Invalid);
    }

    std::mem::swap(&mut inode.object, &mut temporary.object);
    // The old object may have bytes beyond the size.
    temporary.stale_end = inode.stale_end;
    temporary.changes += inode.changes;
    inode.stale_end = 0;
    for file in [&mut inode, &mut temporary] {
        file.truncate_seq += 1;
    }
    txn.put_inode(place, &inode);
    txn.put_inode(other, &temporary);
    txn.effect(Effect::Settled(place));
    txn.effect(Effect::Settled(other));
    Ok(AttrReply { attr: txn.durable_attr(place, &inode) })
}
