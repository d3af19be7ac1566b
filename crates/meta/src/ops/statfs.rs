//! A volume's space.

use std::collections::BTreeMap;

use types::messages::cluster::{BrickState, ClusterMap, Tier, VolumeInfo};
use types::messages::names::{Space, StatFs};
use types::{BrickId, Refusal};

use crate::keys;
use crate::kv::Txn;

/// Placement spreads a volume's bytes evenly over its slots, so the brick with the least space per slot fills up first,
/// and then the volume is full.
pub(crate) fn statfs(txn: &Txn<'_>, map: &ClusterMap, request: &StatFs) -> Result<Space, Refusal> {
    txn.table(request.volume)?;
    let volume = map.volume(request.volume).ok_or(Refusal::Unknown)?;
    // Each tier on its own; bricks that hold units of two tiers count in both, so that their room counts twice.
    let (mut total, mut free) = (0u64, 0u64);
    for tier in volume.all_tiers() {
        let space = tier_space(map, volume, &tier);
        (total, free) = (total.saturating_add(space.0), free.saturating_add(space.1));
    }
    let inodes = txn.get::<u64>(&keys::usage(request.volume))?.unwrap_or(0);
    Ok(Space { total, free, inodes })
}

/// The data bytes that a tier can take, and those that are free.
fn tier_space(map: &ClusterMap, volume: &VolumeInfo, tier: &Tier) -> (u64, u64) {
    let mut slots: BTreeMap<BrickId, u64> = BTreeMap::new();
    let groups = volume.groups.get(tier.groups.start as usize..tier.groups.end as usize);
    for slot in groups.into_iter().flatten().flat_map(|group| &group.slots) {
        *slots.entry(slot.brick).or_default() += 1;
    }
    let all: u64 = slots.values().sum();
    // A brick that is Out gets no new bytes; the other slots of its groups do.
    let (mut total, mut free) = (u64::MAX, u64::MAX);
    for (brick, count) in &slots {
        let Some(brick) = map.brick(*brick) else { continue };
        let scaled = |bytes: u64| u64::try_from(u128::from(bytes) * u128::from(all) / u128::from(*count));
        total = total.min(scaled(brick.capacity).unwrap_or(u64::MAX));
        if brick.state == BrickState::Up {
            free = free.min(scaled(brick.free).unwrap_or(u64::MAX));
        }
    }
    let (code, total) = (tier.geometry.code(), if total == u64::MAX { 0 } else { total });
    let data = |raw: u64| {
        let bytes = u128::from(raw) * code.k() as u128 / code.slots() as u128;
        u64::try_from(bytes).expect("a part of a u64 fits")
    };
    (data(total), data(free.min(total)))
}
