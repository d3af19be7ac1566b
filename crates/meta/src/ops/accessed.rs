//! Sets times of last access.

use types::Refusal;
use types::limits::ACCESSES_MAX;
use types::messages::Done;
use types::messages::names::Accessed;

use crate::kv::Txn;

/// An access does not replace a later one, or a time that was set since.
pub(crate) fn accessed(txn: &mut Txn<'_>, request: &Accessed) -> Result<Done, Refusal> {
    txn.table(request.volume)?;
    if request.times.len() > ACCESSES_MAX {
        return Err(Refusal::Malformed);
    }
    for time in &request.times {
        let place = (request.volume, time.inode);
        match txn.inode(place) {
            Ok(mut inode) if inode.atime == time.known => {
                inode.atime = time.atime;
                txn.put_inode(place, &inode);
            }
            Ok(_) | Err(Refusal::Stale) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Done {})
}
