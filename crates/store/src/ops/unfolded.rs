//! Data slots report overlays that the primary of their group does not know. The primary folds them.
//!
//! A parity slot has every overlay of its group. If no parity slot is live, a data slot is the primary. Of the
//! overlays from before its time it has only those over its own unit. The other data slots have the rest and report
//! them.
//!
//! ```text
//! data slot                                            primary, a data slot too
//!    ├── Unfolded: stripes, once a second ────────────────▶│ notes them, until it folds anyway
//!    │                                                     │ one of them, in its lane:
//!    │◀─────────────── UnitList: does it still have overlays? ──────┤
//!    │◀─────────────── the stripe is read and written whole ────────┤ fold.rs
//! ```
//!
//! A report is only a hint: it may be lost, late, duplicated or wrong. Nobody has to remember it, because stripes
//! that are not folded are reported again.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::UNFOLDED_MAX;
use types::messages::Done;
use types::messages::brick::{Unfolded, UnitList};
use types::{BrickId, Buf, Epoch, GroupId, Refusal, StripeKey};

use super::stripe::Stripe;
use crate::server::Server;

/// Time between two messages to a primary, in microseconds.
const TELL_US: u64 = 1_000_000;
/// Most stripes that a primary notes.
const NOTED_MAX: usize = 4 * UNFOLDED_MAX;

impl Server {
    /// Reports stripes with overlays to primaries that may not know these, part by part if there are many.
    pub(crate) async fn tell_unfolded(self: Rc<Server>) {
        let mut after = None;
        while !self.journal.has_failed() {
            self.world.sleep(TELL_US).await;
            let primaries = self.primaries_without_parity();
            let before = |id: GroupId| primaries.get(&id).map(|(epoch, _)| *epoch);
            let found = self.slot.borrow().overlaid_before(before, after, UNFOLDED_MAX);
            assert!(found.len() <= UNFOLDED_MAX, "the primary would refuse the whole report, each time");
            // Continue after this part, or start over at the end.
            after = found.last().filter(|_| found.len() == UNFOLDED_MAX).map(|(key, _)| *key);
            let mut by_brick: BTreeMap<BrickId, Vec<(GroupId, StripeKey)>> = BTreeMap::new();
            for (key, id) in found {
                by_brick.entry(primaries[&id].1).or_default().push((id, key));
            }
            for (brick, stripes) in by_brick {
                let Some(address) = self.address_of(brick) else { continue };
                let peers = self.peers.clone();
                // A lost report is sent again.
                self.world.spawn("unfolded", async move {
                    let _ = peers.call(&address, Epoch(0), &Unfolded { stripes }, Buf::empty()).await;
                });
            }
        }
    }

    /// Groups in which this brick serves a data slot and another one leads, with their epochs and primaries.
    fn primaries_without_parity(&self) -> BTreeMap<GroupId, (Epoch, BrickId)> {
        let (me, mut primaries) = (self.options.brick, BTreeMap::new());
        let slot = self.slot.borrow();
        if slot.overlay_bytes() == 0 {
            return primaries;
        }
        let maps: Vec<_> = self.shards.all().iter().map(|shard| shard.map.borrow().clone()).collect();
        for volume in maps.iter().flat_map(|map| &map.volumes) {
            for (index, config) in volume.groups.iter().enumerate() {
                let code = volume.code_of(index as u32);
                let id = GroupId { volume: volume.id, index: index as u32 };
                let Some(primary) = config.primary(code).filter(|primary| *primary < code.k()) else {
                    continue;
                };
                let brick = config.slots[primary].brick;
                let live = config.slot_of(me).is_some_and(|slot| config.live() & 1 << slot != 0);
                if brick != me && live && slot.served(id) == Some(config.epoch) {
                    primaries.insert(id, (config.epoch, brick));
                }
            }
        }
        primaries
    }

    /// Notes stripes that another brick has reported.
    pub(crate) fn unfolded(&self, told: Unfolded) -> Result<Done, Refusal> {
        if told.stripes.len() > UNFOLDED_MAX {
            return Err(Refusal::Malformed);
        }
        let mut noted = self.unfolded.borrow_mut();
        for (id, key) in told.stripes {
            if noted.len() >= NOTED_MAX {
                break;
            }
            noted.insert(key, id);
        }
        assert!(noted.len() <= NOTED_MAX, "reports of other bricks could fill the RAM");
        Ok(Done {})
    }

    /// Takes up to `max` reported stripes of the groups in question.
    pub(super) fn take_unfolded(
        &self,
        of: impl Fn(GroupId) -> bool,
        max: usize,
    ) -> Vec<(StripeKey, GroupId)> {
        let mut noted = self.unfolded.borrow_mut();
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some((key, id)) = noted.pop_first()
        {
            if of(id) {
                taken.push((key, id));
            }
        }
        taken
    }

    /// Whether a stripe has overlays. The caller holds its lane. A data slot asks the other slots.
    pub(super) async fn is_overlaid(&self, stripe: &Stripe<'_>) -> Result<bool, Refusal> {
        if !stripe.shape.overlays.is_empty() {
            return Ok(true);
        }
        let (me, k) = (stripe.me, stripe.geometry.code().k());
        if me >= k {
            return Ok(false);
        }
        let others = (0..k).filter(|slot| *slot != me && stripe.is_live(*slot));
        let answers = join_all(others.map(|slot| self.has_news(stripe, slot))).await;
        Ok(answers.into_iter().collect::<Result<Vec<bool>, Refusal>>()?.contains(&true))
    }

    /// Whether a data slot has overlays over its unit.
    async fn has_news(&self, stripe: &Stripe<'_>, slot: usize) -> Result<bool, Refusal> {
        let list = UnitList {
            group: stripe.id,
            slot: slot as u8,
            of: slot as u8,
            after: None,
            limit: 1,
            only: vec![stripe.key],
            decided: self.primary.borrow().decided(stripe.id),
        };
        let (page, _) = self.ask(stripe.brick(slot), stripe.epoch, &list).await?;
        Ok(page.units.iter().any(|unit| unit.key == stripe.key && unit.dirty))
    }
}
