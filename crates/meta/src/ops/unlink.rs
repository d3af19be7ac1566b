//! Removes a name of a file.

use types::Refusal;
use types::messages::names::{Unlink, Unlinked};

use crate::kv::Txn;

pub(crate) fn unlink(txn: &mut Txn<'_>, request: &Unlink) -> Result<Unlinked, Refusal> {
    let volume = request.volume;
    let (mut parent, entry, inode) = txn.named((volume, request.parent), &request.name)?;
    if inode.is_directory() {
        return Err(Refusal::IsDirectory);
    }

    txn.drop_link((volume, entry.inode), inode, request.now)?;
    txn.remove_entry(&mut parent, &request.name, &entry);
    parent.inode.touch(request.now);
    txn.put_directory(&parent);
    Ok(Unlinked { inode: entry.inode, parent: parent.attr() })
}
