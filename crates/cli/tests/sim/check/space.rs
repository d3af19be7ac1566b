//! Space: once every file is gone, each brick has as many units, and as much free, as before the first was made.
//!
//! A brick that was away while a file was removed may still remember that units of it were zeros, until its journal has
//! gone on. It lists them without bytes, and they do not count.

use std::collections::BTreeMap;

use types::messages::brick::UnitList;
use types::messages::session::Role;
use types::{Buf, GroupId, Seq};
use world::{Peers, World};

use super::liveness::{RECOVERY_US, reports};
use crate::cluster::{brick_address, identity, map};

/// Pause between two looks, in microseconds.
const LOOK_US: u64 = 500_000;
/// Nothing changes by itself where nothing has changed for so long, in microseconds.
const REST_US: u64 = 3_000_000;

/// What a brick holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// Free bytes.
    pub(crate) free: u64,
    pub(crate) units: u64,
}

/// What every brick holds that answers.
pub(crate) async fn held(world: &World, bricks: u32) -> BTreeMap<u32, Held> {
    let reports = reports(world, bricks).await;
    reports
        .into_iter()
        .map(|report| (report.brick.0, Held { free: report.free, units: report.units }))
        .collect()
}

/// What every brick holds that answers, when that changes no more.
pub(crate) async fn at_rest(world: &World, bricks: u32) -> Result<BTreeMap<u32, Held>, String> {
    let deadline = world.now() + RECOVERY_US;
    let mut before = held(world, bricks).await;
    loop {
        world.sleep(REST_US).await;
        let now = held(world, bricks).await;
        if now == before {
            return Ok(now);
        }
        if world.now() > deadline {
            return Err(format!(
                "what bricks hold still changes after {RECOVERY_US} us: {before:?}, {now:?}"
            ));
        }
        before = now;
    }
}

/// The units that a brick lists without bytes.
async fn zeros_of(world: &World, brick: u32) -> u64 {
    let peers = Peers::new(world.clone(), identity(Role::Brick));
    let mut zeros = 0;
    for volume in map(world).await.volumes {
        for (index, group) in volume.groups.iter().enumerate() {
            let Some(slot) = group.slots.iter().position(|slot| slot.brick.0 == brick) else { continue };
            let (id, slot) = (GroupId { volume: volume.id, index: index as u32 }, slot as u8);
            let (limit, decided) = (1000, Seq::NONE);
            let list = UnitList { group: id, slot, of: slot, after: None, limit, only: Vec::new(), decided };
            let address = brick_address(brick);
            let page = peers.call_within(1_000_000, &address, group.epoch, &list, Buf::empty()).await;
            let units = page.map_or(Vec::new(), |(page, _)| page.units);
            zeros += units.iter().filter(|unit| unit.blocks == 0 && !unit.dirty).count() as u64;
        }
    }
    zeros
}

/// Waits until every brick that answers, and did at first, holds what it did then.
pub(crate) async fn all_back(world: &World, bricks: u32, first: &BTreeMap<u32, Held>) -> Result<(), String> {
    let deadline = world.now() + RECOVERY_US;
    loop {
        let mut short = Vec::new();
        for (brick, mut held) in held(world, bricks).await {
            let Some(first) = first.get(&brick) else { continue };
            if held.free == first.free && held.units > first.units {
                held.units = held.units.saturating_sub(zeros_of(world, brick).await).max(first.units);
            }
            if held != *first {
                short.push(format!("b{brick}: {held:?}, at first {first:?}"));
            }
        }
        if short.is_empty() {
            return Ok(());
        }
        if world.now() > deadline {
            return Err(format!("space is lost, {RECOVERY_US} us after everything was removed: {short:?}"));
        }
        world.sleep(LOOK_US).await;
    }
}
