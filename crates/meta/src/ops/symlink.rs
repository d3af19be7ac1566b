//! Makes a symbolic link.

use types::limits::SYMLINK_MAX;
use types::messages::names::{FileKind, Linked, Symlink};
use types::{InodeId, Refusal};

use super::create::{add_inode, inherit};
use crate::kv::Txn;
use crate::records::Inode;

pub(crate) fn symlink(txn: &mut Txn<'_>, request: &Symlink) -> Result<Linked, Refusal> {
    let mut parent = txn.vacant((request.volume, request.parent), &request.name)?;
    if request.target.len() > SYMLINK_MAX {
        return Err(Refusal::NameTooLong);
    }
    if request.target.is_empty() || request.target.contains(&0) {
        return Err(Refusal::Invalid);
    }

    let id = InodeId(txn.new_id()?);
    let mut inode = Inode::new(FileKind::Symlink, &inherit(&parent, &request.owner, false), request.now);
    inode.size = request.target.len() as u64;
    inode.inline = request.target.clone();
    add_inode(txn, &mut parent, &request.name, id, &inode, request.now)?;
    Ok(Linked { attr: inode.attr(id), parent: parent.attr() })
}
