//! Tells of growth.

use types::limits::{FILE_SIZE_MAX, SIZE_UPDATES_MAX};
use types::messages::names::{SizeUpdate, UpdateSizes, UpdateSizesReply};
use types::{ClientId, Refusal};

use crate::kv::Txn;
use crate::records::Inode;
use crate::volatile::{Effect, Growth, VolumeInode};

/// Stable growth is kept for good; other growth is shown until the service ends.
///
/// A report from before a cut changes nothing: it is a late copy, or the cut has overtaken it. Its file's attributes are
/// in the answer.
pub(crate) fn grow(txn: &mut Txn<'_>, request: &UpdateSizes) -> Result<UpdateSizesReply, Refusal> {
    // A change, and what is done in one turn, has a bounded length.
    if request.sizes.len() > SIZE_UPDATES_MAX {
        return Err(Refusal::Malformed);
    }
    txn.geometry(request.volume)?;
    let mut grown = Vec::new();
    let mut cut = Vec::new();
    for update in &request.sizes {
        let place = (request.volume, update.inode);
        let Some(inode) = file(txn, place)? else { continue };
        if inode.truncate_seq != update.truncate_seq {
            cut.push(txn.attr(place, &inode));
            continue;
        }
        let shown = txn.volatile().size(place, &inode);
        let disk = txn.volatile().disks.contains(&request.volume);
        if update.size > FILE_SIZE_MAX || (disk && update.size > inode.size) {
            return Err(Refusal::FileTooLarge);
        }
        // Between the size and the new bytes the old ones would be seen.
        if update.size > shown && inode.stale_end > shown {
            return Err(Refusal::Busy);
        }
        grown.push((place, inode, update));
    }

    for (place, inode, update) in grown {
        if request.stable {
            keep(txn, place, inode, update);
        } else {
            let (client, truncate_seq) = (request.client, update.truncate_seq);
            let growth = Growth { client, truncate_seq, size: update.size, mtime: update.mtime };
            txn.effect(Effect::Grown(place, growth));
        }
    }
    Ok(UpdateSizesReply { cut })
}

/// The file, if it is still there.
fn file(txn: &Txn<'_>, place: VolumeInode) -> Result<Option<Inode>, Refusal> {
    match txn.inode(place) {
        Ok(inode) => Ok(Some(inode).filter(Inode::is_file)),
        Err(Refusal::Stale) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn keep(txn: &mut Txn<'_>, place: VolumeInode, mut inode: Inode, update: &SizeUpdate) {
    // A time that was set after the write stays.
    let newer = update.mtime > inode.timed;
    if newer || update.set_time {
        inode.mtime = update.mtime;
        inode.ctime = inode.ctime.max(update.mtime);
        inode.timed = inode.timed.max(update.mtime);
    }
    inode.size = inode.size.max(update.size);
    // Bytes were written, also where neither size nor time tells.
    inode.changes += 1;
    txn.put_inode(place, &inode);
    if txn.volatile().growth(place, &inode).is_some_and(|growth| growth.size <= inode.size) {
        txn.effect(Effect::Settled(place));
    }
}

/// A client is lost, and with it the growth of these files that it told of: what the bricks may hold of it is stale now.
pub(crate) fn settle_growth(
    txn: &mut Txn<'_>,
    client: ClientId,
    lost: &[VolumeInode],
) -> Result<(), Refusal> {
    for &place in lost {
        // Others may have made a file longer meanwhile that they share with it.
        if txn.volatile().growth.get(&place).is_none_or(|growth| growth.client != client) {
            continue;
        }
        match txn.inode(place) {
            Ok(mut inode) => {
                let shown = txn.volatile().size(place, &inode);
                if shown > inode.size {
                    inode.leave_stale(shown);
                    txn.put_inode(place, &inode);
                }
            }
            Err(Refusal::Stale) => {}
            Err(refusal) => return Err(refusal),
        }
        txn.effect(Effect::Settled(place));
    }
    Ok(())
}
