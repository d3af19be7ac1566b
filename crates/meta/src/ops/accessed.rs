//! Takes times of accesses over.

use types::Refusal;
use types::limits::ACCESSES_MAX;
use types::messages::Done;
use types::messages::names::Accessed;

use crate::kv::Txn;

/// A time that somebody has set since, or a later access, stays as it is.
pub(crate) fn accessed(txn: &mut Txn<'_>, request: &Accessed) -> Result<Done, Refusal> {
    txn.geometry(request.volume)?;
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
