//! The primaries read every unit of a volume, encode again and compare, as `shoal volume verify` has them do.

use types::messages::brick::Verify;
use types::messages::session::Role;
use types::{Buf, GroupId};
use world::{Peers, World};

use super::liveness::RECOVERY_US;
use crate::cluster::{brick_address, identity, map};

/// Stripes of a request.
const PAGE: u32 = 64;
/// Pause before a group is asked again, in microseconds.
const PAUSE_US: u64 = 200_000;

/// What was verified.
#[derive(Clone, Copy, Default)]
pub(crate) struct Verification {
    pub(crate) stripes: u64,
    pub(crate) damaged: u64,
}

/// Verifies every group of the one volume. Units that do not fit are an error.
pub(crate) async fn all_groups(world: &World) -> Result<Verification, String> {
    let groups = map(world).await.volumes.first().map_or(0, |volume| volume.groups.len());
    let mut sum = Verification::default();
    for index in 0..groups as u32 {
        let found = group(world, index).await?;
        sum.stripes += found.stripes;
        sum.damaged += found.damaged;
    }
    Ok(sum)
}

async fn group(world: &World, index: u32) -> Result<Verification, String> {
    let peers = Peers::new(world.clone(), identity(Role::Client));
    let (mut found, mut after) = (Verification::default(), None);
    let deadline = world.now() + RECOVERY_US;
    loop {
        let map = map(world).await;
        let volume = map.volumes.first().ok_or("there is no volume")?;
        let (id, config) = (GroupId { volume: volume.id, index }, &volume.groups[index as usize]);
        let primary = config.primary(volume.code_of(index)).map(|slot| config.slots[slot].brick);
        let address = brick_address(primary.map_or(0, |brick| brick.0));
        let request = Verify { group: id, after, limit: PAGE };
        match peers.call_within(10_000_000, &address, config.epoch, &request, Buf::empty()).await {
            Ok((page, _)) => {
                found.stripes += page.stripes;
                found.damaged += page.damaged.len() as u64;
                if let Some(fault) = page.mismatched.first() {
                    return Err(format!(
                        "{id} {}: slots {:#b} do not fit the others",
                        fault.key, fault.slots
                    ));
                }
                match page.next {
                    None => return Ok(found),
                    next => after = next,
                }
            }
            Err(error) if world.now() > deadline => return Err(format!("{id} cannot be verified: {error}")),
            Err(_) => world.sleep(PAUSE_US).await,
        }
    }
}
