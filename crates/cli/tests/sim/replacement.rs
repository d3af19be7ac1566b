//! A brick is lost for good, and one that has no slot yet takes its place.

use types::messages::cluster::{BrickReplace, BrickState, ClusterMap, ReplaceErrorKind};
use types::messages::session::Role;
use types::{BrickId, Buf, Epoch};
use world::{Peers, World};

use crate::check::liveness::{self, RECOVERY_US};
use crate::cluster::{brick_node, identity, map, meta};
use crate::storm::Storm;

/// Pause between two looks, in microseconds.
const LOOK_US: u64 = 200_000;

impl Storm<'_> {
    /// Starts the brick that gets no slot of the new volume, if there is one.
    pub(crate) async fn start_spare(&self, world: &World) {
        let Some(spare) = self.config.spare else { return };
        self.cluster.start_brick(spare);
        let is_up =
            |map: &ClusterMap| map.brick(BrickId(spare)).is_some_and(|brick| brick.state == BrickState::Up);
        while !is_up(&map(world).await) {
            world.sleep(LOOK_US).await;
        }
    }

    /// The brick to be replaced: one that is dead, or, where all are well, any.
    fn to_replace(&self, spare: u32) -> Option<u32> {
        let dead = self.dead.borrow().iter().find(|brick| **brick != spare).copied();
        let any = self.prng.below(u64::from(spare)) as u32;
        dead.or_else(|| Some(any).filter(|_| self.config.parity > 0 && self.harmed().is_empty()))
    }

    /// A brick is gone for good, and the spare one takes its place and is brought level.
    pub(crate) async fn replace_a_brick(&self, world: &World) {
        let Some(spare) = self.config.spare else { return };
        let Some(old) = self.to_replace(spare).filter(|_| !self.harmed().contains(&spare)) else { return };
        self.cluster.sim.kill(&brick_node(old));
        self.dead.borrow_mut().insert(old);
        let peers = Peers::new(world.clone(), identity(Role::Client));
        let request = BrickReplace { old: BrickId(old), new: BrickId(spare) };
        let deadline = world.now() + RECOVERY_US;
        loop {
            let why = match peers.call(meta(), Epoch(0), &request, Buf::empty()).await {
                Ok((reply, _)) => match reply.error {
                    None => break,
                    // Its lease has not run out yet, or its slots are still live.
                    Some(error)
                        if matches!(error.what, ReplaceErrorKind::OldUp | ReplaceErrorKind::Needed) =>
                    {
                        format!("{error:?}")
                    }
                    Some(error) => panic!("seed {}: b{spare} cannot replace b{old}: {error:?}", self.seed),
                },
                Err(error) => error.to_string(),
            };
            assert!(world.now() < deadline, "seed {}: b{old} is not replaced: {why}", self.seed);
            world.sleep(LOOK_US).await;
        }
        self.replaced.set(Some(old));
        let dead = self.dead.borrow().clone();
        self.must(liveness::all_live(world, &dead).await);
        self.tally.borrow_mut().replaced += 1;
    }
}
