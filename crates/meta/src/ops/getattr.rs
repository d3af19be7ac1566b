//! Reads an inode's attributes.

use types::Refusal;
use types::messages::names::{AttrReply, GetAttr};

use crate::kv::Txn;

pub(crate) fn getattr(txn: &Txn<'_>, request: &GetAttr) -> Result<AttrReply, Refusal> {
    txn.table(request.volume)?;
    let place = (request.volume, request.inode);
    let inode = txn.inode(place)?;
    Ok(AttrReply { attr: txn.attr(place, &inode) })
}
