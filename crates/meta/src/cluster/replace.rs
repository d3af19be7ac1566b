//! Replaces a brick that is gone for good by another one.
//!
//! The new brick has no bytes yet, so its slots are Out. The groups' primaries see a slot that is Out on a brick that
//! is Up, and bring the slot level, as they do for a brick that was away. The old brick is in no group any more. If
//! it comes back, it gets no requests for units.
//!
//! # Invariants
//! - No bytes are lost: the units of the old brick can be computed from the live slots.
//! - A brick has at most one slot of a group.
//!
//! The invariants do not cover groups of deleted volumes: nobody needs their bytes.

use types::messages::cluster::{
    BrickInfo, BrickReplace, BrickState, GroupConfig, ReplaceError, ReplaceErrorKind, SlotConfig, SlotState,
    VolumeInfo,
};
use types::{BrickId, GroupId};

use super::bricks::codes_of;
use super::epochs::reconfigure;
use super::history::Changed;
use super::map::Cluster;
use crate::keys;
use crate::kv::Writes;
use crate::records::{VolumeRecord, to_value};

impl Cluster {
    /// Checks whether a brick may replace another. The same replacement may be requested twice.
    pub(crate) fn check_replace(&self, request: &BrickReplace, now: u64) -> Result<(), ReplaceError> {
        let BrickReplace { old, new } = *request;
        if old == new {
            return Err(of_brick(ReplaceErrorKind::SameBrick));
        }
        let groups: Vec<(GroupId, &VolumeInfo, &GroupConfig)> = self.groups_with(old).collect();
        // A restored cluster may have groups with a brick that it never saw.
        let (old, info) = (old, self.map.brick(old));
        if info.is_none() && groups.is_empty() {
            return Err(of_brick(ReplaceErrorKind::OldUnknown));
        }
        let new = self.map.brick(new).ok_or(of_brick(ReplaceErrorKind::NewUnknown))?;
        if groups.is_empty() {
            return Ok(());
        }
        if info.is_some_and(|old| old.state == BrickState::Up) {
            return Err(of_brick(ReplaceErrorKind::OldUp));
        }
        if !self.has_lease(new.id, now) {
            return Err(of_brick(ReplaceErrorKind::NewOut));
        }
        for (id, volume, group) in groups {
            self.check_group(volume, group, old, new).map_err(|(what, brick)| ReplaceError {
                what,
                group: Some(id),
                brick: Some(brick),
            })?;
        }
        if new.free < info.map_or(0, |old| old.capacity.saturating_sub(old.free)) {
            return Err(of_brick(ReplaceErrorKind::TooSmall));
        }
        Ok(())
    }

    /// Checks whether `new` may take the slot of `old` in a group. The error has the reason and the brick in the way.
    fn check_group(
        &self,
        volume: &VolumeInfo,
        group: &GroupConfig,
        old: BrickId,
        new: &BrickInfo,
    ) -> Result<(), (ReplaceErrorKind, BrickId)> {
        for slot in &group.slots {
            if slot.brick == old {
                // A lost brick has a live slot only where the other live slots are too few to compute its units.
                if slot.state == SlotState::Live {
                    return Err((ReplaceErrorKind::Needed, old));
                }
            } else if slot.brick == new.id {
                return Err((ReplaceErrorKind::InGroup, new.id));
            } else if !volume.same_node && self.map.brick(slot.brick).is_some_and(|b| b.node == new.node) {
                return Err((ReplaceErrorKind::SharedNode, slot.brick));
            } else if self.share_domain(volume, slot.brick, new.node) {
                return Err((ReplaceErrorKind::SharedDomain, slot.brick));
            }
        }
        Ok(())
    }

    /// The groups of volumes in use in which a brick has a slot.
    fn groups_with(&self, brick: BrickId) -> impl Iterator<Item = (GroupId, &VolumeInfo, &GroupConfig)> {
        self.map.volumes.iter().flat_map(move |volume| {
            types::cost::walked((0..).zip(&volume.groups))
                .filter(move |(_, group)| group.slot_of(brick).is_some())
                .map(move |(index, group)| (GroupId { volume: volume.id, index }, volume, group))
        })
    }

    /// Gives the slots of one brick to another, after [`Cluster::check_replace`]. Returns the number of groups.
    pub(crate) fn replace(&mut self, request: &BrickReplace) -> (u32, Writes) {
        let BrickReplace { old, new } = *request;
        let mut writes = Writes::new();
        let mut changed = Vec::new();
        // An old brick that is Up is in no group, but can still be asked to purge its bytes of deleted volumes.
        if self.map.brick(old).is_some_and(|brick| brick.state == BrickState::Up) {
            return (0, writes);
        }
        assert_ne!(old, new, "the brick's bytes would count as lost and be overwritten");
        assert!(self.map.brick(new).is_some(), "the slots would belong to a brick that does not exist");
        for volume in &mut self.map.volumes {
            let groups = replace_in(volume, old, new);
            let id = volume.id;
            changed.extend(groups.into_iter().map(|index| Changed::Group(GroupId { volume: id, index })));
        }
        // Bytes of deleted volumes on the old brick are gone with it, so the purger does not wait for them.
        for (id, record) in &mut self.deleted {
            if replace_in_deleted(record, old, new) {
                writes.insert(keys::volume(*id), Some(to_value(record)));
            }
        }
        let replaced = u32::try_from(changed.len()).unwrap_or(u32::MAX);
        if replaced > 0 {
            self.publish(changed, &mut writes);
        }
        (replaced, writes)
    }
}

/// An error that is about the bricks and not about a group.
fn of_brick(what: ReplaceErrorKind) -> ReplaceError {
    ReplaceError { what, group: None, brick: None }
}

/// Gives the slots of one brick to another. Returns the indexes of the groups.
fn replace_in(volume: &mut VolumeInfo, old: BrickId, new: BrickId) -> Vec<u32> {
    let mut replaced = Vec::new();
    let codes = codes_of(volume);
    for ((index, group), code) in (0..).zip(&mut volume.groups).zip(codes) {
        let Some(at) = group.slot_of(old) else { continue };
        assert_eq!(group.slots[at].state, SlotState::Out, "units that no other slot can give would be lost");
        assert_eq!(group.slot_of(new), None, "two units of a stripe would be lost together with one brick");
        reconfigure(group, code, |slots| slots[at] = SlotConfig { brick: new, state: SlotState::Out });
        replaced.push(index);
    }
    replaced
}

/// Gives the slots of one brick to another in a deleted volume. Returns whether there were any.
fn replace_in_deleted(volume: &mut VolumeRecord, old: BrickId, new: BrickId) -> bool {
    let mut replaced = false;
    for group in &mut volume.groups {
        if let Some(at) = group.slot_of(old) {
            group.slots[at] = SlotConfig { brick: new, state: SlotState::Out };
            group.epoch = group.epoch.next();
            replaced = true;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, brick_join, on_all, volume_create};
    use types::limits::{LEASE_MARGIN_US, LEASE_US};
    use types::messages::cluster::BrickJoin;
    use types::{Incarnation, NodeId};

    const GONE: u64 = LEASE_US + LEASE_MARGIN_US + 1;

    fn join(fixture: &mut Fixture, request: BrickJoin, now: u64) {
        let writes = fixture.state.cluster.join(&request, now).expect("nobody else serves it");
        assert!(fixture.state.commit(writes));
    }

    /// Brick 1 is silent for its lease; 2, 3, 4 and a new brick 5 on a node of its own are heard.
    fn without_1(fixture: &mut Fixture) {
        for brick in 2..=5 {
            join(fixture, brick_join(brick, 2), GONE);
        }
        let writes = fixture.state.cluster.expire(GONE);
        assert!(fixture.state.commit(writes));
    }

    fn try_replace(fixture: &mut Fixture, old: u32, new: u32) -> Result<u32, ReplaceError> {
        let request = BrickReplace { old: BrickId(old), new: BrickId(new) };
        fixture.state.cluster.check_replace(&request, GONE)?;
        let (groups, writes) = fixture.state.cluster.replace(&request);
        assert_eq!(writes.is_empty(), groups == 0);
        assert!(fixture.state.commit(writes));
        Ok(groups)
    }

    #[test]
    fn the_new_brick_has_every_slot_of_the_old_one_and_each_is_out() {
        on_all(|mut fixture| {
            without_1(&mut fixture);
            let before = fixture.state.cluster.map().clone();
            let with_1 = before.volumes[0].groups.iter().filter(|g| g.slot_of(BrickId(1)).is_some()).count();
            assert!(with_1 > 0);
            assert_eq!(try_replace(&mut fixture, 1, 5), Ok(with_1 as u32));
            let after = fixture.state.cluster.map().clone();
            assert_eq!(after.version.0, before.version.0 + 1);
            for (before, after) in before.volumes[0].groups.iter().zip(&after.volumes[0].groups) {
                let Some(slot) = before.slot_of(BrickId(1)) else {
                    assert_eq!(before, after);
                    continue;
                };
                assert_eq!(after.epoch, before.epoch.next());
                assert_eq!(after.slots[slot], SlotConfig { brick: BrickId(5), state: SlotState::Out });
                assert_eq!(after.live(), before.live());
                assert_eq!(after.slot_of(BrickId(1)), None);
            }
            assert!(!fixture.state.cluster.holders_of(fixture.volume).contains(&BrickId(1)));
            // Asked again, also when the old brick is back: there is nothing to do.
            assert_eq!(try_replace(&mut fixture, 1, 5), Ok(0));
            join(&mut fixture, brick_join(1, 2), GONE);
            assert_eq!(try_replace(&mut fixture, 1, 5), Ok(0));
            let map = fixture.state.cluster.map().clone();
            assert_eq!(map.volumes, after.volumes);
            assert_eq!(fixture.restart(vec![]).state.cluster.map(), &map);
        });
    }

    #[test]
    fn what_stands_in_the_way_is_said() {
        on_all(|mut fixture| {
            assert_eq!(try_replace(&mut fixture, 9, 2), Err(of_brick(ReplaceErrorKind::OldUnknown)));
            assert_eq!(try_replace(&mut fixture, 1, 9), Err(of_brick(ReplaceErrorKind::NewUnknown)));
            assert_eq!(try_replace(&mut fixture, 1, 1), Err(of_brick(ReplaceErrorKind::SameBrick)));
            assert_eq!(try_replace(&mut fixture, 1, 2), Err(of_brick(ReplaceErrorKind::OldUp)));
            without_1(&mut fixture);
            let groups = fixture.state.cluster.map().volumes[0].groups.clone();
            let with_1_and_2 =
                |g: &GroupConfig| g.slot_of(BrickId(1)).is_some() && g.slot_of(BrickId(2)).is_some();
            let index = groups.iter().position(with_1_and_2).expect("2+1 on four bricks") as u32;
            let group = Some(GroupId { volume: fixture.volume, index });
            let (what, brick) = (ReplaceErrorKind::InGroup, Some(BrickId(2)));
            assert_eq!(try_replace(&mut fixture, 1, 2), Err(ReplaceError { what, group, brick }));
            let version = fixture.state.cluster.version();

            join(&mut fixture, BrickJoin { node: NodeId(2), ..brick_join(6, 1) }, GONE);
            let (what, brick) = (ReplaceErrorKind::SharedNode, Some(BrickId(2)));
            assert_eq!(try_replace(&mut fixture, 1, 6), Err(ReplaceError { what, group, brick }));
            // Brick 1 has half a GiB in use.
            join(&mut fixture, BrickJoin { free: (1 << 29) - 1, ..brick_join(7, 1) }, GONE);
            assert_eq!(try_replace(&mut fixture, 1, 7), Err(of_brick(ReplaceErrorKind::TooSmall)));
            join(&mut fixture, brick_join(8, 1), 0);
            assert_eq!(try_replace(&mut fixture, 1, 8), Err(of_brick(ReplaceErrorKind::NewOut)), "not heard");
            assert_eq!(fixture.state.cluster.version().0, version.0 + 3, "three bricks have come");
            assert_eq!(fixture.state.cluster.map().volumes[0].groups, groups);
        });
    }

    #[test]
    fn units_that_nothing_else_gives_are_not_given_up() {
        on_all(|mut fixture| {
            without_1(&mut fixture);
            // Without brick 2 as well, groups that had brick 1 cannot compute what it holds.
            for brick in 3..=5 {
                let join_again = BrickJoin { incarnation: Incarnation(3), ..brick_join(brick, 3) };
                join(&mut fixture, join_again, 2 * GONE);
            }
            let writes = fixture.state.cluster.expire(2 * GONE + 1);
            assert!(fixture.state.commit(writes));
            let request = BrickReplace { old: BrickId(2), new: BrickId(5) };
            let error = fixture.state.cluster.check_replace(&request, 2 * GONE).expect_err("it is needed");
            assert_eq!((error.what, error.brick), (ReplaceErrorKind::Needed, Some(BrickId(2))));
            let (_, group) =
                fixture.state.cluster.map().group(error.group.expect("of a group")).expect("there");
            assert!(group.slot_of(BrickId(1)).is_some() && group.slot_of(BrickId(2)).is_some());
        });
    }

    #[test]
    fn a_volume_whose_nodes_may_hold_several_slots_may_go_on_so() {
        on_all(|mut fixture| {
            let create =
                types::messages::cluster::VolumeCreate { same_node: true, ..volume_create("close", "3+1") };
            assert_eq!(fixture.state.volume_delete("home"), Err(types::Refusal::Busy));
            fixture.state.tear_down_client(fixture.client);
            fixture.state.volume_delete("home").expect("nobody has it");
            fixture.state.volume_create(&create, 1).expect("it fits");
            let mut fixture = Fixture {
                state: crate::state::State::load(fixture.engine.clone(), 0).expect("there is a cluster"),
                ..fixture
            };
            without_1(&mut fixture);
            join(&mut fixture, BrickJoin { node: NodeId(2), ..brick_join(6, 1) }, GONE);
            // Deleted volumes wait for the new brick instead: it has nothing of them.
            assert!(fixture.state.cluster.holders_of(fixture.volume).contains(&BrickId(1)));
            assert_eq!(try_replace(&mut fixture, 1, 6), Ok(4));
            assert!(!fixture.state.cluster.holders_of(fixture.volume).contains(&BrickId(1)));
        });
    }
}
