//! Parity at rest: the units of every stripe are read from their bricks, one of the code's subsets is encoded or decoded
//! again, and every other unit must be what that gives. Nothing of the store's own code computes here but the coder.

use std::cell::RefCell;
use std::collections::BTreeSet;

use layout::{Coder, group_of};
use types::limits::BLOCK;
use types::messages::brick::ReadBase;
use types::messages::cluster::{GroupConfig, SlotConfig, SlotState, Tier, VolumeInfo};
use types::messages::session::Role;
use types::{Buf, GroupId, ObjectId, Refusal, Seq, StripeKey};
use world::{CallError, Peers, World};

use crate::cluster::{brick_address, identity, map};

/// How often a brick is asked before its unit counts as not there.
const TRIES: u32 = 100;

/// How often a stripe whose units differ is read again, and after which time, in microseconds.
const AGAIN: u32 = 3;
const AGAIN_US: u64 = 3_000_000;

/// What was compared.
#[derive(Clone, Copy, Default)]
pub(crate) struct Compared {
    pub(crate) stripes: u64,
    /// Units beyond the K that a stripe is decoded from.
    pub(crate) units: u64,
    pub(crate) damaged: u64,
}

pub(crate) struct ParityCheck<'a> {
    world: &'a World,
    peers: Peers,
    /// A fold that meets a damaged block has the epoch changed: the newest map counts.
    volume: RefCell<VolumeInfo>,
    harmed: BTreeSet<u32>,
}

impl<'a> ParityCheck<'a> {
    /// `harmed`: bricks that may never be at rest.
    pub(crate) fn new(world: &'a World, volume: VolumeInfo, harmed: BTreeSet<u32>) -> ParityCheck<'a> {
        let peers = Peers::new(world.clone(), identity(Role::Client));
        ParityCheck { world, peers, volume: RefCell::new(volume), harmed }
    }

    fn tier(&self, object: ObjectId) -> Tier {
        self.volume.borrow().tier_of(object).expect("the volume has the tier of each of its objects")
    }

    /// Compares every stripe of an object of so many bytes, at rest.
    pub(crate) async fn object(&self, object: ObjectId, size: u64, sum: &mut Compared) -> Result<(), String> {
        let stripes = self.tier(object).geometry.stripes(size);
        self.stripes(object, 0..stripes, sum).await
    }

    /// Compares some stripes of an object, at rest.
    pub(crate) async fn stripes(
        &self,
        object: ObjectId,
        stripes: impl Iterator<Item = u64>,
        sum: &mut Compared,
    ) -> Result<(), String> {
        let (volume, tier) = (self.volume.borrow().id, self.tier(object));
        for stripe in stripes {
            let id = group_of(volume, object, tier.geometry.extent(stripe), &tier.groups);
            self.stripe(id, StripeKey { object, stripe }, sum).await?;
        }
        Ok(())
    }

    /// Compares a stripe. Nobody waits until a harmed brick has folded, so one may fold between the reads of two units: where a
    /// group has such a brick, what differs is read again.
    async fn stripe(&self, id: GroupId, key: StripeKey, sum: &mut Compared) -> Result<(), String> {
        let before = *sum;
        let is_harmed = |slot: &SlotConfig| self.harmed.contains(&slot.brick.0);
        let again = if self.config(id).slots.iter().any(is_harmed) { AGAIN } else { 0 };
        for _ in 0..again {
            match self.stripe_now(id, key, sum).await {
                Ok(()) => return Ok(()),
                Err(why) => tracing::info!(why, "compared again"),
            }
            *sum = before;
            self.world.sleep(AGAIN_US).await;
        }
        self.stripe_now(id, key, sum).await
    }

    async fn stripe_now(&self, id: GroupId, key: StripeKey, sum: &mut Compared) -> Result<(), String> {
        let geometry = self.tier(key.object).geometry;
        let code = geometry.code();
        let coder = Coder::new(code);
        let mut units: Vec<(usize, Vec<u8>)> = Vec::new();
        for slot in 0..code.slots() {
            if self.config(id).slots[slot].state != SlotState::Live {
                continue;
            }
            match self.unit(id, key, slot, geometry.unit()).await? {
                Some(bytes) => units.push((slot, bytes)),
                None => sum.damaged += 1,
            }
        }
        sum.stripes += 1;
        let Some((sources, others)) = units.split_at_checked(code.k()) else { return Ok(()) };
        let sources: Vec<(usize, &[u8])> = sources.iter().map(|(slot, bytes)| (*slot, &**bytes)).collect();
        for (slot, found) in others {
            let mut expected = vec![0; geometry.unit()];
            let mut missing = [(*slot, &mut expected[..])];
            coder.decode(&sources, &mut missing).map_err(|error| format!("{key}: {error:?}"))?;
            if expected != *found {
                let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(0);
                let from: Vec<usize> = sources.iter().map(|(slot, _)| *slot).collect();
                let bricks: Vec<u32> = self.config(id).slots.iter().map(|slot| slot.brick.0).collect();
                return Err(format!(
                    "{id} {key} on {bricks:?}: slot {slot} is not what {from:?} give, from byte {at} on"
                ));
            }
            sum.units += 1;
        }
        Ok(())
    }

    fn config(&self, id: GroupId) -> GroupConfig {
        self.volume.borrow().groups[id.index as usize].clone()
    }

    /// A unit as its brick has it, zeros to its end; `None` if it cannot be read.
    async fn unit(
        &self,
        id: GroupId,
        key: StripeKey,
        slot: usize,
        len: usize,
    ) -> Result<Option<Vec<u8>>, String> {
        let read = ReadBase {
            group: id,
            key,
            slot: slot as u8,
            offset: 0,
            len: len as u32,
            identity: None,
            upto: Seq::NONE,
            decided: Vec::new(),
        };
        for _ in 0..TRIES {
            let config = self.config(id);
            let address = brick_address(config.slots[slot].brick.0);
            match self.peers.call_within(1_000_000, &address, config.epoch, &read, Buf::empty()).await {
                Ok((_, bytes)) => {
                    let mut bytes = bytes.to_vec();
                    bytes.resize(len.next_multiple_of(BLOCK), 0);
                    return Ok(Some(bytes));
                }
                Err(CallError::Refused(Refusal::Corrupt)) => return Ok(None),
                Err(CallError::Refused(Refusal::StaleEpoch)) => {
                    *self.volume.borrow_mut() = map(self.world).await.volumes.remove(0);
                }
                Err(error) => tracing::debug!(%key, slot, %error, "asked again"),
            }
            self.world.sleep(50_000).await;
        }
        Err(format!("{id} {key}: slot {slot} does not answer at rest"))
    }
}
