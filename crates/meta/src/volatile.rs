//! The state that is only in memory: volumes in use, unstable sizes, open files.
//!
//! After a restart it is rebuilt: the volumes from the store, the rest from the clients.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::names::Attr;
use types::{ClientId, VolumeId};

use crate::noting::Noting;
use crate::opens::OpenTable;
use crate::records::Inode;
use crate::truncations::Truncations;
use crate::volume_inode::VolumeInode;

/// Growth of a file that is not yet stable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    pub(crate) client: ClientId,
    /// The file's count of truncations at the time.
    pub(crate) truncate_seq: u64,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
}

/// A change of this state, made when its operation is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// A file has grown; the bytes are unstable.
    Grown(VolumeInode, Growth),
    /// Unstable growth of a file has become stable, or was truncated.
    Settled(VolumeInode),
    /// An inode without names is kept because it may be open.
    Orphaned(VolumeInode),
    /// It has a name after all.
    Adopted(VolumeInode),
    /// An inode is gone.
    Gone(VolumeInode),
    /// An object waits to be purged.
    PurgeAdded,
    /// Objects have been purged.
    PurgesDone(u64),
    /// All files of a volume count as changed, for the time with this number.
    AllChanged(VolumeId, u64),
    /// A client has a new file open for writing.
    Opened(VolumeInode, ClientId),
    /// A client leaves the sizes of a file with the bricks.
    Noting(VolumeInode, ClientId),
    /// It does so no more.
    NotingEnded(VolumeInode),
}

/// What operations on names need to know of a volume's table of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VolumeTable {
    pub(crate) tiers: u8,
    /// Groups of the first tier.
    pub(crate) first_groups: u32,
    /// New files begin near their writers.
    pub(crate) near_writer: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct VolatileState {
    /// The volumes in use.
    pub(crate) volumes: BTreeMap<VolumeId, VolumeTable>,
    /// The block volumes: nothing in them is made, moved, removed or truncated.
    pub(crate) disks: BTreeSet<VolumeId>,
    /// How often all files of a volume have counted as changed. Added to the `changes` that are told of each file.
    pub(crate) all_changed: BTreeMap<VolumeId, u64>,
    /// Growth that is not yet stable.
    pub(crate) growth: BTreeMap<VolumeInode, Growth>,
    /// Who leaves sizes with the bricks.
    pub(crate) noting: Noting,
    /// Who has what open.
    pub(crate) opens: OpenTable,
    /// Which clients are truncating or zeroing open files.
    pub(crate) truncations: Truncations,
    /// Inodes without names.
    pub(crate) orphans: BTreeSet<VolumeInode>,
    /// The service has just started and does not know all open files, so it keeps all inodes without names.
    pub(crate) in_grace: bool,
    /// Objects waiting to be purged.
    pub(crate) purges: u64,
    /// Some were added, and the purger has not been told.
    pub(crate) has_new_purges: bool,
}

impl VolatileState {
    /// Whether anybody may have an inode open.
    pub(crate) fn maybe_open(&self, place: VolumeInode) -> bool {
        self.in_grace || self.opens.is_open(place)
    }

    /// Unstable growth of a file since its last truncation.
    pub(crate) fn growth(&self, place: VolumeInode, inode: &Inode) -> Option<&Growth> {
        self.growth.get(&place).filter(|growth| growth.truncate_seq == inode.truncate_seq)
    }

    /// The size that everybody is shown.
    pub(crate) fn size(&self, place: VolumeInode, inode: &Inode) -> u64 {
        self.growth(place, inode).map_or(inode.size, |growth| growth.size.max(inode.size))
    }

    /// The durable attributes. `changes` only grows: so a client to which the same number is told again has the same
    /// contents.
    pub(crate) fn durable_attr(&self, place: VolumeInode, inode: &Inode) -> Attr {
        let mut attr = inode.attr(place.1);
        if inode.is_file() {
            attr.changes += self.all_changed.get(&place.0).copied().unwrap_or(0);
        }
        attr
    }

    /// The attributes that everybody is shown.
    pub(crate) fn attr(&self, place: VolumeInode, inode: &Inode) -> Attr {
        let mut attr = self.durable_attr(place, inode);
        if let Some(growth) = self.growth(place, inode) {
            attr.size = attr.size.max(growth.size);
            // A time that was set after the growth counts.
            if growth.mtime > inode.timed {
                attr.mtime = growth.mtime;
                attr.ctime = attr.ctime.max(growth.mtime);
            }
        }
        attr
    }

    pub(crate) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Grown(place, growth) => self.grow(place, growth),
            Effect::Settled(place) => drop(self.growth.remove(&place)),
            Effect::Orphaned(place) => drop(self.orphans.insert(place)),
            Effect::Adopted(place) => drop(self.orphans.remove(&place)),
            Effect::Gone(place) => {
                self.orphans.remove(&place);
                self.growth.remove(&place);
                self.noting.remove(place);
            }
            Effect::PurgeAdded => {
                self.purges += 1;
                self.has_new_purges = true;
            }
            Effect::PurgesDone(count) => self.purges = self.purges.saturating_sub(count),
            Effect::AllChanged(volume, count) => drop(self.all_changed.insert(volume, count)),
            Effect::Opened(place, client) => self.opens.open_new(place, client),
            Effect::Noting(place, client) => self.noting.insert(place, client),
            Effect::NotingEnded(place) => self.noting.remove(place),
        }
    }

    fn grow(&mut self, place: VolumeInode, growth: Growth) {
        match self.growth.get_mut(&place).filter(|known| known.truncate_seq == growth.truncate_seq) {
            Some(known) => {
                known.client = growth.client;
                known.size = known.size.max(growth.size);
                known.mtime = known.mtime.max(growth.mtime);
            }
            None => drop(self.growth.insert(place, growth)),
        }
    }
}
