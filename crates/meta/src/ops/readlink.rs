//! Reads a symbolic link.

use types::Refusal;
use types::messages::names::{FileKind, LinkTarget, ReadLink};

use crate::kv::Txn;

pub(crate) fn readlink(txn: &Txn<'_>, request: &ReadLink) -> Result<LinkTarget, Refusal> {
    txn.table(request.volume)?;
    let inode = txn.inode((request.volume, request.inode))?;
    if inode.kind != FileKind::Symlink {
        return Err(Refusal::Invalid);
    }
    Ok(LinkTarget { target: inode.inline })
}
