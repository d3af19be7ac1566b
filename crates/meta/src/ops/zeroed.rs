//! The stale bytes above a file's size have been zeroed.

use types::Refusal;
use types::messages::Done;
use types::messages::names::Zeroed;

use crate::kv::Txn;

/// Ignored if the file was truncated since the zeroing began: there may be more stale bytes than were zeroed.
pub(crate) fn zeroed(txn: &mut Txn<'_>, request: &Zeroed) -> Result<Done, Refusal> {
    txn.table(request.volume)?;
    let place = (request.volume, request.inode);
    let mut inode = txn.inode(place)?;
    if inode.truncate_seq == request.truncate_seq && inode.stale_end == request.stale_end {
        inode.stale_end = 0;
        txn.put_inode(place, &inode);
    }
    Ok(Done {})
}
