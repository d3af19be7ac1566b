//! The life of a write at its primary.
//!
//! ```text
//! Write ──▶ admitted (lease, epoch, space, not seen before) ──▶ answered: unstable
//!             └─▶ the stripe's lane ─▶ planned ─▶ ordered ─▶ Prepare to every live participant ─▶ committed: stable
//!                                        │
//!              whole stripe, or nothing there yet: Full, straight to fresh space
//!              small, over something:              Overlay, into the journals of touched data and all parity
//!              large, or a journal full:           the rest is read, then Full
//! ```
//!
//! # Invariants
//! - The participants of an operation are every parity slot, the primary itself and the touched data slots, and no
//!   others.
//! - A Full of an existing stripe replaces all its units and carries the length of each.
//! - Every byte of a write is in the part of one data slot, and in the part of each slot that needs the whole write
//!   (parity and primary).
//! - An operation is delivered in the epoch of its number. A decision is never taken back.

mod plan;

use std::rc::Rc;

use futures_util::future::{OptionFuture, join, join_all};
use types::checksum::crc_blocks;
use types::code_probe::{CodeProbe, hit};
use types::limits::BLOCK;
use types::messages::Done;
use types::messages::brick::{OpKind, Prepare, Sync, Write, WriteId, spans_len};
use types::messages::cluster::GroupRenew;
use types::{BrickId, Buf, BufMut, Epoch, Geometry, GroupId, Refusal, Seq, StripeKey};
use world::CallError;
use world::trace::{Stage, span};

pub(crate) use self::plan::Plan;
use self::plan::{Part, lay_write_over, pad_to_block, plan_overlay, plan_staged, without_end_of_zeros};
use super::stripe::Stripe;
use crate::primary::Order;
use crate::server::{Server, count};

/// Largest overlay, in bytes: it must fit a journal segment with room to spare.
const OVERLAY_MAX: usize = 256 << 10;
/// Journal fill, in per cent, from which writes wait for folds to make room.
const JOURNAL_PRESSED: u8 = 50;
/// Journal fill, in per cent, from which no overlays are added: there may be no space to fold them into, and an
/// overlay that waits for room in the journal would block the fold of its stripe.
const JOURNAL_FULL: u8 = 60;
/// How long a write waits for folds, in microseconds. The wait is bounded because there may be no space to fold into.
const JOURNAL_WAIT_US: u64 = 2_000_000;
/// How long a slot may take to hold an operation before it is asked again, in microseconds.
const PREPARE_TIMEOUT_US: u64 = 5_000_000;
/// Pause before something is tried again, in microseconds.
const RETRY_US: u64 = 20_000;

/// Checks the order of an operation that touches these data slots of a stripe.
pub(super) fn check_order(order: &Order, stripe: &Stripe<'_>, touched: u64) {
    let (code, participants) = (stripe.geometry.code(), order.participants);
    let targets = order.targets.iter().fold(0, |mask, (slot, _)| mask | 1u64 << slot);
    assert_eq!(order.seq.epoch(), stripe.epoch, "slots that have promised another epoch would refuse it");
    assert!(order.decided < order.seq, "the slot would take the operation for decided when it arrives");
    assert_eq!(
        participants & touched,
        touched,
        "a touched slot that does not take part would keep old bytes"
    );
    assert_eq!(
        participants >> code.k(),
        (1 << code.m()) - 1,
        "a decode with parity that missed an operation gives wrong bytes"
    );
    assert!(
        participants.count_ones() as usize > code.m(),
        "as many losses as the code allows would leave nobody who knows of the operation"
    );
    assert_eq!(
        targets & !participants,
        0,
        "a slot that does not take part would hold an operation that no take-over counts"
    );
    assert_ne!(targets & 1 << stripe.me, 0, "the primary would not hold an operation that it ordered");
}

impl Server {
    /// Accepts a write. It becomes stable later, unless the client asks to wait for that here.
    pub(crate) async fn write(
        self: Rc<Server>,
        epoch: Epoch,
        w: Write,
        payload: Buf,
    ) -> Result<Done, Refusal> {
        self.check_writer(w.client, w.group)?;
        self.check_primary(w.group, epoch)?;
        self.busy_at.set(self.world.turn_began());
        let geometry = self.tier(w.group)?.geometry;
        let len = spans_len(&w.spans, geometry.stripe()).ok_or(Refusal::Malformed)?;
        let staged_part = w.staged && (w.zero || len != geometry.stripe());
        if staged_part || payload.len() != if w.zero || w.staged { 0 } else { len } {
            return Err(Refusal::Malformed);
        }
        self.count_asked_write(payload.len());
        let accepted =
            span(&self.world, Stage::Queue, self.clone().accept(w.group.volume, payload.len())).await;
        let give_up = self.world.now() + JOURNAL_WAIT_US;
        loop {
            if !w.zero {
                self.check_space(w.group, epoch, &geometry).await?;
            }
            // Zeros of whole stripes make room.
            if w.zero || !self.is_group_pressed(w.group, epoch).await? || self.world.now() >= give_up {
                break;
            }
            hit(CodeProbe::JournalPressed);
            // The write is not in its stripe's lane yet, so it delays no fold.
            span(&self.world, Stage::Queue, self.world.sleep(RETRY_US / 4)).await;
        }
        // Everything may have changed during the wait for room.
        self.check_writer(w.client, w.group)?;
        self.check_primary(w.group, epoch)?;
        self.check_enough_live(w.group, epoch)?;
        // A slot is about to be admitted: the write must wait for the next epoch.
        if !self.primary.borrow().accepts(w.group) {
            return Err(Refusal::NotServing);
        }
        let awaited =
            w.stable.then(|| Sync { client: w.client, upto: w.seq, groups: vec![(w.group, epoch)] });
        if w.stable {
            self.mark_urgent(w.client, w.seq);
        }
        if self.primary.borrow_mut().accept(w.group, w.client, w.seq, w.acked) {
            let (server, ticket) = (self.clone(), self.lanes.enter(w.key));
            self.world.spawn("write", async move {
                server.commit_in_turn(epoch, w, payload, &ticket).await;
                drop((ticket, accepted));
            });
        }
        match awaited {
            Some(sync) => self.sync_writes(sync).await,
            None => Ok(Done {}),
        }
    }

    /// Refuses if so few slots are live that one more loss could lose the write.
    fn check_enough_live(&self, id: GroupId, epoch: Epoch) -> Result<(), Refusal> {
        let primary = self.primary.borrow();
        let group = primary.serving(id, epoch).ok_or(Refusal::StaleEpoch)?;
        let enough = group.config.live().count_ones() as usize >= group.code.live_min();
        if enough { Ok(()) } else { Err(Refusal::TooFewLive) }
    }

    /// Whether a journal of the group is so full that folds must catch up before it gets more.
    async fn is_group_pressed(&self, id: GroupId, epoch: Epoch) -> Result<bool, Refusal> {
        let mut pressed = false;
        for brick in self.bricks_of(id, epoch)? {
            if self.fill_of(brick) >= JOURNAL_PRESSED {
                pressed = true;
                self.refresh_pressure(brick).await;
            }
        }
        Ok(pressed)
    }

    /// The bricks of a group's live slots.
    fn bricks_of(&self, id: GroupId, epoch: Epoch) -> Result<Vec<BrickId>, Refusal> {
        let primary = self.primary.borrow();
        let group = primary.serving(id, epoch).ok_or(Refusal::StaleEpoch)?;
        let live = group.config.live();
        let slots = group.config.slots.iter().enumerate();
        Ok(slots.filter(|(slot, _)| live & 1 << slot != 0).map(|(_, config)| config.brick).collect())
    }

    /// Refuses if a live brick of the group is full.
    async fn check_space(&self, id: GroupId, epoch: Epoch, geometry: &Geometry) -> Result<(), Refusal> {
        let bricks = self.bricks_of(id, epoch)?;
        let needed = (geometry.unit() + self.accepted.get() / geometry.code().k()) as u64;
        for brick in bricks {
            let is_full = || self.free_of(brick) < needed;
            if is_full() {
                // The known value may be old: space may have been freed since.
                self.ask_pressure(brick).await;
                if is_full() {
                    return Err(Refusal::NoSpace);
                }
            }
        }
        Ok(())
    }

    /// Carries an accepted write to its commit. It gives up only if the epoch ends (the client then sends the write
    /// again), or if the write fails and the client is lost.
    ///
    /// A primary whose lease has run out goes on. This is safe, because it commits an operation only when every live
    /// participant of its epoch holds it durably, and a slot that has promised a newer epoch refuses it:
    /// - If a participant had promised before, it refuses, and the operation is never committed here.
    /// - Otherwise all held it when they promised. Those that are left report it, and the take-over forwards it: no
    ///   earlier operation on its stripe can be aborted, because those were committed when it got its number, and no new
    ///   slot takes part in the next epoch, because a primary admits a slot only when no operation is open.
    pub(crate) async fn commit(&self, epoch: Epoch, w: Write, payload: Buf) {
        let origin = WriteId { client: w.client, seq: w.seq, note: w.note.clone() };
        while self.primary.borrow().serving(w.group, epoch).is_some() {
            match self.try_commit(epoch, &w, &payload, &origin).await {
                Ok(()) => break,
                Err(refusal) if self.check_fence(w.client).is_err() => {
                    tracing::info!(key = %w.key, client = %w.client, %refusal, "the write of a lost client is given up");
                    self.primary.borrow_mut().give_up(w.group, epoch, w.client, w.seq);
                    break;
                }
                Err(refusal) => {
                    tracing::debug!(key = %w.key, %refusal, "a write is tried again");
                    self.world.sleep(RETRY_US).await;
                }
            }
        }
        self.progress.notify();
    }

    async fn try_commit(
        &self,
        epoch: Epoch,
        w: &Write,
        payload: &Buf,
        origin: &WriteId,
    ) -> Result<(), Refusal> {
        let stripe = Stripe::load_unleased(self, w.group, epoch, w.key).await?;
        let plan = self.plan(&stripe, w, payload).await?;
        self.replicate(&stripe, plan, vec![origin.clone()]).await
    }

    /// Chooses how a write becomes an operation. Zeros over a stripe that does not exist are an operation too:
    /// otherwise a repetition of the write would not be recognised, and could zero newer bytes.
    async fn plan(&self, stripe: &Stripe<'_>, w: &Write, payload: &Buf) -> Result<Plan, Refusal> {
        let geometry = &stripe.geometry;
        let len: usize = w.spans.iter().map(|span| span.len as usize).sum();
        let whole = len == geometry.stripe();
        assert_eq!(
            payload.len(),
            if w.zero || w.staged { 0 } else { len },
            "spans would get each other's bytes"
        );
        if w.staged {
            return Ok(plan_staged(geometry));
        }
        if w.zero && stripe.shape.exists && whole {
            return Ok(self.plan_full(stripe, vec![Buf::empty(); geometry.code().k()]));
        }
        if !w.zero && (whole || !stripe.shape.exists) {
            let nothing = vec![Buf::empty(); geometry.code().k()];
            return Ok(self.plan_full(stripe, lay_write_over(geometry, nothing, &w.spans, payload)));
        }
        let large = len >= geometry.stripe() / 2 || len > OVERLAY_MAX;
        if !w.zero && (large || self.is_journal_full(stripe)) {
            match stripe.units().await {
                Ok(units) => {
                    let units = lay_write_over(geometry, units, &w.spans, payload);
                    return Ok(self.plan_full(stripe, units));
                }
                Err(Refusal::TooFewLive | Refusal::Corrupt) if len <= OVERLAY_MAX => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(plan_overlay(stripe, w, payload))
    }

    /// Whether a journal of the group can take no more overlays.
    fn is_journal_full(&self, stripe: &Stripe<'_>) -> bool {
        stripe.bricks().any(|brick| self.fill_of(brick) >= JOURNAL_FULL)
    }

    /// A Full of these contents. Each data unit ends where only zeros follow. If all are empty, the first one takes part: M
    /// lost bricks could take all parity slots along, and then a repetition of the write would zero newer bytes.
    pub(crate) fn plan_full(&self, stripe: &Stripe<'_>, units: Vec<Buf>) -> Plan {
        let code = stripe.geometry.code();
        let units: Vec<Buf> = units.into_iter().map(without_end_of_zeros).collect();
        let unit_blocks: Vec<u32> = units.iter().map(|unit| unit.len().div_ceil(BLOCK) as u32).collect();
        let longest = unit_blocks.iter().max().map_or(0, |blocks| *blocks as usize * BLOCK);
        let data: Vec<Buf> = units.into_iter().map(pad_to_block).collect();
        let mut parity: Vec<BufMut> = (0..code.m()).map(|_| BufMut::dirty(longest)).collect();
        // Beyond their end, shorter units count as zeros.
        let inputs: Vec<&[u8]> = data.iter().map(|unit| &**unit).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|unit| &mut **unit).collect();
        self.coder(code).encode(&inputs, &mut outputs);
        let touched = unit_blocks
            .iter()
            .enumerate()
            .filter(|(unit, blocks)| stripe.shape.exists || **blocks > 0 || *unit == 0 && longest == 0)
            .fold(0, |mask, (unit, _)| mask | 1 << unit);
        let units = data.into_iter().chain(parity.into_iter().map(BufMut::freeze));
        let parts = units.map(|payload| Part { spans: Vec::new(), payload }).collect();
        Plan { kind: OpKind::Full, touched, unit_blocks, parts, staged: false }
    }

    /// Orders an operation and delivers it until every live participant holds it.
    pub(crate) async fn replicate(
        &self,
        stripe: &Stripe<'_>,
        plan: Plan,
        origins: Vec<WriteId>,
    ) -> Result<(), Refusal> {
        let (id, epoch, key) = (stripe.id, stripe.epoch, stripe.key);
        plan.check(stripe);
        let urgent = self.is_urgent(&origins);
        let whole = plan.kind == OpKind::Full && !plan.staged;
        if self.primary.borrow().is_exhausted(id, epoch) {
            self.renew_epoch(id, epoch).await;
            return Err(Refusal::StaleEpoch);
        }
        let order = self
            .primary
            .borrow_mut()
            .order(id, epoch, key, plan.touched, whole, origins.clone())
            .ok_or(Refusal::StaleEpoch)?;
        count(&self.counters.ordered);
        check_order(&order, stripe, plan.touched);
        let Order { seq, participants, targets, offer, acked, decided } = order;
        let prepare = Prepare {
            participants,
            unit_blocks: plan.unit_blocks,
            origins,
            acked,
            decided,
            urgent,
            staged: plan.staged,
            ..empty_prepare(id, seq, key, plan.kind)
        };
        let part_of = |slot: usize| {
            let Part { spans, payload } = plan.parts[slot].clone();
            let crcs = if plan.kind == OpKind::Full { crc_blocks(&payload) } else { Vec::new() };
            (Prepare { slot: slot as u8, spans, crcs, ..prepare.clone() }, payload)
        };
        let deliveries = targets.into_iter().map(|(slot, brick)| {
            let (prepare, payload) = part_of(slot);
            self.replicate_to(slot, brick, epoch, prepare, payload)
        });
        let offered = OptionFuture::from(offer.map(|offer| {
            let (prepare, payload) = part_of(offer.slot);
            self.offer(offer, epoch, prepare, payload, whole)
        }));
        let (delivered, _) = join(join_all(deliveries), offered).await;
        let held = delivered.into_iter().collect::<Result<Vec<Option<Buf>>, Refusal>>()?;
        self.claim_committer(id, epoch);
        // Not if a slot has dropped the object: others may then abort the operation, and a repetition be ordered.
        if held.iter().all(Option::is_some) {
            for origin in &prepare.origins {
                let write = [id.volume.0.into(), id.index.into(), origin.client.0, origin.seq.0];
                self.world.claim("the operation that carried a write", &write, seq.0);
            }
        }
        Ok(())
    }

    /// In an epoch only one incarnation of one primary commits.
    pub(super) fn claim_committer(&self, id: GroupId, epoch: Epoch) {
        let group = [id.volume.0.into(), id.index.into(), epoch.0.into()];
        self.world.claim("the primary that committed in an epoch", &group, self.incarnation.0);
    }

    /// Delivers an operation to one slot and notes that the slot holds it. Returns the payload of the answer, empty
    /// if the slot has dropped the object.
    pub(super) async fn replicate_to(
        &self,
        slot: usize,
        brick: BrickId,
        epoch: Epoch,
        prepare: Prepare,
        payload: Buf,
    ) -> Result<Option<Buf>, Refusal> {
        let (group, seq) = (prepare.group, prepare.seq);
        assert_eq!(usize::from(prepare.slot), slot, "an answer would count for a slot that holds nothing");
        let answer = self.deliver(brick, epoch, prepare, payload).await?;
        let mut primary = self.primary.borrow_mut();
        let decided = primary.decided(group);
        let commits = primary.acked(group, seq, slot);
        assert!(primary.decided(group) >= decided, "a decision that slots already know would be taken back");
        if commits {
            self.undelivered.notify();
        }
        Ok(answer)
    }

    /// Sends an operation to one slot until the slot holds it, or the epoch is over.
    async fn deliver(
        &self,
        brick: BrickId,
        epoch: Epoch,
        prepare: Prepare,
        payload: Buf,
    ) -> Result<Option<Buf>, Refusal> {
        assert_eq!(
            prepare.seq.epoch(),
            epoch,
            "a slot that has promised a newer epoch could take it for an operation of that epoch"
        );
        assert_ne!(
            prepare.participants & 1 << prepare.slot,
            0,
            "a take-over would not ask this slot for its held operations"
        );
        while self.primary.borrow().serving(prepare.group, epoch).is_some() {
            let answer = if brick == self.options.brick {
                self.prepare(epoch, &prepare, payload.clone()).await.map_err(CallError::Refused)
            } else if let Some(address) = self.address_in(prepare.group.volume, brick) {
                let call =
                    self.peers.call_within(PREPARE_TIMEOUT_US, &address, epoch, &prepare, payload.clone());
                call.await
            } else {
                Err(CallError::Unreachable)
            };
            match answer {
                Ok((prepared, payload)) => {
                    self.note_pressure(brick, prepared.free, prepared.journal_fill);
                    return Ok(Some(payload));
                }
                // The object is being purged everywhere, so nobody will miss the operation.
                Err(CallError::Refused(Refusal::ObjectRemoved)) => return Ok(None),
                Err(CallError::Refused(Refusal::StaleEpoch)) => {
                    self.want_map(prepare.group.volume);
                    return Err(Refusal::StaleEpoch);
                }
                Err(CallError::Refused(Refusal::NoSpace | Refusal::NotStaged)) => {
                    self.end_epoch(prepare.group, epoch).await;
                    return Err(Refusal::StaleEpoch);
                }
                Err(CallError::Refused(Refusal::Corrupt)) => {
                    self.patch_failed(prepare.group, epoch, prepare.key).await;
                    return Err(Refusal::StaleEpoch);
                }
                Err(error) => {
                    tracing::debug!(%brick, seq = %prepare.seq, %error, "an operation is delivered again");
                    self.world.sleep(RETRY_US).await;
                }
            }
        }
        Err(Refusal::StaleEpoch)
    }

    /// Makes a take-over abort an operation that cannot be completed. Returns only when the epoch is over: if the
    /// stripe's lane were free earlier, later operations could count as stable and be aborted with this one.
    pub(crate) async fn end_epoch(&self, group: GroupId, epoch: Epoch) {
        while self.primary.borrow().serving(group, epoch).is_some() {
            self.renew_epoch(group, epoch).await;
            self.world.sleep(RETRY_US).await;
        }
    }

    /// Asks the arbiter for a new epoch, so that a take-over aborts the operations that cannot be completed.
    async fn renew_epoch(&self, group: GroupId, epoch: Epoch) {
        hit(CodeProbe::EpochRenewed);
        self.pressure.borrow_mut().clear();
        let renew = GroupRenew { group, epoch, brick: self.options.brick };
        match self.peers.call(&self.meta_of(group.volume), Epoch(0), &renew, Buf::empty()).await {
            Ok(_) => self.want_map(group.volume),
            Err(error) => tracing::warn!(%group, %error, "no new epoch from the arbiter"),
        }
    }

    fn is_urgent(&self, origins: &[WriteId]) -> bool {
        let urgent = self.urgent.borrow();
        origins.iter().any(|origin| urgent.get(&origin.client).is_some_and(|upto| origin.seq <= *upto))
    }
}

/// A `Prepare` with only its sequence number, stripe and kind filled in.
pub(crate) fn empty_prepare(group: GroupId, seq: Seq, key: StripeKey, kind: OpKind) -> Prepare {
    Prepare {
        group,
        seq,
        key,
        slot: 0,
        kind,
        participants: 0,
        spans: Vec::new(),
        unit_blocks: Vec::new(),
        identities: Vec::new(),
        base: Seq::NONE,
        origins: Vec::new(),
        acked: Vec::new(),
        decided: Seq::NONE,
        urgent: false,
        staged: false,
        crcs: Vec::new(),
    }
}
