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
//! Slots of bricks that are given up are Out, and so are those of bricks that know nothing of a group that was served: a
//! brick that the backup does not know may have been made anew under its old id. Where as many bricks are given up
//! as one configuration needs, another one may lie on bricks that the table does not name: then all bricks must answer.
//!
//! # Invariants
//! - No group goes on with fewer than K live slots on bricks that are not given up.
//! - A group without a live slot is one whose configuration is not known. (Otherwise K slots or more are live.)
//! - The epoch that a group goes on with is above all that any brick has promised.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use types::limits::RECOVER_MAX;
use types::messages::cluster::{BrickInfo, ClusterMap, GroupConfig, SlotConfig, SlotState};
use types::messages::recovery::{GroupFloor, HeldGroup, RecoveryReport};
use types::{BrickId, Code, Epoch, GroupId, VolumeId};

use super::bricks::{codes_of, expel_slot};
use super::epochs::resume;
use super::history::Changed;
use super::map::Cluster;
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
    /// The newest configuration that any of them has; the table of the backup as long as nobody has another one.
    newest: GroupConfig,
    /// Bricks that have a slot in the table of the backup. It knows their devices, so none of them is another one now.
    table: BTreeSet<BrickId>,
    /// Bricks that may have a slot.
    members: BTreeSet<BrickId>,
    /// Members that have answered, with the floor as it is now, and whether they knew the group.
    answered: BTreeMap<BrickId, bool>,
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
    /// Bricks that have answered for all groups, with the floors as they are now.
    complete: BTreeSet<BrickId>,
    /// How often a floor was raised.
    raised: u64,
    doubtful: u32,
}

impl Recovery {
    /// What there is to learn; `None` if all groups are known.
    pub(crate) fn of(map: &ClusterMap, lost: &[BrickId]) -> Option<Recovery> {
        let mut groups = BTreeMap::new();
        for volume in &map.volumes {
            for ((index, group), code) in (0..).zip(&volume.groups).zip(codes_of(volume)) {
                if group.live() == 0 {
                    let live = |slot: &SlotConfig| SlotConfig { state: SlotState::Live, ..slot.clone() };
                    // Where nobody has promised anything nothing was written, and every slot has all of it.
                    let slots = group.slots.iter().map(live).collect();
                    let table: BTreeSet<BrickId> = group.slots.iter().map(|slot| slot.brick).collect();
                    let known = Known {
                        code,
                        floor: group.epoch,
                        promised: Epoch(0),
                        newest: GroupConfig { epoch: Epoch(0), slots },
                        members: table.clone(),
                        table,
                        answered: BTreeMap::new(),
                    };
                    groups.insert(GroupId { volume: volume.id, index }, known);
                }
            }
        }
        let (lost, complete) = (lost.iter().copied().collect(), BTreeSet::new());
        (!groups.is_empty()).then_some(Recovery { groups, lost, complete, raised: 0, doubtful: 0 })
    }

    /// Whether all groups are known.
    pub(crate) fn is_done(&self) -> bool {
        self.groups.is_empty()
    }

    /// The volumes with groups that are not known.
    pub(crate) fn volumes(&self) -> BTreeSet<VolumeId> {
        types::cost::walked(self.groups.keys()).map(|group| group.volume).collect()
    }

    /// Whether a brick may have a slot in a group that is not known.
    pub(crate) fn concerns(&self, brick: BrickId) -> bool {
        let has = |known: &Known| known.table.contains(&brick) || known.members.contains(&brick);
        types::cost::walked(self.groups.values()).any(has)
    }

    /// What to ask a brick next, of the groups after `after`. Nothing if it has told everything.
    pub(crate) fn to_ask(&self, brick: BrickId, after: Option<GroupId>) -> Vec<GroupFloor> {
        if self.complete.contains(&brick) {
            return Vec::new();
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let groups = types::cost::walked(self.groups.range((from, Bound::Unbounded)));
        let unanswered = groups.filter(|(_, known)| !known.answered.contains_key(&brick));
        unanswered
            .map(|(group, known)| GroupFloor { group: *group, floor: known.floor })
            .take(RECOVER_MAX)
            .collect()
    }

    /// A number that changes whenever a floor is raised.
    pub(crate) fn raised(&self) -> u64 {
        self.raised
    }

    /// A brick was asked for all groups, and no floor was raised since it was asked for the first one, when this was
    /// [`raised`](Recovery::raised).
    pub(crate) fn told_all(&mut self, brick: BrickId, raised: u64) {
        if raised == self.raised {
            self.complete.insert(brick);
        }
    }

    /// A brick has answered. Returns whether its answer makes sense.
    pub(crate) fn answered(&mut self, brick: BrickId, asked: &[GroupFloor], held: &[HeldGroup]) -> bool {
        let mut makes_sense = true;
        let held: BTreeMap<GroupId, &HeldGroup> = held.iter().map(|held| (held.group, held)).collect();
        for GroupFloor { group, floor } in asked {
            let Some(known) = self.groups.get_mut(group) else { continue };
            match held.get(group) {
                // It has nothing whose floor could be raised.
                None if known.members.contains(&brick) => drop(known.answered.insert(brick, false)),
                None => {}
                Some(held) => match known.learn(brick, *floor, held) {
                    Learned::Nonsense => makes_sense = false,
                    Learned::Raised => {
                        self.raised += 1;
                        self.complete.clear();
                    }
                    Learned::Known => {}
                },
            }
        }
        makes_sense
    }

    /// Whether a brick has answered for a group.
    fn has_told(&self, known: &Known, brick: BrickId) -> bool {
        known.answered.contains_key(&brick) || self.complete.contains(&brick)
    }

    /// The bricks that are still to answer for a group.
    fn awaited<'a>(
        &'a self,
        known: &'a Known,
        bricks: &'a [BrickInfo],
    ) -> impl Iterator<Item = BrickId> + 'a {
        // More than the members, where they may not be all.
        let others = if known.given_up(&self.lost) >= known.code.k() { bricks } else { &[] };
        let all = known.members.iter().copied().chain(others.iter().map(|brick| brick.id));
        all.filter(|brick| !self.lost.contains(brick) && !self.has_told(known, *brick))
    }

    /// The configuration with which a group goes on, if it is known. `bricks`: all that the map has.
    fn decided(&self, known: &Known, bricks: &[BrickInfo]) -> Option<GroupConfig> {
        if known.newest.epoch < known.promised || self.awaited(known, bricks).next().is_some() {
            return None;
        }
        let may_have_served = known.may_have_served(&self.lost);
        let mut slots = known.newest.slots.clone();
        for slot in &mut slots {
            // A brick that knows nothing of a group that was served was made anew since, or was to become a member.
            let knows_it = known.answered.get(&slot.brick) == Some(&true);
            if self.lost.contains(&slot.brick) || (may_have_served && !knows_it) {
                slot.state = SlotState::Out;
            }
        }
        let live = slots.iter().filter(|slot| slot.state == SlotState::Live).count();
        (live >= known.code.k()).then_some(GroupConfig { epoch: known.floor, slots })
    }

    /// Groups that can go on, at most `most`; they are known from now on. `bricks`: all that the map has.
    pub(crate) fn take_known(&mut self, bricks: &[BrickInfo], most: usize) -> Vec<Resumed> {
        let decided = types::cost::walked(&self.groups).filter_map(|(group, known)| {
            Some(Resumed { group: *group, config: self.decided(known, bricks)? })
        });
        let resumed: Vec<Resumed> = decided.take(most).collect();
        for Resumed { group, .. } in &resumed {
            let known = self.groups.remove(group);
            let is_doubtful = known.is_some_and(|known| known.given_up(&self.lost) >= known.code.k());
            self.doubtful += u32::from(is_doubtful);
        }
        resumed
    }

    /// Forgets groups of volumes that are gone.
    pub(crate) fn keep(&mut self, map: &ClusterMap) {
        self.groups.retain(|group, _| map.volume(group.volume).is_some());
    }

    /// What is still to be learned. `bricks`: all that the map has.
    pub(crate) fn report(&self, bricks: &[BrickInfo]) -> RecoveryReport {
        let (mut waits_for, mut unclear) = (BTreeSet::new(), 0);
        for known in types::cost::walked(self.groups.values()) {
            let before = waits_for.len();
            let mut awaited = self.awaited(known, bricks).peekable();
            unclear += u32::from(awaited.peek().is_none() && self.decided(known, bricks).is_none());
            if before < NAMED_MAX {
                waits_for.extend(awaited);
            }
        }
        RecoveryReport {
            groups: self.groups.len() as u32,
            unclear,
            waits_for: waits_for.into_iter().take(NAMED_MAX).collect(),
            doubtful: self.doubtful,
        }
    }
}

/// What became of an answer.
enum Learned {
    Known,
    /// The floor is higher now: all have to be asked again.
    Raised,
    Nonsense,
}

impl Known {
    /// How many of the bricks that may have a slot are given up.
    fn given_up(&self, lost: &BTreeSet<BrickId>) -> usize {
        self.members.intersection(lost).count()
    }

    /// Whether the group may ever have been served: K slots have promised something, or may have. Not so if only bricks of the
    /// table are named, and fewer than K of them know the group or are given up.
    fn may_have_served(&self, lost: &BTreeSet<BrickId>) -> bool {
        let knew = self.answered.values().filter(|knew| **knew).count();
        knew + self.given_up(lost) >= self.code.k()
            || self.newest.slots.iter().any(|slot| !self.table.contains(&slot.brick))
    }

    /// Takes what a brick has said.
    fn learn(&mut self, brick: BrickId, floor: Epoch, held: &HeldGroup) -> Learned {
        let highest = held.promised.max(held.floor);
        if highest.0 >= Epoch::END.0 - 2 * FLOOR_STEP {
            return Learned::Nonsense;
        }
        if let Some(config) = &held.config {
            let bricks: BTreeSet<BrickId> = config.slots.iter().map(|slot| slot.brick).collect();
            let is_whole = config.slots.len() == self.code.slots() && bricks.len() == config.slots.len();
            let live = config.live().count_ones() as usize;
            if config.epoch != held.promised || !is_whole || live < self.code.k() {
                return Learned::Nonsense;
            }
            self.members.extend(bricks);
            if self.newest.epoch < config.epoch {
                self.newest.clone_from(config);
            }
        }
        self.promised = self.promised.max(held.promised);
        if held.promised >= self.floor || held.floor > self.floor {
            // More has happened since the backup than was expected, or there was another restoration.
            self.floor = Epoch(highest.0 + FLOOR_STEP);
            self.answered.clear();
            return Learned::Raised;
        }
        if floor == self.floor {
            self.answered.insert(brick, true);
        }
        Learned::Known
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
            for Resumed { group: id, config } in resumed {
                let code = volume.code_of(id.index);
                let Some(group) = volume.groups.get_mut(id.index as usize) else { continue };
                let bricks: Vec<BrickId> = config.slots.iter().map(|slot| slot.brick).collect();
                resume(group, config);
                bricks.into_iter().filter(|brick| !there.contains(brick)).for_each(|brick| {
                    expel_slot(group, brick, code);
                });
                changed.push(Changed::Group(id));
            }
        }
        if !changed.is_empty() {
            self.publish(changed, &mut writes);
        }
        writes
    }
}

#[cfg(test)]
mod tests;
