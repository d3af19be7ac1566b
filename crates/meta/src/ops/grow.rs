//! Tells of growth.

use types::limits::FILE_SIZE_MAX;
use types::messages::Done;
use types::messages::names::{Grow, SizeUpdate};
use types::{ClientId, Refusal};

use crate::kv::Txn;
use crate::live::{Effect, Growth, Place};
use crate::records::Inode;

/// Stable growth is kept for good; other growth is shown until the service ends. What names an object that is no longer
/// the file's is ignored.
pub(crate) fn grow(txn: &mut Txn<'_>, request: &Grow) -> Result<Done, Refusal> {
    txn.geometry(request.volume)?;
    let mut grown = Vec::new();
    for update in &request.sizes {
        let place = (request.volume, update.inode);
        let Some(inode) = current(txn, place, update)? else { continue };
        let shown = txn.live().size(place, &inode);
        let disk = txn.live().disks.contains(&request.volume);
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
            let (client, object) = (request.client, update.object);
            let growth = Growth { client, object, size: update.size, mtime: update.mtime };
            txn.effect(Effect::Grown(place, growth));
        }
    }
    Ok(Done {})
}

/// The file, if the update is of its present object.
fn current(txn: &Txn<'_>, place: Place, update: &SizeUpdate) -> Result<Option<Inode>, Refusal> {
    match txn.inode(place) {
        Ok(inode) => Ok(Some(inode).filter(|inode| inode.is_file() && inode.object == update.object)),
        Err(Refusal::Stale) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn keep(txn: &mut Txn<'_>, place: Place, mut inode: Inode, update: &SizeUpdate) {
    // A time that was set after the write stays.
    let newer = update.mtime > inode.ctime;
    if newer || update.set_time {
        inode.mtime = update.mtime;
        inode.ctime = inode.ctime.max(update.mtime);
    }
    if newer || update.set_time || update.size > inode.size {
        inode.size = inode.size.max(update.size);
        txn.put_inode(place, &inode);
    }
    if txn.live().growth(place, &inode).is_some_and(|growth| growth.size <= inode.size) {
        txn.effect(Effect::Settled(place));
    }
}

/// A client is lost, and with it the growth that it told of: what the bricks may hold of it is stale now.
pub(crate) fn settle_growth(txn: &mut Txn<'_>, client: ClientId) -> Result<(), Refusal> {
    let lost: Vec<Place> = txn
        .live()
        .growth
        .iter()
        .filter(|(_, growth)| growth.client == client)
        .map(|(place, _)| *place)
        .collect();
    for place in lost {
        match txn.inode(place) {
            Ok(mut inode) => {
                let shown = txn.live().size(place, &inode);
                if shown > inode.size && inode.stale_end < shown {
                    inode.stale_end = shown;
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
