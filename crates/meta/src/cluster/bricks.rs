//! Bricks: which process serves a brick, and what happens to the groups when the brick joins or is lost.
//!
//! | event | brick | groups |
//! |---|---|---|
//! | joins for the first time | added, Up | |
//! | joins again, another life from the same address | Up | where it is primary: epoch + 1 |
//! | joins again, another life from elsewhere | refused while the old life has its lease, then as above | |
//! | an earlier life's join comes late, from the same address | Up | where it is primary: epoch + 1; the present life's heartbeat is refused, and it joins again |
//! | joins again, the same life | lease renewed; Up if it was Out | if it was Out and is primary: epoch + 1 |
//! | not reached by others | its lease is not renewed: `reports.rs` | |
//! | silent for its lease and the margin | Out | where it is live: slot Out, epoch + 1, if K slots stay live |
//! | primary asks for a new epoch | | epoch + 1 if the request names the current epoch |
//! | primary has brought a slot level | | slot Live, epoch + 1, if the request names the current epoch |
//! | another brick replaces it for good | | the other brick gets its slots, Out, epoch + 1: `replace.rs` |
//!
//! A slot that is Out has missed writes. Its brick may come back at any time; the slot is Live again only when the
//! primary says that it has everything.
//!
//! # Invariants
//! - A brick is put Out only when its lease has run out.
//! - A brick that is Out has no lease before it joins again.
//! - A brick stays on the device that it was on when it joined for the first time.
//! - A change that a primary requests for one epoch is made in that epoch or not at all.

use types::limits::{ADDRESS_MAX, BRICKS_MAX, LEASE_MARGIN_US, LEASE_US, RAILS_MAX};
use types::messages::cluster::{
    BrickHeartbeat, BrickInfo, BrickJoin, BrickState, GroupAdmit, GroupConfig, GroupRenew, SlotConfig,
    SlotState, Tier, VolumeInfo,
};
use types::{BrickId, Code, Epoch, GroupId, Incarnation, RAIL, Refusal};

use super::epochs::reconfigure;
use super::history::Changed;
use super::map::{BrickInstance, Cluster};
use super::shards::is_any;
use crate::kv::Writes;

/// In place of a life: after a restoration nobody knows which life serves a brick. It joins again.
pub(crate) const NO_LIFE: Incarnation = Incarnation(0);

impl Cluster {
    /// A brick's server has started.
    pub(crate) fn join(&mut self, request: &BrickJoin, now: u64) -> Result<Writes, Refusal> {
        if request.address.len() > ADDRESS_MAX || request.address.split(RAIL).count() > RAILS_MAX {
            return Err(Refusal::Invalid);
        }
        // Everybody else would call himself.
        if request.address.split(RAIL).any(is_any) {
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
                && !share_an_address(&old.address, &request.address)
                && !expired(instance, now)
            {
                return Err(Refusal::ServedTwice);
            }
            if !other && self.reports.is_held(request.brick) {
                self.reports.take(request.brick, &request.reach, now);
                if self.stays_held(request.brick, now) {
                    return Err(Refusal::Unreached);
                }
            }
            let moved = old.address != request.address || old.capacity != request.capacity;
            if !other && old.state == BrickState::Up && !moved {
                self.hear(request.brick, request.free, now);
                return Ok(Writes::new());
            }
        } else if self.map.bricks.len() >= BRICKS_MAX {
            return Err(Refusal::TooMany);
        }

        self.reports.forget(request.brick);
        self.put_brick(request, now);
        let mut writes = Writes::new();
        self.write_brick(request.brick, &mut writes);
        let mut changed = self.renew_groups_of(request.brick);
        changed.push(Changed::Brick(request.brick));
        self.publish(changed, &mut writes);
        Ok(writes)
    }

    fn put_brick(&mut self, request: &BrickJoin, now: u64) {
        let BrickJoin { brick: id, device, node, ref address, capacity, free, incarnation, class, .. } =
            *request;
        self.unheard.remove(&id);
        let before = self.instances.insert(id, BrickInstance { incarnation, device, heard: now });
        assert!(
            before.is_none_or(|before| before.device == device),
            "a device without the brick's bytes would serve as the brick"
        );
        let (address, state) = (address.clone(), BrickState::Up);
        let info = BrickInfo { id, node, address, capacity, free, state, class };
        match self.map.bricks.binary_search_by_key(&id, |brick| brick.id) {
            Ok(at) => self.map.bricks[at] = info,
            Err(at) => {
                assert!(
                    self.map.bricks.len() < BRICKS_MAX,
                    "the list of bricks would not fit into one map update"
                );
                self.map.bricks.insert(at, info);
            }
        }
    }

    /// Gives a new epoch to every group whose primary is `brick`. Returns these groups.
    fn renew_groups_of(&mut self, brick: BrickId) -> Vec<Changed> {
        let mut changed = Vec::new();
        for volume in &mut self.map.volumes {
            let codes = codes_of(volume);
            for ((index, group), code) in (0..).zip(&mut volume.groups).zip(codes) {
                let primary = group.primary(code).and_then(|slot| group.slots.get(slot));
                if primary.is_some_and(|slot| slot.brick == brick) {
                    reconfigure(group, code, |_| ());
                    changed.push(Changed::Group(GroupId { volume: volume.id, index }));
                }
            }
        }
        changed
    }

    /// Renews a brick's lease.
    ///
    /// # Errors
    /// `ServedTwice`: another life serves the brick. `Unknown`: the brick never joined or its lease has run out; it
    /// must join again. `Unreached`: others cannot reach it; its lease is not renewed.
    pub(crate) fn beat(&mut self, request: &BrickHeartbeat, now: u64) -> Result<(), Refusal> {
        let instance = self.instances.get(&request.brick).ok_or(Refusal::Unknown)?;
        if instance.incarnation != request.incarnation && instance.incarnation != NO_LIFE {
            return Err(Refusal::ServedTwice);
        }
        if self.map.brick(request.brick).is_none_or(|brick| brick.state != BrickState::Up) {
            return Err(Refusal::Unknown);
        }
        self.reports.take(request.brick, &request.reach, now);
        if self.reports.is_held(request.brick) {
            return Err(Refusal::Unreached);
        }
        self.hear(request.brick, request.free, now);
        Ok(())
    }

    fn hear(&mut self, brick: BrickId, free: u64, now: u64) {
        if let Some(instance) = self.instances.get_mut(&brick) {
            instance.heard = now;
        }
        if let Ok(at) = self.map.bricks.binary_search_by_key(&brick, |brick| brick.id) {
            let info = &mut self.map.bricks[at];
            assert_eq!(
                info.state,
                BrickState::Up,
                "a brick would serve without knowing that it missed writes"
            );
            info.free = free;
        }
    }

    /// Gives a group a new epoch with the same slots, at the request of its primary.
    pub(crate) fn renew(&mut self, request: &GroupRenew) -> Result<Writes, Refusal> {
        let (volume, group) = self.map.group(request.group).ok_or(Refusal::Unknown)?;
        if group.epoch != request.epoch {
            return Ok(Writes::new());
        }
        led_by(volume.code_of(request.group.index), group, request.brick)?;
        self.change_group(request.group, request.epoch, |_| ())
    }

    /// Makes a slot live in the next epoch: the group's primary has brought it level. An epoch that admits a slot
    /// expels none.
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
        led_by(volume.code_of(request.group.index), group, request.brick)?;
        if live {
            return Err(Refusal::Invalid);
        }
        if !self.has_lease(request.brick, now) {
            return Err(Refusal::NotServing);
        }
        if !self.has_lease(slot.brick, now) {
            return Err(Refusal::NotUp);
        }
        self.change_group(request.group, request.epoch, |slots| slots[at].state = SlotState::Live)
    }

    /// Changes the configuration of a group from that of epoch `from` to that of the next epoch.
    fn change_group(
        &mut self,
        id: GroupId,
        from: Epoch,
        change: impl FnOnce(&mut [SlotConfig]),
    ) -> Result<Writes, Refusal> {
        let mut writes = Writes::new();
        let volume = self.map.volumes.iter_mut().find(|volume| volume.id == id.volume);
        let volume = volume.ok_or(Refusal::Unknown)?;
        let code = volume.code_of(id.index);
        let group = volume.groups.get_mut(id.index as usize).ok_or(Refusal::Unknown)?;
        assert_eq!(group.epoch, from, "a newer decision about the group would be silently undone");
        reconfigure(group, code, change);
        self.publish([Changed::Group(id)], &mut writes);
        Ok(writes)
    }

    /// Whether a brick is Up and its lease has not run out.
    pub(super) fn has_lease(&self, brick: BrickId, now: u64) -> bool {
        self.map.brick(brick).is_some_and(|brick| brick.state == BrickState::Up)
            && self.instances.get(&brick).is_some_and(|instance| !expired(instance, now))
    }

    /// Extends every lease by `us`, and reports as long: a lease that is extended here is not one that a brick has renewed.
    pub(crate) fn extend_leases(&mut self, us: u64) {
        self.instances.values_mut().for_each(|instance| instance.heard += us);
        self.reports.extend(us);
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
            assert!(
                !self.has_lease(*brick, now),
                "the brick would go on answering reads while writes are acknowledged without it"
            );
            if let Ok(at) = self.map.bricks.binary_search_by_key(brick, |brick| brick.id) {
                self.map.bricks[at].state = BrickState::Out;
            }
            self.write_brick(*brick, &mut writes);
        }
        let mut changed: Vec<Changed> = silent.iter().map(|brick| Changed::Brick(*brick)).collect();
        for volume in &mut self.map.volumes {
            silent.iter().for_each(|brick| changed.extend(expel(volume, *brick)));
        }
        if !silent.is_empty() {
            self.publish(changed, &mut writes);
        }
        writes
    }
}

/// Refuses a brick that is not the group's primary.
fn led_by(code: Code, group: &GroupConfig, brick: BrickId) -> Result<(), Refusal> {
    let primary = group.primary(code).and_then(|slot| group.slots.get(slot));
    if primary.is_none_or(|slot| slot.brick != brick) {
        return Err(Refusal::NotPrimary);
    }
    Ok(())
}

/// The code of each group of a volume, in the order of its table.
pub(super) fn codes_of(volume: &VolumeInfo) -> impl Iterator<Item = Code> + use<> {
    let tiers: Vec<Tier> = volume.all_tiers().collect();
    tiers.into_iter().flat_map(|tier| tier.groups.map(move |_| tier.geometry.code()))
}

/// Whether one of several addresses is the same: then both are of one machine.
fn share_an_address(one: &str, other: &str) -> bool {
    one.split(RAIL).any(|rail| other.split(RAIL).any(|address| address == rail))
}

/// Whether a life's lease has certainly run out.
fn expired(instance: &BrickInstance, now: u64) -> bool {
    now.saturating_sub(instance.heard) > LEASE_US + LEASE_MARGIN_US
}

/// Puts a brick's slots Out. Returns the groups in which a slot of it was live.
fn expel(volume: &mut VolumeInfo, brick: BrickId) -> impl Iterator<Item = Changed> {
    let codes = codes_of(volume);
    let (volume, groups) = (volume.id, &mut volume.groups);
    (0..).zip(groups).zip(codes).filter_map(move |((index, group), code)| {
        expel_slot(group, brick, code).map(|()| Changed::Group(GroupId { volume, index }))
    })
}

/// Puts one slot Out. A group that would have fewer than K live slots keeps its configuration, and stops by itself.
pub(super) fn expel_slot(group: &mut GroupConfig, brick: BrickId, code: Code) -> Option<()> {
    let live = group.live().count_ones() as usize;
    let at = group.slot_of(brick)?;
    let may_go = group.slots[at].state == SlotState::Live && live > code.k();
    may_go.then(|| reconfigure(group, code, |slots| slots[at].state = SlotState::Out))
}
