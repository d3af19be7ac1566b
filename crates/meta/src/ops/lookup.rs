//! Finds a name in a directory.

use types::Refusal;
use types::messages::names::{AttrReply, Lookup};

use crate::kv::Txn;

pub(crate) fn lookup(txn: &Txn<'_>, request: &Lookup) -> Result<AttrReply, Refusal> {
    let volume = request.volume;
    let (_, entry, inode) = txn.find((volume, request.parent), &request.name)?;
    Ok(AttrReply { attr: txn.attr((volume, entry.inode), &inode) })
}
