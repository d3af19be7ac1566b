//! Makes a file, pipe, socket or device.

use types::messages::cluster::Mode;
use types::messages::names::{Create, Created, FileKind, Owner};
use types::{InodeId, ObjectId, Refusal};

use super::place::new_object_id;
use crate::kv::Txn;
use crate::records::Inode;
use crate::tree::{Directory, SET_GROUP};
use crate::volatile::Effect;

pub(crate) fn create(txn: &mut Txn<'_>, request: &Create) -> Result<Created, Refusal> {
    let volume = request.volume;
    let file = request.kind == FileKind::File;
    if matches!(request.kind, FileKind::Directory | FileKind::Symlink) || (request.open && !file) {
        return Err(Refusal::Invalid);
    }
    let mut parent = txn.vacant((volume, request.parent), &request.name)?;

    let id = if file { new_object_id(txn, volume, &request.near)? } else { txn.new_id()? };
    let mut inode = Inode::new(request.kind, &inherit(&parent, &request.owner, false), request.now);
    match request.kind {
        FileKind::File => inode.object = ObjectId::in_tier(id, 0),
        FileKind::CharDevice | FileKind::BlockDevice => inode.rdev = request.rdev,
        _ => {}
    }
    let place = add_inode(txn, &mut parent, &request.name, InodeId(id), &inode, request.now)?;
    if request.open {
        txn.effect(Effect::Opened(place, request.caller.client));
    }
    let mode = if request.open { Mode::Alone } else { Mode::Shared };
    Ok(Created { attr: txn.durable_attr(place, &inode), mode, parent: parent.attr() })
}

/// The owner and mode of a new inode in a directory. A directory with the set-group bit passes its group on; a new
/// directory also gets the bit.
pub(super) fn inherit(parent: &Directory, owner: &Owner, directory: bool) -> Owner {
    if parent.inode.mode & SET_GROUP == 0 {
        return owner.clone();
    }
    let bit = if directory { SET_GROUP } else { 0 };
    Owner { uid: owner.uid, gid: parent.inode.gid, mode: owner.mode | bit }
}

/// Writes a new inode under its first name.
pub(super) fn add_inode(
    txn: &mut Txn<'_>,
    parent: &mut Directory,
    name: &[u8],
    id: InodeId,
    inode: &Inode,
    now: i64,
) -> Result<crate::volume_inode::VolumeInode, Refusal> {
    let place = (parent.place.0, id);
    txn.count_inodes(place.0, 1)?;
    txn.add_entry(parent, name, id, None);
    parent.inode.touch(now);
    txn.put_directory(parent);
    txn.put_inode(place, inode);
    Ok(place)
}
