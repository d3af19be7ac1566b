//! The objects that bricks hold, asked from the slots of all groups.

use std::collections::BTreeSet;

use meta::check::{Fault, Found, Held};
use types::messages::brick::UnitList;
use types::messages::cluster::{ClusterMap, GroupConfig, SlotState, VolumeInfo};
use types::{GroupId, ObjectId, Refusal, Seq, StripeKey};
use world::CallError;

use crate::problem::problem;
use crate::remote::Remote;

/// Units of a page.
const PAGE: u32 = 4096;
/// How often a group is asked again that changes or is not served, and the pause before it, in microseconds.
const TRIES: u32 = 20;
const PAUSE_US: u64 = 500_000;

/// Finds the objects of all volumes that any brick holds.
pub(super) fn held(remote: &Remote, memory: usize, told: &dyn Fn(u64)) -> anyhow::Result<Held> {
    let (mut map, mut held, mut count) = (remote.status()?.map, Held::new(), 0);
    let volumes: Vec<_> = map.volumes.iter().map(|volume| (volume.id, volume.groups.len() as u32)).collect();
    for (volume, groups) in volumes {
        let mut objects = BTreeSet::new();
        for index in 0..groups {
            let id = GroupId { volume, index };
            objects.extend(in_turns(remote, &mut map, id, |group, volume| {
                let mut objects = BTreeSet::new();
                for slot in slots_to_ask(group, volume, id) {
                    let mut after = None;
                    loop {
                        let page = page(remote, group, id, slot, after, PAGE)?;
                        objects.extend(page.0);
                        after = page.1;
                        if after.is_none() {
                            break;
                        }
                    }
                }
                Ok(objects)
            })?);
            count += 1;
            told(count);
            if objects.len() * size_of::<ObjectId>() > memory {
                return Err(problem(
                    "bricks have more objects than fit into the memory",
                    "--memory with more",
                ));
            }
        }
        held.insert(volume, objects.into_iter().collect());
    }
    Ok(held)
}

/// Forgets objects without a file that the bricks do not have any more: they were purged meanwhile.
pub(super) fn confirm(remote: &Remote, held: &Held, found: &mut Vec<Found>) -> anyhow::Result<()> {
    let mut map = remote.status()?.map;
    let mut gone = BTreeSet::new();
    for one in found.iter() {
        let Fault::Unowned { object } = one.fault else { continue };
        let Some(volume) = held.iter().find(|(_, objects)| objects.binary_search(&object).is_ok()) else {
            continue;
        };
        let groups = map.volume(*volume.0).map_or(0, |volume| volume.groups.len() as u32);
        let mut is_there = false;
        for index in 0..groups {
            let id = GroupId { volume: *volume.0, index };
            is_there |= in_turns(remote, &mut map, id, |group, volume| {
                let before = object
                    .0
                    .checked_sub(1)
                    .map(|number| StripeKey { object: ObjectId(number), stripe: u64::MAX });
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
        *map = remote.status()?.map;
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
