//! Gives a file another name.

use types::Refusal;
use types::limits::LINKS_MAX;
use types::messages::names::{Link, Linked};

use crate::kv::Txn;

pub(crate) fn link(txn: &mut Txn<'_>, request: &Link) -> Result<Linked, Refusal> {
    let mut parent = txn.vacant((request.volume, request.parent), &request.name)?;
    let place = (request.volume, request.inode);
    let mut inode = txn.inode(place)?;
    if inode.is_directory() {
        return Err(Refusal::NotPermitted);
    }
    if inode.links == 0 {
        // The file has no name left; only clients that have it open can still use it.
        return Err(Refusal::NotFound);
    }
    if inode.links >= LINKS_MAX {
        return Err(Refusal::TooManyLinks);
    }

    inode.links += 1;
    inode.ctime = request.now;
    txn.add_entry(&mut parent, &request.name, request.inode, None);
    parent.inode.touch(request.now);
    txn.put_directory(&parent);
    txn.put_inode(place, &inode);
    Ok(Linked { attr: txn.attr(place, &inode), parent: parent.attr() })
}
