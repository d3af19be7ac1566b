//! A volume's space.

use std::collections::BTreeMap;

use types::messages::cluster::{BrickInfo, BrickState, ClusterMap, Tier, VolumeInfo};
use types::messages::names::{Space, StatFs};
use types::{BrickId, Refusal};

use crate::keys;
use crate::kv::Txn;

/// Placement spreads a volume's bytes evenly over its slots, so the brick with the least space per slot fills up first,
/// and then the volume is full.
pub(crate) fn statfs(txn: &Txn<'_>, map: &ClusterMap, request: &StatFs) -> Result<Space, Refusal> {
    txn.table(request.volume)?;
    let volume = map.volume(request.volume).ok_or(Refusal::Unknown)?;
    let capacity = |brick: &BrickInfo| (brick.id, brick.capacity);
    let mut capacities: Left = types::cost::walked(&map.bricks).map(capacity).collect();
    // A brick that is Out gets no new bytes; the other slots of its groups do.
    let up = map.bricks.iter().filter(|brick| brick.state == BrickState::Up);
    let mut free_bytes: Left = up.map(|brick| (brick.id, brick.free)).collect();
    let (mut total, mut free) = (0u64, 0u64);
    // Bricks may hold units of several tiers. The first tier, where files begin, comes first.
    for tier in volume.all_tiers() {
        let slots = slots_of(volume, &tier);
        let raw_total = take(&mut capacities, &slots).unwrap_or(0);
        let raw_free = take(&mut free_bytes, &slots).unwrap_or(raw_total).min(raw_total);
        total = total.saturating_add(data_bytes(&tier, raw_total));
        free = free.saturating_add(data_bytes(&tier, raw_free));
    }
    let inodes = txn.get::<u64>(&keys::usage(request.volume))?.unwrap_or(0);
    Ok(Space { total, free, inodes })
}

/// Bytes that are left on bricks.
type Left = BTreeMap<BrickId, u64>;

/// How many slots of a tier each brick has.
fn slots_of(volume: &VolumeInfo, tier: &Tier) -> BTreeMap<BrickId, u64> {
    let mut slots = BTreeMap::new();
    let groups = volume.groups.get(tier.groups.start as usize..tier.groups.end as usize);
    for slot in groups.into_iter().flatten().flat_map(|group| &group.slots) {
        *slots.entry(slot.brick).or_default() += 1;
    }
    slots
}

/// Takes as many bytes for a tier as fit, and returns how many; [`None`] if no brick of it is known.
fn take(left: &mut Left, slots: &BTreeMap<BrickId, u64>) -> Option<u64> {
    let all: u64 = slots.values().sum();
    let part = |bytes: u64, of: u64, parts: u64| {
        u64::try_from(u128::from(bytes) * u128::from(parts) / u128::from(of)).unwrap_or(u64::MAX)
    };
    let fits = slots.iter().filter_map(|(brick, count)| Some(part(*left.get(brick)?, *count, all)));
    let taken = fits.min()?;
    for (brick, count) in slots {
        if let Some(bytes) = left.get_mut(brick) {
            *bytes = bytes.saturating_sub(part(taken, all, *count));
        }
    }
    Some(taken)
}

/// The data among raw bytes of a tier.
fn data_bytes(tier: &Tier, raw: u64) -> u64 {
    let code = tier.geometry.code();
    let bytes = u128::from(raw) * code.k() as u128 / code.slots() as u128;
    u64::try_from(bytes).expect("a part of a u64 fits")
}
