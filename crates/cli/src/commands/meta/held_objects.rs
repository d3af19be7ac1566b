//! The objects that bricks hold, asked from the slots of all groups.

use std::collections::{BTreeMap, BTreeSet};

use meta::check::{Fault, Found, Held};
use types::messages::brick::UnitList;
use types::messages::cluster::{ClusterMap, GroupConfig, SlotState, VolumeInfo};
use types::{GroupId, ObjectId, Refusal, Seq, StripeKey, VolumeId};
use world::CallError;

use crate::problem::problem;
use crate::remote::Remote;

/// About how many bytes an object takes, while they are gathered.
const BYTES: usize = 24;
/// Units of a page.
const PAGE: u32 = 4096;
/// How often a group is asked again that changes or is not served, and the pause before it, in microseconds.
const TRIES: u32 = 20;
const PAUSE_US: u64 = 500_000;

/// The objects that any brick holds.
#[derive(Default)]
pub(super) struct HeldObjects {
    /// Of each volume, in order.
    pub(super) by_volume: Held,
    /// In which group each of them was found first.
    groups: BTreeMap<VolumeId, Vec<u32>>,
}

impl HeldObjects {
    /// About how many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        self.by_volume.values().map(Vec::len).sum::<usize>() * BYTES
    }

    /// Asks for the objects of all volumes.
    pub(super) fn ask(remote: &Remote, memory: usize, told: &dyn Fn(u64)) -> anyhow::Result<HeldObjects> {
        let (mut map, mut held, mut count) = (remote.status_of_shard()?.map, HeldObjects::default(), 0);
        let volumes: Vec<_> =
            map.volumes.iter().map(|volume| (volume.id, volume.groups.len() as u32)).collect();
        for (volume, groups) in volumes {
            let mut objects: Vec<(ObjectId, u32)> = Vec::new();
            for index in 0..groups {
                let id = GroupId { volume, index };
                let most = memory.saturating_sub(held.bytes() + objects.len() * BYTES) / BYTES;
                let found =
                    in_turns(remote, &mut map, id, |group, volume| all(remote, group, volume, id, most))?;
                if found.len() > most {
                    return Err(problem(
                        "bricks have more objects than fit into the memory",
                        "--memory with more, or without --bricks",
                    ));
                }
                objects.extend(found.into_iter().map(|object| (object, index)));
                objects.sort_unstable();
                objects.dedup_by_key(|(object, _)| *object);
                count += 1;
                told(count);
            }
            let (objects, groups) = objects.into_iter().unzip();
            held.by_volume.insert(volume, objects);
            held.groups.insert(volume, groups);
        }
        Ok(held)
    }

    fn group_of(&self, object: ObjectId) -> impl Iterator<Item = GroupId> {
        self.by_volume.iter().filter_map(move |(volume, objects)| {
            let at = objects.binary_search(&object).ok()?;
            Some(GroupId { volume: *volume, index: *self.groups.get(volume)?.get(at)? })
        })
    }

    /// Forgets objects without a file that the bricks do not have any more: they were purged meanwhile.
    pub(super) fn confirm(&self, remote: &Remote, found: &mut Vec<Found>) -> anyhow::Result<()> {
        let wanted = found.iter().filter_map(|one| match one.fault {
            Fault::Unowned { object } => Some(object),
            _ => None,
        });
        let wanted: Vec<ObjectId> = wanted.collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (mut map, mut gone) = (remote.status_of_shard()?.map, BTreeSet::new());
        for object in wanted {
            let mut is_there = false;
            for id in self.group_of(object) {
                let before = object.0.checked_sub(1).map(ObjectId);
                let before = before.map(|object| StripeKey { object, stripe: u64::MAX });
                is_there |= in_turns(remote, &mut map, id, |group, volume| {
                    for slot in slots_to_ask(group, volume, id) {
                        if page(remote, group, id, slot, before, 1)?.0.contains(&object) {
                            return Ok(true);
                        }
                    }
                    Ok(false)
                })?;
            }
            if !is_there {
                gone.insert(object);
            }
        }
        found.retain(|one| !matches!(one.fault, Fault::Unowned { object } if gone.contains(&object)));
        Ok(())
    }
}

/// All objects of a group, or more than `most`.
fn all(
    remote: &Remote,
    group: &Asked<'_>,
    volume: &VolumeInfo,
    id: GroupId,
    most: usize,
) -> Result<BTreeSet<ObjectId>, CallError> {
    let (mut objects, slots) = (BTreeSet::new(), slots_to_ask(group, volume, id));
    if slots.is_empty() {
        // A restored cluster does not know yet who has them.
        return Err(CallError::Refused(Refusal::NotServing));
    }
    for slot in slots {
        let mut after = None;
        loop {
            let (found, next) = page(remote, group, id, slot, after, PAGE)?;
            objects.extend(found);
            after = next;
            if after.is_none() || objects.len() > most {
                break;
            }
        }
    }
    Ok(objects)
}

/// Asks a group until it answers as a whole, in one epoch. A volume that is gone has nothing.
fn in_turns<T: Default>(
    remote: &Remote,
    map: &mut ClusterMap,
    id: GroupId,
    ask: impl Fn(&Asked<'_>, &VolumeInfo) -> Result<T, CallError>,
) -> anyhow::Result<T> {
    let mut why = String::new();
    for _ in 0..TRIES {
        let Some((volume, config)) = map.group(id) else { return Ok(T::default()) };
        match ask(&Asked { map, config }, volume) {
            Ok(answer) => return Ok(answer),
            Err(CallError::Refused(Refusal::Unknown)) => return Ok(T::default()),
            Err(error) => why = error.to_string(),
        }
        remote.pause(PAUSE_US);
        *map = remote.status_of_shard()?.map;
    }
    Err(problem(
        format!("the bricks of group {id} do not say what they hold: {why}"),
        "`shoal status` shows which bricks are missing; or without --bricks",
    ))
}

/// A group, as a map has it.
struct Asked<'a> {
    map: &'a ClusterMap,
    config: &'a GroupConfig,
}

/// Slots which together know all stripes of a group: one with parity knows each of them.
fn slots_to_ask(group: &Asked<'_>, volume: &VolumeInfo, id: GroupId) -> Vec<u8> {
    let code = volume.code_of(id.index);
    let is_live = |slot: &usize| group.config.slots[*slot].state == SlotState::Live;
    let live: Vec<usize> = (0..group.config.slots.len()).filter(is_live).collect();
    let with_parity = live.iter().copied().find(|slot| *slot >= code.k());
    let asked = with_parity.map_or(live, |slot| vec![slot]);
    asked.into_iter().map(|slot| slot as u8).collect()
}

/// Objects of which a slot has units above a key, and the key behind which others are. Of a long object that ends a page, the
/// rest is passed over.
fn page(
    remote: &Remote,
    group: &Asked<'_>,
    id: GroupId,
    slot: u8,
    after: Option<StripeKey>,
    limit: u32,
) -> Result<(BTreeSet<ObjectId>, Option<StripeKey>), CallError> {
    let brick = group.config.slots[usize::from(slot)].brick;
    let address = &group.map.brick(brick).ok_or(CallError::Unreachable)?.address;
    let list = UnitList { group: id, slot, of: slot, after, limit, only: Vec::new(), decided: Seq::NONE };
    let page = remote.primary(address, group.config.epoch, &list)?;
    let objects: BTreeSet<ObjectId> = page.units.iter().map(|unit| unit.key.object).collect();
    let rest = objects.last().map(|object| StripeKey { object: *object, stripe: u64::MAX });
    Ok((objects, page.upto.map(|upto| rest.map_or(upto, |rest| rest.max(upto)))))
}
