//! Makes a directory.

use types::messages::names::{FileKind, Linked, Mkdir};
use types::{InodeId, Refusal};

use super::create::{add_inode, inherit};
use crate::kv::Txn;
use crate::records::Inode;

pub(crate) fn mkdir(txn: &mut Txn<'_>, request: &Mkdir) -> Result<Linked, Refusal> {
    let mut parent = txn.vacant((request.volume, request.parent), &request.name)?;

    let id = InodeId(txn.new_id()?);
    let owner = inherit(&parent, &request.owner, true);
    let mut inode = Inode::new(FileKind::Directory, &owner, request.now);
    inode.parent = request.parent;
    // The new directory's `..`.
    parent.inode.links += 1;
    add_inode(txn, &mut parent, &request.name, id, &inode, request.now)?;
    Ok(Linked { attr: inode.attr(id), parent: parent.attr() })
}
