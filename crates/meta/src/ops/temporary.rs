//! Makes a file without a name, in a tier.

use types::messages::cluster::Mode;
use types::messages::names::{CreateTemporary, FileKind, Opened, Owner};
use types::{InodeId, ObjectId, Refusal};

use crate::kv::Txn;
use crate::records::Inode;
use crate::volatile::Effect;

/// The file lives as long as its client has it open: from the start it is what a removed file is that is still open.
pub(crate) fn create_temporary(txn: &mut Txn<'_>, request: &CreateTemporary) -> Result<Opened, Refusal> {
    txn.check_not_a_disk(request.volume)?;
    if request.tier >= txn.table(request.volume)?.tiers {
        return Err(Refusal::Invalid);
    }

    let id = txn.new_id()?;
    let place = (request.volume, InodeId(id));
    let owner = Owner { uid: 0, gid: 0, mode: 0o600 };
    let mut inode = Inode::new(FileKind::File, &owner, request.now);
    inode.links = 0;
    inode.object = ObjectId::in_tier(id, request.tier);
    txn.count_inodes(place.0, 1)?;
    txn.put_inode(place, &inode);
    txn.put_orphan(place);
    txn.effect(Effect::Opened(place, request.caller.client));
    Ok(Opened { attr: txn.durable_attr(place, &inode), mode: Mode::Alone })
}
