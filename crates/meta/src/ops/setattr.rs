//! Changes attributes.

use types::Refusal;
use types::messages::names::{AttrReply, SetAttr};

use super::truncate;
use crate::kv::Txn;

pub(crate) fn setattr(txn: &mut Txn<'_>, request: &SetAttr) -> Result<AttrReply, Refusal> {
    txn.table(request.volume)?;
    let place = (request.volume, request.inode);
    let mut inode = txn.inode(place)?;
    if let Some(size) = request.size {
        truncate::check(txn, place, &inode, size)?;
    }

    // Writes already reported count as earlier than this change, whatever their client's clock says.
    let written = txn.volatile().growth(place, &inode).map_or(0, |growth| growth.mtime);
    if let Some(size) = request.size {
        truncate::truncate(txn, place, &mut inode, size, request.sent_end, request.now)?;
    }
    inode.mode = request.mode.map_or(inode.mode, |mode| mode & 0o7777);
    inode.uid = request.uid.unwrap_or(inode.uid);
    inode.gid = request.gid.unwrap_or(inode.gid);
    inode.atime = request.atime.unwrap_or(inode.atime);
    if let Some(mtime) = request.mtime {
        inode.mtime = mtime;
        inode.timed = request.now.max(inode.timed).max(written);
    }
    inode.ctime = request.now.max(inode.ctime);
    txn.put_inode(place, &inode);
    // A new size replaces the growth that was reported before it.
    let attr = if request.size.is_some() { txn.durable_attr(place, &inode) } else { txn.attr(place, &inode) };
    Ok(AttrReply { attr })
}
