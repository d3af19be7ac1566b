//! Changes attributes.

use types::Refusal;
use types::messages::names::{AttrReply, SetAttr};

use super::truncate;
use crate::kv::Txn;

pub(crate) fn setattr(txn: &mut Txn<'_>, request: &SetAttr) -> Result<AttrReply, Refusal> {
    txn.geometry(request.volume)?;
    let place = (request.volume, request.inode);
    let mut inode = txn.inode(place)?;
    if let Some(size) = request.size {
        truncate::check(txn, place, &inode, size)?;
    }

    if let Some(growth) = txn.live().growth(place, &inode).filter(|growth| growth.mtime > inode.ctime) {
        // This change gets the newer `ctime`, so the growth's time would no longer be shown.
        inode.mtime = growth.mtime;
    }
    if let Some(size) = request.size {
        truncate::truncate(txn, place, &mut inode, size, request.sent_end, request.now)?;
    }
    inode.mode = request.mode.map_or(inode.mode, |mode| mode & 0o7777);
    inode.uid = request.uid.unwrap_or(inode.uid);
    inode.gid = request.gid.unwrap_or(inode.gid);
    inode.atime = request.atime.unwrap_or(inode.atime);
    inode.mtime = request.mtime.unwrap_or(inode.mtime);
    inode.ctime = request.now.max(inode.ctime);
    txn.put_inode(place, &inode);
    let mut attr = inode.attr(place.1);
    if request.size.is_none() {
        attr.size = txn.live().size(place, &inode);
    }
    Ok(AttrReply { attr })
}
