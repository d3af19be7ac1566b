//! The configuration that a slot has promised last, and what it promises to a restored metadata service.

use types::messages::recovery::HeldGroup;
use types::wire::Last;
use types::{Epoch, GroupId, ShardId};

use super::{SlotCore, SlotGroup, Stamp};
use crate::record::Configured;

impl SlotCore {
    /// Promises the epoch of a configuration, and keeps the configuration.
    pub(crate) fn apply_configured(&mut self, configured: &Configured, stamp: Stamp) {
        let Configured { group: id, config: Last(config) } = configured;
        // A replay may find the copy that was written for a snapshot, and before it a newer promise of an older build.
        if config.epoch < self.promised(*id) {
            return;
        }
        self.apply_promise(*id, config.epoch, stamp);
        if let Some(group) = self.groups.get_mut(id) {
            group.config = Some(config.clone());
        }
    }

    /// Promises to accept no take-over of an epoch below `floor`.
    pub(crate) fn apply_floor(&mut self, id: GroupId, floor: Epoch, stamp: Stamp) {
        let group = self.groups.entry(id).or_insert_with(|| SlotGroup::new(stamp.serial));
        group.floor = group.floor.max(floor);
    }

    /// Forgets which objects were dropped.
    pub(crate) fn apply_undrop(&mut self) {
        self.dropped.clear();
        self.dropped_order.clear();
    }

    /// Whether any object counts as dropped.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The shards of whose groups this brick has held anything.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> {
        types::cost::walked(&self.groups).map(|(id, _)| id.volume.shard())
    }

    /// What was promised last of a group, and its floor; `None` if nothing ever was.
    pub(crate) fn held_group(&self, id: GroupId) -> Option<HeldGroup> {
        let SlotGroup { promised, config, floor, .. } = self.groups.get(&id)?;
        // An older build may have promised more since.
        let config = config.clone().filter(|config| config.epoch == *promised);
        Some(HeldGroup { group: id, promised: *promised, config, floor: *floor })
    }

    /// The least epoch that may still be promised for a group.
    pub(crate) fn floor(&self, id: GroupId) -> Epoch {
        self.groups.get(&id).map_or(Epoch(0), |group| group.floor)
    }
}
