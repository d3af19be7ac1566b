//! A cluster that was restored from a backup learns from its bricks what became of its groups since.
//!
//! The backup is older than what bricks know: slots have missed writes, and others were brought level since. A restored store
//! has all slots Out, so that nobody serves anything by it. Each brick says which configuration of a group it has promised
//! last, and from then on promises nothing below a floor. When all bricks that may belong to the group have done so, the
//! newest of these configurations is the one to go on with:
//!
//! - An epoch is served only after all its live slots have promised it. So no later one was ever served.
//! - No later one will be served, because it would need promises below the floor.
//! - A slot that a later, unserved epoch had expelled or admitted has missed nothing.
//!
//! # Invariants
//! - A group without a live slot is one whose configuration is not known. (Otherwise K slots or more are live.)
//! - The epoch that a group goes on with is above all that any brick has promised.

use std::collections::{BTreeMap, BTreeSet};

use types::limits::RECOVER_MAX;
use types::messages::cluster::{ClusterMap, GroupConfig, SlotState};
use types::messages::recovery::{GroupFloor, HeldGroup, RecoveryReport};
use types::{BrickId, Code, Epoch, GroupId};

use super::bricks::{codes_of, expel_slot};
use super::epochs::resume;
use super::history::Changed;
use super::map::Cluster;
use crate::keys;
use crate::kv::Writes;

/// How far a floor is above the last known epoch. Most likely that is above all epochs that were given out since the backup;
/// where it is not, the floor is raised.
pub(crate) const FLOOR_STEP: u32 = 1 << 12;
/// Most bricks that a report names.
const NAMED_MAX: usize = 64;

/// What bricks have said of a group.
struct Known {
    code: Code,
    floor: Epoch,
    /// The newest epoch that any of them has promised.
    promised: Epoch,
    /// The newest configuration that any of them has.
    newest: Option<GroupConfig>,
    /// Bricks that may have a slot.
    members: BTreeSet<BrickId>,
    /// Bricks that have answered, with the floor as it is now.
    answered: BTreeSet<BrickId>,
}

/// How a group goes on.
pub(crate) struct Resumed {
    pub(crate) group: GroupId,
    pub(crate) config: GroupConfig,
}

/// See the module.
pub(crate) struct Recovery {
    groups: BTreeMap<GroupId, Known>,
    /// Bricks that nobody waits for.
    lost: BTreeSet<BrickId>,
    doubtful: u32,
}

impl Recovery {
    /// What there is to learn; `None` if all groups are known.
    pub(crate) fn of(map: &ClusterMap, lost: &[BrickId]) -> Option<Recovery> {
        let mut groups = BTreeMap::new();
        for volume in &map.volumes {
            for ((index, group), code) in (0..).zip(&volume.groups).zip(codes_of(volume)) {
                if group.live() == 0 {
                    let known = Known {
                        code,
                        floor: group.epoch,
                        promised: Epoch(0),
                        newest: None,
                        members: group.slots.iter().map(|slot| slot.brick).collect(),
                        answered: BTreeSet::new(),
                    };
                    groups.insert(GroupId { volume: volume.id, index }, known);
                }
            }
        }
        let lost = lost.iter().copied().collect();
        (!groups.is_empty()).then_some(Recovery { groups, lost, doubtful: 0 })
    }

    /// Whether all groups are known.
    pub(crate) fn is_done(&self) -> bool {
        self.groups.is_empty()
    }

    /// What to ask a brick next, of the groups after `after`.
    pub(crate) fn to_ask(&self, brick: BrickId, after: Option<GroupId>) -> Vec<GroupFloor> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let groups = types::cost::walked(self.groups.range((from, std::ops::Bound::Unbounded)));
        let unanswered = groups.filter(|(_, known)| !known.answered.contains(&brick));
        unanswered
            .map(|(group, known)| GroupFloor { group: *group, floor: known.floor })
            .take(RECOVER_MAX)
            .collect()
    }

    /// A brick has answered. Returns whether its answer makes sense.
    pub(crate) fn answered(&mut self, brick: BrickId, asked: &[GroupFloor], held: &[HeldGroup]) -> bool {
        let mut makes_sense = true;
        let held: BTreeMap<GroupId, &HeldGroup> = held.iter().map(|held| (held.group, held)).collect();
        for GroupFloor { group, floor } in asked {
            let Some(known) = self.groups.get_mut(group) else { continue };
            match held.get(group) {
                // Another brick's answer may have raised the floor meanwhile. Where it knows nothing, there is nothing to raise.
                None => drop(known.answered.insert(brick)),
                Some(held) => makes_sense &= known.learn(brick, *floor, held),
            }
        }
        makes_sense
    }

    /// Groups that can go on, at most `most`; they are known from now on.
    pub(crate) fn take_known(&mut self, most: usize) -> Vec<Resumed> {
        let can_go_on = |known: &Known| {
            let all = known.members.difference(&self.lost).all(|brick| known.answered.contains(brick));
            all && !known.answered.is_empty() && !known.is_unclear()
        };
        let found: Vec<GroupId> = types::cost::walked(&self.groups)
            .filter(|(_, known)| can_go_on(known))
            .map(|(group, _)| *group)
            .take(most)
            .collect();
        let mut resumed = Vec::new();
        for group in found {
            let Some(known) = self.groups.remove(&group) else { continue };
            let given_up = known.members.intersection(&self.lost).count();
            self.doubtful += u32::from(given_up >= known.code.k());
            // Without any promise nothing was ever written: the table is that of the backup, and every slot has all of it.
            let config = known.newest.unwrap_or(GroupConfig { epoch: known.floor, slots: Vec::new() });
            resumed.push(Resumed { group, config: GroupConfig { epoch: known.floor, ..config } });
        }
        resumed
    }

    /// Forgets groups of volumes that are gone.
    pub(crate) fn keep(&mut self, map: &ClusterMap) {
        self.groups.retain(|group, _| map.volume(group.volume).is_some());
    }

    /// What is still to be learned.
    pub(crate) fn report(&self) -> RecoveryReport {
        let mut waits_for = BTreeSet::new();
        for known in types::cost::walked(self.groups.values()) {
            let silent = known.members.difference(&self.lost).filter(|brick| !known.answered.contains(brick));
            waits_for.extend(silent.copied());
        }
        let unclear =
            self.groups.values().filter(|known| known.has_all(&self.lost) && known.is_unclear()).count();
        RecoveryReport {
            groups: self.groups.len() as u32,
            unclear: unclear as u32,
            waits_for: waits_for.into_iter().take(NAMED_MAX).collect(),
            doubtful: self.doubtful,
        }
    }
}

impl Known {
    fn has_all(&self, lost: &BTreeSet<BrickId>) -> bool {
        self.members.difference(lost).all(|brick| self.answered.contains(brick))
    }

    /// Something newer than the newest configuration was promised, and nobody has kept what it was.
    fn is_unclear(&self) -> bool {
        self.newest.as_ref().map_or(Epoch(0), |config| config.epoch) < self.promised
    }

    /// Takes what a brick has said. False if it makes no sense.
    fn learn(&mut self, brick: BrickId, floor: Epoch, held: &HeldGroup) -> bool {
        let highest = held.promised.max(held.floor);
        if highest.0 >= Epoch::END.0 - 2 * FLOOR_STEP {
            return false;
        }
        if let Some(config) = &held.config {
            let bricks: BTreeSet<BrickId> = config.slots.iter().map(|slot| slot.brick).collect();
            let is_whole = config.slots.len() == self.code.slots() && bricks.len() == config.slots.len();
            if config.epoch != held.promised
                || !is_whole
                || (config.live().count_ones() as usize) < self.code.k()
            {
                return false;
            }
            self.members.extend(bricks);
            if self.newest.as_ref().is_none_or(|newest| newest.epoch < config.epoch) {
                self.newest = Some(config.clone());
            }
        }
        self.promised = self.promised.max(held.promised);
        if held.promised >= self.floor || held.floor > self.floor {
            // More has happened since the backup than was expected, or there was another restoration.
            self.floor = Epoch(highest.0 + FLOOR_STEP);
            self.answered.clear();
        } else if floor == self.floor {
            self.answered.insert(brick);
        }
        true
    }
}

impl Cluster {
    /// Groups go on with what was learned. Slots of bricks that are not there are put Out as those of any lost brick.
    pub(crate) fn resume_groups(&mut self, resumed: Vec<Resumed>, now: u64) -> Writes {
        let mut writes = Writes::new();
        let mut changed = Vec::new();
        let mut by_volume: BTreeMap<_, Vec<Resumed>> = BTreeMap::new();
        for one in resumed {
            by_volume.entry(one.group.volume).or_default().push(one);
        }
        for (id, resumed) in by_volume {
            let there: BTreeSet<BrickId> = self
                .map
                .bricks
                .iter()
                .map(|brick| brick.id)
                .filter(|brick| self.has_lease(*brick, now))
                .collect();
            let Some(volume) = self.map.volumes.iter_mut().find(|volume| volume.id == id) else { continue };
            for Resumed { group: id, mut config } in resumed {
                let code = volume.code_of(id.index);
                let Some(group) = volume.groups.get_mut(id.index as usize) else { continue };
                if config.slots.is_empty() {
                    config.slots.clone_from(&group.slots);
                    config.slots.iter_mut().for_each(|slot| slot.state = SlotState::Live);
                }
                let bricks: Vec<BrickId> = config.slots.iter().map(|slot| slot.brick).collect();
                resume(group, config);
                bricks.into_iter().filter(|brick| !there.contains(brick)).for_each(|brick| {
                    expel_slot(group, brick, code);
                });
                changed.push(Changed::Group(id));
            }
            Cluster::write_volume(volume, &mut writes);
        }
        if !changed.is_empty() {
            self.publish(changed, &mut writes);
        }
        writes
    }

    /// All groups are known.
    pub(crate) fn recovery_is_over() -> Writes {
        Writes::from([(keys::lost_bricks(), None)])
    }
}

#[cfg(test)]
mod tests {
    use types::VolumeId;
    use types::messages::cluster::SlotConfig;

    use super::*;
    use crate::fixture::{Fixture, on_all};

    /// The map of a cluster as it is after a restoration, and one of its groups.
    fn restored(fixture: &mut Fixture) -> (ClusterMap, GroupId, Vec<BrickId>) {
        let mut map = fixture.state.cluster.map().clone();
        let volume: VolumeId = fixture.volume;
        for volume in &mut map.volumes {
            for group in &mut volume.groups {
                group.slots.iter_mut().for_each(|slot| slot.state = SlotState::Out);
                group.epoch = Epoch(group.epoch.0 + FLOOR_STEP);
            }
        }
        let group = GroupId { volume, index: 0 };
        let bricks = map.group(group).expect("there").1.slots.iter().map(|slot| slot.brick).collect();
        (map, group, bricks)
    }

    fn config(epoch: u32, slots: &[(BrickId, bool)]) -> GroupConfig {
        let slot = |(brick, live): &(BrickId, bool)| SlotConfig {
            brick: *brick,
            state: if *live { SlotState::Live } else { SlotState::Out },
        };
        GroupConfig { epoch: Epoch(epoch), slots: slots.iter().map(slot).collect() }
    }

    fn holds(group: GroupId, config: &GroupConfig, floor: Epoch) -> HeldGroup {
        HeldGroup { group, promised: config.epoch, config: Some(config.clone()), floor }
    }

    /// Asks one brick about one group and gives its answer.
    fn tell(recovery: &mut Recovery, group: GroupId, brick: BrickId, said: Option<&GroupConfig>) -> bool {
        let asked: Vec<_> =
            recovery.to_ask(brick, None).into_iter().filter(|asked| asked.group == group).collect();
        let Some(floor) = asked.first().map(|asked| asked.floor) else { return true };
        let held: Vec<HeldGroup> = said.map(|config| holds(group, config, floor)).into_iter().collect();
        recovery.answered(brick, &asked, &held)
    }

    #[test]
    fn the_newest_configuration_goes_on_when_all_members_have_answered() {
        on_all(|mut fixture| {
            let (map, group, bricks) = restored(&mut fixture);
            let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
            let all: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
            let mut without_first = all.clone();
            without_first[0].1 = false;
            let (older, newer) = (config(7, &all), config(8, &without_first));
            assert!(tell(&mut recovery, group, bricks[0], Some(&older)));
            for brick in &bricks[2..] {
                assert!(tell(&mut recovery, group, *brick, Some(&newer)));
                assert!(recovery.take_known(9).iter().all(|one| one.group != group), "one may know more");
            }
            assert!(tell(&mut recovery, group, bricks[1], Some(&newer)));
            let resumed = recovery.take_known(9);
            assert_eq!(resumed.len(), 1);
            assert_eq!(resumed[0].config.slots, newer.slots);
            assert!(resumed[0].config.epoch > newer.epoch);
            fixture.state.cluster.map = map;
            let writes = fixture.state.cluster.resume_groups(resumed, 10);
            assert!(!writes.is_empty());
            let (_, found) = fixture.state.cluster.map().group(group).expect("there");
            assert_eq!(found.live().count_ones() as usize, bricks.len() - 1);
            assert!(found.epoch > newer.epoch);
        });
    }

    #[test]
    fn a_brick_that_only_a_newer_configuration_names_is_awaited() {
        on_all(|mut fixture| {
            let (map, group, bricks) = restored(&mut fixture);
            let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
            let mut replaced: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
            replaced[0].0 = BrickId(77);
            let newer = config(9, &replaced);
            for brick in &bricks {
                let said = (*brick != bricks[0]).then_some(&newer);
                assert!(tell(&mut recovery, group, *brick, said));
            }
            assert!(recovery.take_known(9).iter().all(|one| one.group != group));
            assert!(recovery.report().waits_for.contains(&BrickId(77)));
            assert!(tell(&mut recovery, group, BrickId(77), Some(&newer)));
            assert!(recovery.take_known(9).iter().any(|one| one.config.slots == newer.slots));
        });
    }

    #[test]
    fn epochs_above_the_floor_raise_it_and_all_are_asked_again() {
        on_all(|mut fixture| {
            let (map, group, bricks) = restored(&mut fixture);
            let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
            let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
            let far = config(3 * FLOOR_STEP, &slots);
            for brick in bricks.iter().rev() {
                assert!(tell(&mut recovery, group, *brick, Some(&far)));
            }
            assert!(
                recovery.take_known(9).iter().all(|one| one.group != group),
                "the first must promise more"
            );
            let again = recovery.to_ask(*bricks.last().expect("a brick"), None);
            assert!(again.iter().any(|asked| asked.group == group && asked.floor > far.epoch));
            for brick in &bricks {
                assert!(tell(&mut recovery, group, *brick, Some(&far)));
            }
            let resumed = recovery.take_known(9);
            assert!(resumed.iter().any(|one| one.group == group && one.config.epoch > far.epoch));
        });
    }

    #[test]
    fn lost_bricks_are_not_awaited_and_too_many_of_them_make_a_group_doubtful() {
        on_all(|mut fixture| {
            let (map, group, bricks) = restored(&mut fixture);
            let code = map.volume(group.volume).expect("there").code_of(0);
            let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
            for given_up in 1..bricks.len() {
                let mut recovery =
                    Recovery::of(&map, &bricks[..given_up]).expect("groups without live slots");
                for brick in &bricks[given_up..] {
                    assert!(recovery.take_known(9).iter().all(|one| one.group != group));
                    assert!(tell(&mut recovery, group, *brick, Some(&config(7, &slots))));
                }
                assert!(recovery.take_known(9).iter().any(|one| one.group == group));
                assert_eq!(recovery.report().doubtful > 0, given_up >= code.k(), "{given_up} of {code}");
            }
        });
    }

    #[test]
    fn nonsense_is_not_believed_and_what_nobody_kept_is_unclear() {
        on_all(|mut fixture| {
            let (map, group, bricks) = restored(&mut fixture);
            let mut recovery = Recovery::of(&map, &[]).expect("groups without live slots");
            let slots: Vec<_> = bricks.iter().map(|brick| (*brick, true)).collect();
            let floor = recovery.to_ask(bricks[0], None)[0].floor;
            let good = holds(group, &config(7, &slots), floor);
            let asked = [GroupFloor { group, floor }];
            let too_far = HeldGroup { promised: Epoch(Epoch::END.0 - 1), config: None, ..good.clone() };
            let twice = config(7, &vec![slots[0]; slots.len()]);
            let nobody = config(7, &bricks.iter().map(|brick| (*brick, false)).collect::<Vec<_>>());
            let bad = [too_far, holds(group, &twice, floor), holds(group, &nobody, floor)];
            for held in bad {
                assert!(!recovery.answered(bricks[0], &asked, &[held]));
            }
            assert!(recovery.report().waits_for.contains(&bricks[0]));
            assert!(recovery.answered(bricks[0], &asked, &[HeldGroup { config: None, ..good }]));
            for brick in &bricks[1..] {
                assert!(tell(&mut recovery, group, *brick, Some(&config(6, &slots))));
            }
            assert!(recovery.take_known(9).iter().all(|one| one.group != group), "nobody kept epoch 7");
            assert_eq!(recovery.report().unclear, 1);
        });
    }
}
