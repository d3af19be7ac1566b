//! Which clients leave sizes with the bricks (`docs/decisions/0042-sizes-noted-by-bricks.md`).
//!
//! A client that has a file open alone may ask that its later `fsync`s need not wait for this service. From then on the bricks
//! may know of stable bytes of which the service does not. The store says so for each such file: if the client is lost, the
//! bricks are asked before anybody else opens the file, also by the next service.
//!
//! ```text
//! UpdateSizes (noting) ──▶ kept ──(closed; removed)──▶ gone
//!                           └──(the client is lost, fenced, torn down)──▶ unsettled: the file stays open ──(notes stored)──▶ gone
//! ```

use std::collections::{BTreeMap, BTreeSet};

use types::{ClientId, InodeId, VolumeId};

use crate::volume_inode::VolumeInode;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    by_place: BTreeMap<VolumeInode, ClientId>,
    by_client: BTreeMap<ClientId, BTreeSet<VolumeInode>>,
    /// Clients that are being torn down.
    leaving: BTreeSet<ClientId>,
    /// Files whose client has not told since the start of the service what it has noted: their sizes may be greater.
    unknown: BTreeSet<VolumeInode>,
}

impl Noting {
    /// Reads it from the store: the client may have noted anything.
    pub(crate) fn load(&mut self, place: VolumeInode, client: ClientId) {
        self.insert(place, client);
        self.unknown.insert(place);
    }

    pub(crate) fn insert(&mut self, place: VolumeInode, client: ClientId) {
        self.remove(place);
        self.by_place.insert(place, client);
        self.by_client.entry(client).or_default().insert(place);
    }

    pub(crate) fn remove(&mut self, place: VolumeInode) {
        let Some(client) = self.by_place.remove(&place) else { return };
        self.unknown.remove(&place);
        if let Some(places) = self.by_client.get_mut(&client) {
            places.remove(&place);
            if places.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }

    /// Who leaves the sizes of a file with the bricks.
    pub(crate) fn of(&self, place: VolumeInode) -> Option<ClientId> {
        self.by_place.get(&place).copied()
    }

    /// The files of a client.
    pub(crate) fn places(&self, client: ClientId) -> impl Iterator<Item = VolumeInode> + '_ {
        self.by_client.get(&client).into_iter().flatten().copied()
    }

    /// Number of files of a client.
    pub(crate) fn count(&self, client: ClientId) -> usize {
        self.by_client.get(&client).map_or(0, BTreeSet::len)
    }

    /// All clients.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.by_client.keys().copied()
    }

    /// The teardown of a client has begun, or has closed all files but those whose sizes it may have noted.
    pub(crate) fn set_leaving(&mut self, client: ClientId, leaves: bool) {
        if leaves {
            self.leaving.insert(client);
        } else {
            self.leaving.remove(&client);
        }
    }

    /// Whether a client is being torn down.
    pub(crate) fn is_leaving(&self, client: ClientId) -> bool {
        self.leaving.contains(&client)
    }

    /// A client has told what it has noted.
    pub(crate) fn has_told(&mut self, client: ClientId) {
        let Noting { by_client, unknown, .. } = self;
        for place in by_client.get(&client).into_iter().flatten() {
            unknown.remove(place);
        }
    }

    /// Whether some file of a volume may be longer than the service can know.
    pub(crate) fn is_any_unknown(&self, volume: VolumeId) -> bool {
        self.unknown.range((volume, InodeId(0))..=(volume, InodeId(u64::MAX))).next().is_some()
    }

    /// Whether a file may be longer than the service can know.
    pub(crate) fn is_unknown(&self, place: VolumeInode) -> bool {
        self.unknown.contains(&place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_client_and_is_known_again_when_that_one_is_back() {
        let (volume, a, b) = (VolumeId(1), ClientId(3), ClientId(4));
        let (one, two) = ((volume, InodeId(7)), (volume, InodeId(8)));
        let mut noting = Noting::default();
        noting.load(one, a);
        noting.load(two, b);
        assert!(noting.is_unknown(one) && noting.is_unknown(two));
        noting.has_told(a);
        assert!(!noting.is_unknown(one) && noting.is_unknown(two));
        noting.insert(two, a);
        assert!(!noting.is_unknown(two), "another client has it alone: the first one's notes were stored");
        assert_eq!((noting.count(a), noting.count(b)), (2, 0));
        noting.remove(one);
        noting.remove(one);
        assert_eq!((noting.of(one), noting.of(two)), (None, Some(a)));
        assert_eq!(noting.places(a).collect::<Vec<_>>(), [two]);
        assert_eq!(noting.clients().collect::<Vec<_>>(), [a]);
    }
}
