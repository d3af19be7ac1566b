//! Functions on inodes and entries that the operations on the name space share.

use types::limits::NAME_MAX;
use types::messages::names::{Attr, RESERVED_NAME};
use types::{InodeId, ObjectId, Refusal, VolumeId};

use crate::keys;
use crate::kv::Txn;
use crate::records::{Entry, Inode, Listed, OwnShard, ToPurge};
use crate::volatile::{Effect, VolumeTable};
use crate::volume_inode::VolumeInode;

/// Permission bit of a directory: new inodes in it get its group.
pub(crate) const SET_GROUP: u32 = 0o2000;

/// A directory that an operation looks into or changes.
pub(crate) struct Directory {
    pub(crate) place: VolumeInode,
    pub(crate) inode: Inode,
}

impl Directory {
    /// Its attributes. Unlike a file, a directory has no unstable size.
    pub(crate) fn attr(&self) -> Attr {
        self.inode.attr(self.place.1)
    }
}

/// Refuses an invalid name.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Refusal> {
    if name.len() > NAME_MAX {
        return Err(Refusal::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Refusal::Invalid);
    }
    Ok(())
}

/// Refuses to make a name that every mount shows as its own. Stores that older builds made may have it: it can be removed there,
/// and moved away.
pub(crate) fn check_not_reserved((_, directory): VolumeInode, name: &[u8]) -> Result<(), Refusal> {
    if directory == InodeId::ROOT && name == RESERVED_NAME { Err(Refusal::NotPermitted) } else { Ok(()) }
}

/// Refuses to remove or replace another inode than the one that the caller means. The caller must look up the name
/// again.
pub(crate) fn check_meant(meant: Option<InodeId>, found: Option<&Entry>) -> Result<(), Refusal> {
    let is_other = meant.is_some_and(|meant| found.is_none_or(|found| found.inode != meant));
    if is_other { Err(Refusal::Stale) } else { Ok(()) }
}

impl Txn<'_> {
    /// The table of groups of a volume that is in use.
    pub(crate) fn table(&self, volume: VolumeId) -> Result<VolumeTable, Refusal> {
        self.volatile().volumes.get(&volume).copied().ok_or(Refusal::Unknown)
    }

    /// An inode that must exist.
    pub(crate) fn inode(&self, (volume, inode): VolumeInode) -> Result<Inode, Refusal> {
        self.get(&keys::inode(volume, inode))?.ok_or(Refusal::Stale)
    }

    pub(crate) fn put_inode(&mut self, (volume, inode): VolumeInode, value: &Inode) {
        self.put(keys::inode(volume, inode), value);
    }

    /// The attributes that everybody is shown.
    pub(crate) fn attr(&self, place: VolumeInode, inode: &Inode) -> Attr {
        self.volatile().attr(place, inode)
    }

    /// The durable attributes of an inode.
    pub(crate) fn durable_attr(&self, place: VolumeInode, inode: &Inode) -> Attr {
        self.volatile().durable_attr(place, inode)
    }

    /// A directory that must exist.
    pub(crate) fn directory(&self, place: VolumeInode) -> Result<Directory, Refusal> {
        self.table(place.0)?;
        let inode = self.inode(place)?;
        if !inode.is_directory() {
            return Err(Refusal::NotDirectory);
        }
        Ok(Directory { place, inode })
    }

    /// A name's entry, if there is one.
    pub(crate) fn entry(&self, directory: &Directory, name: &[u8]) -> Result<Option<Entry>, Refusal> {
        let (volume, parent) = directory.place;
        self.get(&keys::entry(volume, parent, name))
    }

    /// A directory. `name` must be valid and not in use in it.
    pub(crate) fn vacant(&self, place: VolumeInode, name: &[u8]) -> Result<Directory, Refusal> {
        let directory = self.directory(place)?;
        self.check_not_a_disk(place.0)?;
        check_name(name)?;
        let (volume, parent) = place;
        check_not_reserved(place, name)?;
        if self.has(&keys::entry(volume, parent, name))? {
            return Err(Refusal::Exists);
        }
        Ok(directory)
    }

    /// Refuses to change the names of a block volume: it has its disk, and nothing else.
    pub(crate) fn check_not_a_disk(&self, volume: VolumeId) -> Result<(), Refusal> {
        if self.volatile().disks.contains(&volume) { Err(Refusal::NotPermitted) } else { Ok(()) }
    }

    /// A directory, and the entry and inode of a name in it that is about to change.
    pub(crate) fn named(
        &self,
        place: VolumeInode,
        name: &[u8],
    ) -> Result<(Directory, Entry, Inode), Refusal> {
        self.check_not_a_disk(place.0)?;
        self.find(place, name)
    }

    /// A directory, and the entry and inode of a name in it.
    pub(crate) fn find(&self, place: VolumeInode, name: &[u8]) -> Result<(Directory, Entry, Inode), Refusal> {
        let directory = self.directory(place)?;
        check_name(name)?;
        let entry = self.entry(&directory, name)?.ok_or(Refusal::NotFound)?;
        let inode = self.inode((place.0, entry.inode))?;
        Ok((directory, entry, inode))
    }

    /// A new id.
    pub(crate) fn new_id(&mut self) -> Result<u64, Refusal> {
        self.new_id_where(0, |_| true)
    }

    /// A new id such as `is_wanted` says, if one of the next `tries` is; otherwise any. Ids in between are never used.
    pub(crate) fn new_id_where(
        &mut self,
        tries: u32,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<u64, Refusal> {
        let key = keys::id_counter();
        let next = match self.get::<u64>(&key)? {
            Some(last) => last + 1,
            None => self.first_id()?,
        };
        let id = types::cost::walked(next..next + u64::from(tries)).find(|id| is_wanted(*id)).unwrap_or(next);
        self.put(key, &id);
        Ok(id)
    }

    /// The first id that is given out.
    fn first_id(&self) -> Result<u64, Refusal> {
        let own: Option<OwnShard> = self.get(&keys::own_shard())?;
        Ok(own.unwrap_or_default().shard.numbers().start + InodeId::ROOT.0 + 1)
    }

    pub(crate) fn count_inodes(&mut self, volume: VolumeId, change: i64) -> Result<(), Refusal> {
        let key = keys::usage(volume);
        let inodes = self.get::<u64>(&key)?.unwrap_or(0).saturating_add_signed(change);
        self.put(key, &inodes);
        Ok(())
    }

    /// Adds a name for `inode` at the end of the directory, or at a cookie that has become free in it. The caller puts
    /// the directory's inode.
    pub(crate) fn add_entry(
        &mut self,
        directory: &mut Directory,
        name: &[u8],
        inode: InodeId,
        cookie: Option<u64>,
    ) {
        let (volume, parent) = directory.place;
        let cookie = cookie.unwrap_or_else(|| {
            directory.inode.cookie_next += 1;
            directory.inode.cookie_next - 1
        });
        directory.inode.size += 1;
        self.put(keys::entry(volume, parent, name), &Entry { inode, cookie });
        self.put(keys::listed(volume, parent, cookie), &Listed { inode, name: name.to_vec() });
    }

    /// Removes a name. The caller puts the directory's inode.
    pub(crate) fn remove_entry(&mut self, directory: &mut Directory, name: &[u8], entry: &Entry) {
        let (volume, parent) = directory.place;
        directory.inode.size = directory.inode.size.saturating_sub(1);
        self.remove(keys::entry(volume, parent, name));
        self.remove(keys::listed(volume, parent, entry.cookie));
    }

    pub(crate) fn put_directory(&mut self, directory: &Directory) {
        self.put_inode(directory.place, &directory.inode);
    }

    /// Removes one link of an inode that is not a directory. With the last link the inode is removed, unless it may be
    /// open.
    pub(crate) fn drop_link(
        &mut self,
        place: VolumeInode,
        mut inode: Inode,
        now: i64,
    ) -> Result<(), Refusal> {
        inode.links = inode.links.saturating_sub(1);
        inode.ctime = now;
        if inode.links > 0 {
            self.put_inode(place, &inode);
            return Ok(());
        }
        if inode.is_file() && self.volatile().maybe_open(place) {
            self.put_inode(place, &inode);
            self.put_orphan(place);
            return Ok(());
        }
        self.forget_inode(place, &inode)
    }

    /// Records that an inode has no name and may be open.
    pub(crate) fn put_orphan(&mut self, place: VolumeInode) {
        self.put(keys::orphan(place.0, place.1), &[0; 0]);
        self.effect(Effect::Orphaned(place));
    }

    /// Removes an inode, and its bytes.
    pub(crate) fn forget_inode(&mut self, place: VolumeInode, inode: &Inode) -> Result<(), Refusal> {
        self.queue_purge(place, inode, 0)?;
        self.remove(keys::inode(place.0, place.1));
        if self.volatile().noting.of(place).is_some() {
            self.remove(keys::noting(place.0, place.1));
        }
        self.count_inodes(place.0, -1)?;
        self.effect(Effect::Gone(place));
        Ok(())
    }

    /// Queues a file's object to be purged, if it may have bytes. A client may have written bytes up to `sent_end` and
    /// not reported them.
    pub(crate) fn queue_purge(
        &mut self,
        place: VolumeInode,
        inode: &Inode,
        sent_end: u64,
    ) -> Result<(), Refusal> {
        let end = self.volatile().size(place, inode).max(inode.stale_end).max(sent_end);
        // A lost client may have written bytes and not reported any. Then the file counts as changed.
        let is_untouched = end == 0 && self.volatile().durable_attr(place, inode).changes == 0;
        if !inode.is_file() || is_untouched {
            return Ok(());
        }
        self.purge(place.0, inode.object);
        Ok(())
    }

    /// Queues an object to be purged.
    pub(crate) fn purge(&mut self, volume: VolumeId, object: ObjectId) {
        self.put(keys::purge(volume, object), &ToPurge {});
        self.effect(Effect::PurgeAdded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_or_refused_as_on_linux() {
        assert_eq!(check_name(&[b'a'; 255]), Ok(()));
        assert_eq!(check_name(&[b'a'; 256]), Err(Refusal::NameTooLong));
        assert_eq!(check_name("ü\n\x01".as_bytes()), Ok(()));
        assert_eq!(check_name(b"..."), Ok(()));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert_eq!(check_name(bad), Err(Refusal::Invalid));
        }
    }
}
