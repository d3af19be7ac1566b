//! Repairs what a check of the names has found, if it is still so.

use types::limits::NAME_MAX;
use types::messages::names::{FileKind, Owner};
use types::messages::replica::{Adopt, MetaPatch, MetaRepair, MetaRepaired, PurgeObject};
use types::{ClientId, InodeId, ObjectId, Refusal, VolumeId};

use crate::ids_end;
use crate::keys::{self, NameKey};
use crate::kv::Txn;
use crate::records::{Entry, Inode, Listed, from_value};
use crate::tree::Directory;
use crate::volatile::Effect;

/// The directory in a volume's root for inodes that have lost their names, as on other file systems.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Most values that a repair replaces, and most bytes of one of them. A repair must fit into one record.
const PATCHES_MAX: usize = 8;
const VALUE_MAX: usize = 16 << 10;

/// Makes all of a repair, or nothing if a value is another one than the check has seen.
pub(crate) fn repair(txn: &mut Txn<'_>, request: &MetaRepair) -> Result<MetaRepaired, Refusal> {
    let last: u64 = txn.get(&keys::id_counter())?.unwrap_or(InodeId::ROOT.0);
    let ids_end = ClientId(last).shard().numbers().end;
    if request.patches.len() > PATCHES_MAX || request.ids_up_to >= ids_end {
        return Err(Refusal::Invalid);
    }
    let patched = request.patches.iter().filter_map(|patch| keys::volume_and_number(&patch.key));
    let named = [
        request.inodes.as_ref().map(|change| change.volume),
        request.adopt.as_ref().map(|adopt| adopt.volume),
        request.purge.as_ref().map(|purge| purge.volume),
    ];
    let mut volumes = patched.map(|(volume, _)| volume).chain(named.into_iter().flatten());
    if volumes.any(|volume| txn.table(volume).is_err()) {
        return Ok(MetaRepaired { is_done: false });
    }
    for patch in &request.patches {
        check_patch(patch)?;
        if txn.get_bytes(&patch.key)? != patch.expected {
            return Ok(MetaRepaired { is_done: false });
        }
    }
    if let Some(PurgeObject { volume, object }) = request.purge {
        if may_be_named(txn, volume, object)? {
            return Ok(MetaRepaired { is_done: false });
        }
        if !txn.has(&keys::purge(volume, object))? {
            txn.purge(volume, object);
        }
    }
    for patch in &request.patches {
        match (&patch.value, keys::name_key(&patch.key)) {
            (Some(value), _) => txn.put_bytes(patch.key.clone(), value.clone()),
            (None, Some(NameKey::Orphan(place))) => {
                txn.remove(patch.key.clone());
                txn.effect(Effect::Adopted(place));
            }
            (None, Some(NameKey::Purge(..))) => {
                txn.remove(patch.key.clone());
                txn.effect(Effect::PurgesDone(1));
            }
            (None, _) => txn.remove(patch.key.clone()),
        }
    }
    if let Some(change) = &request.inodes {
        txn.count_inodes(change.volume, change.by)?;
    }
    if request.ids_up_to > last {
        txn.put(keys::id_counter(), &request.ids_up_to);
    }
    if let Some(adopt) = &request.adopt {
        give_name(txn, adopt)?;
    }
    Ok(MetaRepaired { is_done: true })
}

/// Whether an object is one that was not given to anybody yet, or that of the inode with its number. (A check has looked at all
/// inodes. An object that no inode had then gets none.)
fn may_be_named(txn: &Txn<'_>, volume: VolumeId, object: ObjectId) -> Result<bool, Refusal> {
    let last: u64 = txn.get(&keys::id_counter())?.unwrap_or(0);
    let inode: Option<Inode> = txn.get(&keys::inode(volume, InodeId(object.number())))?;
    Ok(object.number() > last || inode.is_some_and(|inode| inode.object == object))
}

/// Refuses patches of anything but names, and values that nobody could read.
fn check_patch(patch: &MetaPatch) -> Result<(), Refusal> {
    let value = patch.value.as_deref();
    let is_readable = match (keys::name_key(&patch.key), value) {
        (None, _) => false,
        (Some(NameKey::Inode((volume, inode))), Some(_)) if inode.0 >= ids_end(volume) => false,
        (Some(NameKey::Entry(_, name)), _) if name.len() > NAME_MAX => false,
        (_, Some(value)) if value.len() > VALUE_MAX => false,
        (_, None) => true,
        (Some(NameKey::Inode(_)), Some(value)) => from_value::<Inode>(value).is_ok(),
        (Some(NameKey::Entry(..)), Some(value)) => from_value::<Entry>(value).is_ok(),
        (Some(NameKey::Listed(..)), Some(value)) => from_value::<Listed>(value).is_ok(),
        // Nothing that is removed, or will be, is made by a repair.
        (Some(NameKey::Orphan(_) | NameKey::Purge(..)), Some(_)) => false,
    };
    if is_readable { Ok(()) } else { Err(Refusal::Invalid) }
}

/// Gives an inode without names one in `lost+found`.
fn give_name(txn: &mut Txn<'_>, adopt: &Adopt) -> Result<(), Refusal> {
    let place = (adopt.volume, adopt.inode);
    txn.check_not_a_disk(adopt.volume)?;
    let mut inode = txn.inode(place)?;
    let mut home = lost_and_found(txn, adopt)?;
    let name = format!("#{}", adopt.inode.0).into_bytes();
    if txn.entry(&home, &name)?.is_some() {
        return Err(Refusal::Exists);
    }
    txn.add_entry(&mut home, &name, adopt.inode, None);
    if inode.is_directory() {
        inode.parent = home.place.1;
        home.inode.links += 1;
    }
    inode.ctime = adopt.now;
    home.inode.touch(adopt.now);
    txn.put_directory(&home);
    txn.put_inode(place, &inode);
    Ok(())
}

/// The directory for lost inodes; it is made if it is not there.
fn lost_and_found(txn: &mut Txn<'_>, adopt: &Adopt) -> Result<Directory, Refusal> {
    let root = txn.directory((adopt.volume, InodeId::ROOT))?;
    let mut name = LOST_AND_FOUND.to_vec();
    // Somebody may have given this name to something else.
    for number in 1..=9u8 {
        let Some(entry) = txn.entry(&root, &name)? else {
            return make_directory(txn, root, &name, adopt.now);
        };
        let found = txn.inode((adopt.volume, entry.inode));
        if found.is_ok_and(|inode| inode.is_directory()) && entry.inode != adopt.inode {
            return txn.directory((adopt.volume, entry.inode));
        }
        name = [LOST_AND_FOUND, b".", &[b'0' + number]].concat();
    }
    Err(Refusal::Exists)
}

fn make_directory(
    txn: &mut Txn<'_>,
    mut root: Directory,
    name: &[u8],
    now: i64,
) -> Result<Directory, Refusal> {
    let id = InodeId(txn.new_id()?);
    if txn.has(&keys::inode(root.place.0, id))? {
        // The counter of ids is damaged; that is to be repaired first.
        return Err(Refusal::Exists);
    }
    let mut inode = Inode::new(FileKind::Directory, &Owner { uid: 0, gid: 0, mode: 0o700 }, now);
    inode.parent = InodeId::ROOT;
    root.inode.links += 1;
    let place = super::create::add_inode(txn, &mut root, name, id, &inode, now)?;
    Ok(Directory { place, inode })
}
