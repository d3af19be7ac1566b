//! Removes an empty directory.

use types::Refusal;
use types::messages::names::{Rmdir, Unlinked};

use crate::kv::Txn;
use crate::tree::check_meant;

pub(crate) fn rmdir(txn: &mut Txn<'_>, request: &Rmdir) -> Result<Unlinked, Refusal> {
    let volume = request.volume;
    let (mut parent, entry, inode) = txn.named((volume, request.parent), &request.name)?;
    check_meant(request.meant, Some(&entry))?;
    if !inode.is_directory() {
        return Err(Refusal::NotDirectory);
    }
    if inode.size > 0 {
        return Err(Refusal::NotEmpty);
    }

    txn.forget_inode((volume, entry.inode), &inode)?;
    txn.remove_entry(&mut parent, &request.name, &entry);
    parent.inode.links -= 1;
    parent.inode.touch(request.now);
    txn.put_directory(&parent);
    Ok(Unlinked { inode: entry.inode, parent: parent.attr() })
}
