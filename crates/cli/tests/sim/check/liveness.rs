//! When the faults have stopped, everything comes clean within a bounded time.

use std::collections::BTreeSet;

use types::messages::brick::{BrickReport, BrickStatus};
use types::messages::cluster::{ClusterMap, SlotState};
use types::messages::session::Role;
use types::{Buf, Code, Epoch, GroupId};
use world::{Peers, World};

use crate::cluster::{brick_address, identity, map};

/// Time for everything to come clean, in microseconds.
pub(crate) const RECOVERY_US: u64 = 60_000_000;
/// Pause between two looks, in microseconds.
const LOOK_US: u64 = 100_000;

/// What every brick tells of itself; the silent ones are left out.
pub(crate) async fn reports(world: &World, bricks: u32) -> Vec<BrickReport> {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let mut reports = Vec::new();
    for brick in 0..bricks {
        let address = brick_address(brick);
        let asked = peers.call_within(1_000_000, &address, Epoch(0), &BrickStatus {}, Buf::empty()).await;
        reports.extend(asked.ok().map(|(report, _)| report));
    }
    reports
}

/// Groups that have the slots to be read, and of which nobody says that he serves them.
fn unserved(map: &ClusterMap, reports: &[BrickReport], lost: &BTreeSet<u32>) -> Vec<GroupId> {
    let mut unserved = Vec::new();
    for volume in &map.volumes {
        for (index, config) in volume.groups.iter().enumerate() {
            let code: Code = volume.code_of(index as u32);
            let id = GroupId { volume: volume.id, index: index as u32 };
            let live =
                config.slots.iter().filter(|s| s.state == SlotState::Live && !lost.contains(&s.brick.0));
            let primary = config.primary(code).map(|slot| config.slots[slot].brick);
            let served = reports.iter().any(|r| Some(r.brick) == primary && r.primary_of.contains(&id));
            if live.count() >= code.k() && !served {
                unserved.push(id);
            }
        }
    }
    unserved
}

/// Waits until every group that can be served is, by its primary.
pub(crate) async fn all_served(world: &World, bricks: u32, lost: &BTreeSet<u32>) -> Result<(), String> {
    let deadline = world.now() + RECOVERY_US;
    loop {
        let reports = reports(world, bricks).await;
        let waiting = unserved(&map(world).await, &reports, lost);
        if waiting.is_empty() {
            return Ok(());
        }
        if world.now() > deadline {
            return Err(format!("nobody serves {waiting:?} {RECOVERY_US} us after the last fault"));
        }
        world.sleep(LOOK_US).await;
    }
}

/// Slots that are not live although their bricks could serve them.
fn not_live(map: &ClusterMap, lost: &BTreeSet<u32>) -> Vec<(GroupId, u32)> {
    let mut slots = Vec::new();
    for volume in &map.volumes {
        for (index, config) in volume.groups.iter().enumerate() {
            let id = GroupId { volume: volume.id, index: index as u32 };
            let out =
                config.slots.iter().filter(|s| s.state != SlotState::Live && !lost.contains(&s.brick.0));
            slots.extend(out.map(|slot| (id, slot.brick.0)));
        }
    }
    slots
}

/// Waits until every slot is live whose brick could serve it: those that were put Out have been brought level.
pub(crate) async fn all_live(world: &World, lost: &BTreeSet<u32>) -> Result<(), String> {
    let deadline = world.now() + RECOVERY_US;
    loop {
        let waiting = not_live(&map(world).await, lost);
        if waiting.is_empty() {
            return Ok(());
        }
        if world.now() > deadline {
            return Err(format!("not live {RECOVERY_US} us after the last fault: {waiting:?}"));
        }
        world.sleep(LOOK_US).await;
    }
}

/// Waits until no brick with all of its slots live has overlays: everything is folded.
pub(crate) async fn all_folded(world: &World, bricks: u32, out: &BTreeSet<u32>) -> Result<(), String> {
    let deadline = world.now() + RECOVERY_US;
    loop {
        let reports = reports(world, bricks).await;
        let left: Vec<_> = reports
            .iter()
            .filter(|report| report.overlays > 0 && !out.contains(&report.brick.0))
            .map(|report| (report.brick, report.overlays))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if world.now() > deadline {
            return Err(format!("overlays are left {RECOVERY_US} us after the last write: {left:?}"));
        }
        world.sleep(LOOK_US).await;
    }
}
