//! Applies reports of sizes.

use types::code_probe::{CodeProbe, hit};
use types::limits::{FILE_SIZE_MAX, NOTES_MAX, SIZE_UPDATES_MAX};
use types::messages::names::{SizeUpdate, UpdateSizes, UpdateSizesReply};
use types::messages::notes::SizeNote;
use types::{ClientId, Refusal, VolumeId};

use crate::keys;
use crate::kv::Txn;
use crate::records::Inode;
use crate::volatile::{Effect, Growth};
use crate::volume_inode::VolumeInode;

/// Stable growth is stored; unstable growth is shown until the service ends.
///
/// A report from before a truncation changes nothing: it is a late copy, or arrived after the truncation. The answer
/// has the file's attributes.
pub(crate) fn grow(txn: &mut Txn<'_>, request: &UpdateSizes) -> Result<UpdateSizesReply, Refusal> {
    // Bounds the length of a change and of a turn.
    if request.sizes.len() > SIZE_UPDATES_MAX {
        return Err(Refusal::Malformed);
    }
    txn.table(request.volume)?;
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
        // Stale bytes between the old and the new size would become visible.
        if update.size > shown && inode.stale_end > shown {
            return Err(Refusal::Busy);
        }
        grown.push((place, inode, update));
    }

    let mut noting = request.noting && request.stable && !grown.is_empty();
    for (place, inode, update) in grown {
        if request.stable {
            keep(txn, place, inode, update);
            noting = noting && let_note(txn, place, request.client);
        } else {
            let (client, truncate_seq) = (request.client, update.truncate_seq);
            let growth = Growth { client, truncate_seq, size: update.size, mtime: update.mtime };
            txn.effect(Effect::Grown(place, growth));
        }
    }
    Ok(UpdateSizesReply { noting, cut })
}

/// Lets a client leave the sizes of a file with the bricks, if it has the file alone and not too many such files.
fn let_note(txn: &mut Txn<'_>, place: VolumeInode, client: ClientId) -> bool {
    let noting = &txn.volatile().noting;
    let known = noting.of(place);
    if known == Some(client) {
        return true;
    }
    if known.is_some() || noting.count(client) >= NOTES_MAX || !txn.volatile().opens.is_alone(place, client) {
        return false;
    }
    txn.put(keys::noting(place.0, place.1), &client);
    txn.effect(Effect::Noting(place, client));
    true
}

/// A client leaves the sizes of these files with the bricks no more.
pub(crate) fn end_noting(txn: &mut Txn<'_>, client: ClientId, places: &[VolumeInode]) {
    for &place in places {
        if txn.volatile().noting.of(place) != Some(client) {
            continue;
        }
        txn.remove(keys::noting(place.0, place.1));
        txn.effect(Effect::NotingEnded(place));
    }
}

/// Stores what a lost client has noted about a file with the bricks. A note from before a truncation says nothing.
pub(crate) fn keep_note(txn: &mut Txn<'_>, place: VolumeInode, note: &SizeNote) -> Result<(), Refusal> {
    let Some(inode) = file(txn, place)? else { return Ok(()) };
    let is_disk = txn.volatile().disks.contains(&place.0);
    let is_too_long = note.size > FILE_SIZE_MAX || is_disk && note.size > inode.size;
    if inode.truncate_seq != note.truncate_seq || is_too_long {
        return Ok(());
    }
    if note.size > inode.size && inode.stale_end > inode.size {
        tracing::error!(inode = %place.1, note.size, inode.stale_end, "a lost client has noted a size over bytes that were not zeroed");
        return Ok(());
    }
    if note.size > inode.size {
        hit(CodeProbe::NoteStored);
    }
    let SizeNote { inode: id, truncate_seq, size, mtime, .. } = note.clone();
    let update = SizeUpdate { inode: id, truncate_seq, size, mtime, set_time: false };
    keep(txn, place, inode, &update);
    Ok(())
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
    // Bytes were written, even if neither size nor time changed.
    inode.changes += 1;
    txn.put_inode(place, &inode);
    if txn.volatile().growth(place, &inode).is_some_and(|growth| growth.size <= inode.size) {
        txn.effect(Effect::Settled(place));
    }
}

/// Counts a change of files that a lost client had open for writing: it may have changed bytes without a report.
pub(crate) fn count_changes(txn: &mut Txn<'_>, files: &[VolumeInode]) -> Result<(), Refusal> {
    for &place in files {
        match txn.inode(place) {
            Ok(mut inode) => {
                inode.changes += 1;
                txn.put_inode(place, &inode);
            }
            Err(Refusal::Stale) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(())
}

/// A lost client had these files open for writing, and nobody else: bricks may hold bytes beyond the size of which nobody was
/// told. They count as stale, wherever they end.
pub(crate) fn leave_unreported(txn: &mut Txn<'_>, files: &[VolumeInode]) -> Result<(), Refusal> {
    for &place in files {
        let Some(mut inode) = file(txn, place)? else { continue };
        if !txn.volatile().disks.contains(&place.0) {
            inode.leave_stale(FILE_SIZE_MAX);
            txn.put_inode(place, &inode);
        }
    }
    Ok(())
}

/// Counts a change of all files of a volume, in one step: a client is lost, and the service has restarted and does not
/// know which of them the client had open for writing.
pub(crate) fn count_change_of_all(txn: &mut Txn<'_>, volume: VolumeId) -> Result<(), Refusal> {
    let key = keys::all_changed(volume);
    let count = txn.get::<u64>(&key)?.unwrap_or(0) + 1;
    txn.put(key, &count);
    txn.effect(Effect::AllChanged(volume, count));
    Ok(())
}

/// Forgets the unstable growth that a lost client has reported for these files. The bricks may hold bytes of it, so
/// they count as stale.
pub(crate) fn settle_growth(
    txn: &mut Txn<'_>,
    client: ClientId,
    lost: &[VolumeInode],
) -> Result<(), Refusal> {
    for &place in lost {
        // Another client that shares the file may have made it longer since.
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
