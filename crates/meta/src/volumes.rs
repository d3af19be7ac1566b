//! Volumes are made, deleted, and removed piece by piece.

use types::messages::cluster::{VolumeCreate, VolumeInfo};
use types::{Refusal, VolumeId};

use crate::keys;
use crate::kv::Writes;
use crate::ops;
use crate::records::from_value;
use crate::state::{Change, State};

impl State {
    pub(crate) fn volume_create(&mut self, request: &VolumeCreate, wall: u64) -> Result<VolumeInfo, Refusal> {
        let last = self.store.get(&keys::volume_counter(), from_value::<u32>);
        let last = last.map_err(|_| Refusal::MetaFailed)?.0.transpose()?.unwrap_or(0);
        let (volume, writes) = self.cluster.create_volume(request, VolumeId(last + 1), wall)?;
        self.commit_or_fail(writes)?;
        self.live.volumes = self.cluster.geometries();
        Ok(volume)
    }

    /// Takes a volume away; [`State::sweep_volume`] then removes what is in it.
    pub(crate) fn volume_delete(&mut self, name: &str) -> Result<(), Refusal> {
        let volume = self.cluster.map().volume_named(name).ok_or(Refusal::Unknown)?.id;
        if self.sessions.mounted(volume) {
            return Err(Refusal::Busy);
        }
        let (_, writes) = self.cluster.delete_volume(name)?;
        self.commit_or_fail(writes)?;
        self.live.volumes = self.cluster.geometries();
        Ok(())
    }

    /// Removes a part of what is left of a deleted volume. False when nothing but purges is left.
    pub(crate) fn sweep_volume(&mut self, volume: VolumeId) -> Result<bool, Refusal> {
        let Some(geometry) = self.cluster.deleted_geometry(volume) else { return Ok(false) };
        self.live.orphans.retain(|place| place.0 != volume);
        self.live.growth.retain(|place, _| place.0 != volume);
        let change = Change::again(move |txn| ops::sweep(txn, volume, geometry));
        let answer = self.run_batch(vec![change]).pop().expect("a batch of one has one answer")?;
        types::wire::from_bytes(&answer).map_err(|_| Refusal::MetaFailed)
    }

    /// Forgets a deleted volume of which nothing is left. False if there is something.
    pub(crate) fn forget_if_empty(&mut self, volume: VolumeId) -> Result<bool, Refusal> {
        let prefix = keys::all::purges_of(volume);
        let left = self.read(|txn| txn.range(&prefix, &keys::after_all(&prefix), 1))?;
        if !left.is_empty() {
            return Ok(false);
        }
        let writes = self.cluster.forget_volume(volume);
        self.commit_or_fail(writes)?;
        Ok(true)
    }

    pub(crate) fn commit_or_fail(&mut self, writes: Writes) -> Result<(), Refusal> {
        if self.commit(writes) { Ok(()) } else { Err(Refusal::MetaFailed) }
    }
}
