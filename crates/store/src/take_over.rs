//! A brick becomes the primary of a group's new epoch.
//!
//! ```text
//! NewEpoch ──▶ every live slot promises, sends its tail ──▶ settled: forwarded or aborted ──▶ Decide ──▶ served
//! ```
//!
//! The same routine serves a fail-over, a restarted primary, and a new volume. It ends early only if the arbiter has a
//! newer configuration. It needs every live slot: one that does not answer loses its lease, and the next epoch goes
//! without it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::join_all;
use types::code_probe::{CodeProbe, hit};
use types::messages::Done;
use types::messages::brick::{Decide, Decided, GroupDecision, NewEpoch, QueryDecisions};
use types::messages::cluster::{ClusterMap, GroupConfig};
use types::{BrickId, Buf, Epoch, GroupId, Refusal, Seq, ShardId};
use world::CallError;

use crate::primary::Settlement;
use crate::server::Server;

/// Pause before a slot is asked again, in microseconds.
const RETRY_US: u64 = 30_000;
/// How long a slot may take for a step, in microseconds.
const STEP_TIMEOUT_US: u64 = 5_000_000;
/// Decisions are sent after so long if no operation carries them, in microseconds.
const TELL_US: u64 = 10_000;
/// Time between looks for missing decisions, in microseconds. A slot asks for a decision that is missing at two looks
/// in a row.
const REMIND_US: u64 = 1_000_000;

impl Server {
    /// Finds the groups to take over or to leave in a new map of a shard.
    pub(crate) fn follow_map(self: &Rc<Server>, shard: ShardId, map: &ClusterMap) {
        for volume in &map.volumes {
            for (index, config) in volume.groups.iter().enumerate() {
                let code = volume.code_of(index as u32);
                let id = GroupId { volume: volume.id, index: index as u32 };
                let me = config.slot_of(self.options.brick);
                let known = self.primary.borrow().epoch(id);
                if known.is_some_and(|known| known >= config.epoch) {
                    continue;
                }
                match me.filter(|me| config.primary(code) == Some(*me)) {
                    Some(me) => {
                        self.primary.borrow_mut().begin(id, config.clone(), code, me);
                        self.world.spawn("take-over", self.clone().take_over(id, config.clone()));
                    }
                    None if known.is_some() => self.primary.borrow_mut().end(id),
                    None => {}
                }
            }
        }
        // The groups of removed volumes are gone too.
        let gone: Vec<GroupId> = {
            let primary = self.primary.borrow();
            let of_shard = primary.served().map(|(id, _)| id).filter(|id| id.volume.shard() == shard);
            of_shard.filter(|id| map.group(*id).is_none()).collect()
        };
        gone.into_iter().for_each(|id| self.primary.borrow_mut().end(id));
        let is_lost = |id: GroupId, brick| id.volume.shard() == shard && !map.is_up(brick);
        self.primary.borrow_mut().end_joins(is_lost);
        self.progress.notify();
    }

    async fn take_over(self: Rc<Server>, id: GroupId, config: GroupConfig) {
        let epoch = config.epoch;
        let live: Vec<(usize, BrickId)> = {
            let mask = config.live();
            let slots = config.slots.iter().enumerate();
            slots.filter(|(slot, _)| mask & 1 << slot != 0).map(|(slot, c)| (slot, c.brick)).collect()
        };
        let promises = live.iter().map(|(slot, brick)| self.promise(id, &config, *slot, *brick));
        let Some(settlement) = join_all(promises).await.into_iter().flatten().next() else {
            return hit(CodeProbe::TakeOverDied);
        };
        tracing::debug!(group = %id, %epoch, aborted = settlement.aborted.len(), "settled");
        let tells = live.iter().map(|(slot, brick)| self.tell_fate(id, epoch, *slot, *brick, &settlement));
        if join_all(tells).await.into_iter().any(|serving| serving) {
            tracing::debug!(group = %id, %epoch, "serving");
        } else {
            hit(CodeProbe::TakeOverDied);
        }
        self.progress.notify();
    }

    /// Makes one slot promise the epoch. The last promise yields the settlement.
    async fn promise(
        &self,
        id: GroupId,
        config: &GroupConfig,
        slot: usize,
        brick: BrickId,
    ) -> Option<Settlement> {
        let epoch = config.epoch;
        while self.primary.borrow().in_epoch(id, epoch).is_some() {
            let new = NewEpoch { group: id, config: config.clone(), map: self.map_of(id.volume).version };
            let answer = if brick == self.options.brick {
                self.new_epoch(new).await.map_err(CallError::Refused)
            } else {
                let address = self.address_in(id.volume, brick)?;
                let call = self.peers.call_within(STEP_TIMEOUT_US, &address, epoch, &new, Buf::empty());
                call.await.map(|(tail, _)| tail)
            };
            match answer {
                Ok(tail) => {
                    self.note_pressure(brick, tail.free, 0);
                    return self.primary.borrow_mut().promised(id, epoch, slot, tail);
                }
                Err(error) => self.pause(id, error).await,
            }
        }
        None
    }

    /// Sends one slot the fate of every operation before the epoch. True when it was the last slot.
    async fn tell_fate(
        &self,
        id: GroupId,
        epoch: Epoch,
        slot: usize,
        brick: BrickId,
        fate: &Settlement,
    ) -> bool {
        while self.primary.borrow().in_epoch(id, epoch).is_some() {
            let Settlement { upto, aborted, windows } = fate.clone();
            let decide = Decide { group: id, upto, aborted, windows };
            let answer = if brick == self.options.brick {
                self.decide(epoch, decide).await.map_err(CallError::Refused)
            } else {
                let Some(address) = self.address_in(id.volume, brick) else { return false };
                let call = self.peers.call_within(STEP_TIMEOUT_US, &address, epoch, &decide, Buf::empty());
                call.await.map(|(done, _)| done)
            };
            match answer {
                Ok(_) => return self.primary.borrow_mut().settled(id, epoch, slot),
                Err(error) => self.pause(id, error).await,
            }
        }
        false
    }

    async fn pause(&self, id: GroupId, error: CallError) {
        tracing::debug!(group = %id, %error, "a take-over step is tried again");
        if error == CallError::Refused(Refusal::StaleEpoch) {
            self.want_map(id.volume);
        }
        self.world.sleep(RETRY_US).await;
    }

    /// Sends slots the decisions that no operation has carried to them.
    pub(crate) async fn tell_decisions(self: Rc<Server>) {
        while !self.journal.has_failed() {
            self.undelivered.wait().await;
            self.world.sleep(TELL_US).await;
            let by_brick = self.primary.borrow_mut().undelivered();
            for (brick, groups) in by_brick {
                self.clone().tell(brick, groups);
            }
        }
    }

    /// A slot has not received decisions, or has forgotten them: they are sent again.
    pub(crate) fn remind(&self, remind: &QueryDecisions) -> Done {
        hit(CodeProbe::DecisionsQueried);
        self.primary.borrow_mut().resend(remind.brick, remind.groups.iter().copied());
        self.undelivered.notify();
        Done {}
    }

    /// Asks the primaries for decisions that this brick is waiting for. A restart may have lost a decision, because
    /// nobody waits until its record is durable, and in an idle group no operation carries it again.
    pub(crate) async fn ask_for_decisions(self: Rc<Server>) {
        let mut waiting: BTreeSet<(GroupId, Epoch, Seq)> = BTreeSet::new();
        while !self.journal.has_failed() {
            self.world.sleep(REMIND_US).await;
            let undecided: BTreeSet<_> = self.slot.borrow().undecided().collect();
            let overdue = waiting.intersection(&undecided).map(|(id, epoch, _)| (*id, *epoch));
            for (brick, groups) in self.by_primary(overdue) {
                let remind = QueryDecisions { brick: self.options.brick, groups };
                if brick == self.options.brick {
                    self.remind(&remind);
                } else if let Some(address) = self.address_of(brick) {
                    let peers = self.peers.clone();
                    // A lost question is sent again.
                    self.world.spawn("reminder", async move {
                        let _ = peers.call(&address, Epoch(0), &remind, Buf::empty()).await;
                    });
                }
            }
            waiting = undecided;
        }
    }

    /// Groups by their primary in this epoch. Groups of an older epoch get all decisions from a take-over.
    fn by_primary(
        &self,
        groups: impl Iterator<Item = (GroupId, Epoch)>,
    ) -> BTreeMap<BrickId, Vec<(GroupId, Epoch)>> {
        let mut by_primary: BTreeMap<BrickId, Vec<(GroupId, Epoch)>> = BTreeMap::new();
        for (id, epoch) in groups {
            let map = self.map_of(id.volume);
            let Some((volume, config)) = map.group(id).filter(|(_, config)| config.epoch == epoch) else {
                continue;
            };
            if let Some(slot) = config.primary(volume.code_of(id.index)) {
                by_primary.entry(config.slots[slot].brick).or_default().push((id, epoch));
            }
        }
        by_primary
    }

    fn tell(self: Rc<Server>, brick: BrickId, groups: Vec<GroupDecision>) {
        if brick == self.options.brick {
            // A failed disk ends the brick anyway, so the error needs no handling here.
            self.world.clone().spawn("decisions", async move {
                let _ = self.apply_decisions(&groups).await;
            });
        } else if let Some(address) = self.address_of(brick) {
            let decided = Decided { groups };
            self.world.clone().spawn("decisions", async move {
                if self.peers.call(&address, Epoch(0), &decided, Buf::empty()).await.is_err() {
                    self.world.sleep(RETRY_US).await;
                    let groups = decided.groups.iter().map(|decision| (decision.group, decision.epoch));
                    self.primary.borrow_mut().resend(brick, groups);
                    self.undelivered.notify();
                }
            });
        }
    }
}
