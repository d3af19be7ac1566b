//! Bricks: who serves one, and what its coming and going does to the groups.
//!
//! | event | brick | groups |
//! |---|---|---|
//! | joins for the first time | added, Up | |
//! | joins again, another life from the same address | Up | where it is primary: epoch + 1 |
//! | joins again, another life from elsewhere | refused while the old life has its lease, then as above | |
//! | joins again, the same life | lease renewed; Up if it was Out | if it was Out and is primary: epoch + 1 |
//! | silent for its lease and the margin | Out | where it is live: slot Out, epoch + 1, if K slots stay live |
//! | primary asks for a new epoch | | epoch + 1 if its epoch is still the one it names |
//! | primary has brought a slot level | | slot Live, epoch + 1, if its epoch is still the one it names |
//! | another takes its place for good | | its slots are the other's, Out, epoch + 1: `replace.rs` |
//!
//! A slot that is Out has missed writes. Its brick may come back at any time; the slot is Live again only when the
//! primary says that it has everything.

use types::limits::{ADDRESS_MAX, BRICKS_MAX, LEASE_MARGIN_US, LEASE_US};
use types::messages::cluster::{
    BrickHeartbeat, BrickInfo, BrickJoin, BrickState, GroupAdmit, GroupConfig, GroupRenew, SlotState,
    VolumeInfo,
};
use types::{BrickId, GroupId, Refusal};

use super::map::{BrickInstance, Cluster};
use super::map_updates::Changed;
use crate::kv::Writes;

impl Cluster {
    /// A brick's server has started.
    pub(crate) fn join(&mut self, request: &BrickJoin, now: u64) -> Result<Writes, Refusal> {
        if request.address.len() > ADDRESS_MAX {
            return Err(Refusal::Invalid);
        }
        let known = self.instances.get(&request.brick);
        let old = self.map.brick(request.brick);
        if let (Some(instance), Some(old)) = (known, old) {
            if instance.device != request.device {
                return Err(Refusal::Exists);
            }
            let other = instance.incarnation != request.incarnation;
            if other
                && old.state == BrickState::Up
                && old.address != request.address
                && !expired(instance, now)
            {
                return Err(Refusal::ServedTwice);
            }
            let moved = old.address != request.address || old.capacity != request.capacity;
            if !other && old.state == BrickState::Up && !moved {
                self.hear(request.brick, request.free, now);
                return Ok(Writes::new());
            }
        } else if self.map.bricks.len() >= BRICKS_MAX {
            return Err(Refusal::TooMany);
        }

        self.put_brick(request, now);
        let mut writes = Writes::new();
        self.write_brick(request.brick, &mut writes);
        let mut changed = self.renew_groups_of(request.brick, &mut writes);
        changed.push(Changed::Brick(request.brick));
        self.publish(changed, &mut writes);
        Ok(writes)
    }

    fn put_brick(&mut self, request: &BrickJoin, now: u64) {
        let BrickJoin { brick: id, device, node, ref address, capacity, free, incarnation } = *request;
        self.instances.insert(id, BrickInstance { incarnation, device, heard: now });
        let info = BrickInfo { id, node, address: address.clone(), capacity, free, state: BrickState::Up };
        match self.map.bricks.binary_search_by_key(&id, |brick| brick.id) {
            Ok(at) => self.map.bricks[at] = info,
            Err(at) => self.map.bricks.insert(at, info),
        }
    }

    /// A new epoch for every group whose primary a brick is; which they are.
    fn renew_groups_of(&mut self, brick: BrickId, writes: &mut Writes) -> Vec<Changed> {
        let mut changed = Vec::new();
        for volume in &mut self.map.volumes {
            let (code, before) = (volume.geometry.code(), changed.len());
            for (index, group) in (0..).zip(&mut volume.groups) {
                let primary = group.primary(code).and_then(|slot| group.slots.get(slot));
                if primary.is_some_and(|slot| slot.brick == brick) {
                    group.epoch = group.epoch.next();
                    changed.push(Changed::Group(GroupId { volume: volume.id, index }));
                }
            }
            if changed.len() > before {
                Cluster::write_volume(volume, writes);
            }
        }
        changed
    }

    /// A brick renews its lease.
    ///
    /// # Errors
    /// `ServedTwice`: another life serves the brick. `Unknown`: it was never here or its lease ran out; join again.
    pub(crate) fn beat(&mut self, request: &BrickHeartbeat, now: u64) -> Result<(), Refusal> {
        let instance = self.instances.get(&request.brick).ok_or(Refusal::Unknown)?;
        if instance.incarnation != request.incarnation {
            return Err(Refusal::ServedTwice);
        }
        if self.map.brick(request.brick).is_none_or(|brick| brick.state != BrickState::Up) {
            return Err(Refusal::Unknown);
        }
        self.hear(request.brick, request.free, now);
        Ok(())
    }

    fn hear(&mut self, brick: BrickId, free: u64, now: u64) {
        if let Some(instance) = self.instances.get_mut(&brick) {
            instance.heard = now;
        }
        if let Ok(at) = self.map.bricks.binary_search_by_key(&brick, |brick| brick.id) {
            self.map.bricks[at].free = free;
        }
    }

    /// A group's primary asks for a new epoch with the same slots.
    pub(crate) fn renew(&mut self, request: &GroupRenew) -> Result<Writes, Refusal> {
        let (volume, group) = self.map.group(request.group).ok_or(Refusal::Unknown)?;
        if group.epoch != request.epoch {
            return Ok(Writes::new());
        }
        led_by(volume, group, request.brick)?;
        self.change_group(request.group, |_| ())
    }

    /// A group's primary has brought a slot level: it is live from the next epoch on. Nothing else changes with it;
    /// a slot that is to be expelled is so in another epoch.
    ///
    /// # Errors
    /// See [`GroupAdmit`].
    pub(crate) fn admit(&mut self, request: &GroupAdmit, now: u64) -> Result<Writes, Refusal> {
        let (volume, group) = self.map.group(request.group).ok_or(Refusal::Unknown)?;
        let at = usize::from(request.slot);
        let slot = group.slots.get(at).ok_or(Refusal::Invalid)?;
        let live = slot.state == SlotState::Live;
        if group.epoch != request.epoch {
            let done = live && group.epoch > request.epoch;
            return if done { Ok(Writes::new()) } else { Err(Refusal::StaleEpoch) };
        }
        led_by(volume, group, request.brick)?;
        if live {
            return Err(Refusal::Invalid);
        }
        if !self.has_lease(request.brick, now) {
            return Err(Refusal::NotServing);
        }
        if !self.has_lease(slot.brick, now) {
            return Err(Refusal::NotUp);
        }
        self.change_group(request.group, |group| group.slots[at].state = SlotState::Live)
    }

    /// Changes a group's configuration, which gets its next epoch.
    fn change_group(
        &mut self,
        id: GroupId,
        change: impl FnOnce(&mut GroupConfig),
    ) -> Result<Writes, Refusal> {
        let mut writes = Writes::new();
        let volume = self.map.volumes.iter_mut().find(|volume| volume.id == id.volume);
        let volume = volume.ok_or(Refusal::Unknown)?;
        let group = volume.groups.get_mut(id.index as usize).ok_or(Refusal::Unknown)?;
        change(group);
        group.epoch = group.epoch.next();
        Cluster::write_volume(volume, &mut writes);
        self.publish([Changed::Group(id)], &mut writes);
        Ok(writes)
    }

    /// Whether a brick is Up and its lease has not run out.
    pub(super) fn has_lease(&self, brick: BrickId, now: u64) -> bool {
        self.map.brick(brick).is_some_and(|brick| brick.state == BrickState::Up)
            && self.instances.get(&brick).is_some_and(|instance| !expired(instance, now))
    }

    /// Counts every lease from `us` later than it was heard.
    pub(crate) fn extend_leases(&mut self, us: u64) {
        self.instances.values_mut().for_each(|instance| instance.heard += us);
    }

    /// Expels the bricks whose leases have run out.
    pub(crate) fn expire(&mut self, now: u64) -> Writes {
        let mut writes = Writes::new();
        let silent: Vec<BrickId> = self
            .map
            .bricks
            .iter()
            .filter(|brick| brick.state == BrickState::Up)
            .filter(|brick| self.instances.get(&brick.id).is_some_and(|instance| expired(instance, now)))
            .map(|brick| brick.id)
            .collect();
        for brick in &silent {
            if let Ok(at) = self.map.bricks.binary_search_by_key(brick, |brick| brick.id) {
                self.map.bricks[at].state = BrickState::Out;
            }
            self.write_brick(*brick, &mut writes);
        }
        let mut changed: Vec<Changed> = silent.iter().map(|brick| Changed::Brick(*brick)).collect();
        for volume in &mut self.map.volumes {
            let before = changed.len();
            silent.iter().for_each(|brick| changed.extend(expel(volume, *brick)));
            if changed.len() > before {
                Cluster::write_volume(volume, &mut writes);
            }
        }
        if !silent.is_empty() {
            self.publish(changed, &mut writes);
        }
        writes
    }
}

/// Refuses who is not the group's primary.
fn led_by(volume: &VolumeInfo, group: &GroupConfig, brick: BrickId) -> Result<(), Refusal> {
    let primary = group.primary(volume.geometry.code()).and_then(|slot| group.slots.get(slot));
    if primary.is_none_or(|slot| slot.brick != brick) {
        return Err(Refusal::NotPrimary);
    }
    Ok(())
}

/// Whether a life's lease has run out for certain.
fn expired(instance: &BrickInstance, now: u64) -> bool {
    now.saturating_sub(instance.heard) > LEASE_US + LEASE_MARGIN_US
}

/// Puts a brick's slots Out. The groups that it had live ones in.
fn expel(volume: &mut VolumeInfo, brick: BrickId) -> impl Iterator<Item = Changed> {
    let (least, volume, groups) = (volume.geometry.code().k(), volume.id, &mut volume.groups);
    (0..).zip(groups).filter_map(move |(index, group)| {
        expel_slot(group, brick, least).map(|()| Changed::Group(GroupId { volume, index }))
    })
}

/// A group that would be left with too few live slots keeps its configuration: it stops by itself.
fn expel_slot(group: &mut GroupConfig, brick: BrickId, least: usize) -> Option<()> {
    let live = group.live().count_ones() as usize;
    let at = group.slot_of(brick)?;
    let slot = group.slots.get_mut(at)?;
    (slot.state == SlotState::Live && live > least).then(|| {
        slot.state = SlotState::Out;
        group.epoch = group.epoch.next();
    })
}
