//! The primary of a group brings an Out slot level and has it admitted.
//!
//! ```text
//! its brick is Up ──▶ clean: NewEpoch, Decide ──▶ compare: UnitList ──▶ fill: Full, Fill ──▶ drain: Decide to all ──▶ GroupAdmit
//!                                                     what falls behind meanwhile ──▲
//! ```
//!
//! The comparison goes through the stripes in the order of their keys, page by page. Stripes where the slot lacks
//! something are behind. Filling takes these one by one, each in its lane, and makes the slot level there. From then
//! on the slot takes part in every operation on the stripe. If it refuses an operation or takes too long, the stripe
//! falls behind again.
//!
//! What happens to a stripe, by the state of the live slots:
//!
//! | they have | the slot |
//! |---|---|
//! | overlays that concern it | takes part in a fold that writes the stripe whole |
//! | its unit, with another identity | gets the unit, computed from K others of the right identities |
//! | its unit as it has it | nothing to do |
//! | no bytes | forgets what it has |

mod need;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use types::checksum::crc_blocks;
use types::code_probe::{CodeProbe, hit};
use types::messages::brick::{BrickStatus, Decide, Fill, NewEpoch, Prepare, UnitList, UnitPage, UnitState};
use types::messages::cluster::GroupAdmit;
use types::wire::Request;
use types::{BrickId, Buf, Epoch, Incarnation, Refusal, Seq, StripeKey};
use world::CallError;

use crate::ops::stripe::Stripe;
use crate::primary::{Attempt, Offer, OfferOutcome};
use crate::server::{Server, count};
use need::{Need, expected, need};

/// Time between looks for slots that could join, in microseconds.
const LOOK_US: u64 = 200_000;
/// Slots that a primary brings level at a time.
const JOINS_MAX: usize = 2;
/// Stripes filled at a time, per slot: the fewest, and the most if their units are small.
const TOGETHER: (usize, usize) = (8, 64);
/// Bytes of units filled at a time, within these bounds: they share two syncs.
const FILL_BYTES: usize = 2 << 20;
/// Stripes compared by one request.
const PAGE: u32 = 16 << 10;
/// With at most so many stripes behind, the group may be closed to finish them.
const FEW: usize = 16;
/// After so many rounds without fewer stripes behind, the group is closed anyway.
const ROUNDS: u32 = 3;
/// Stripes that may fail before the attempt ends.
const FAILED_MAX: usize = 64;
/// How long a slot may take for an operation before it falls behind, in microseconds.
const OFFER_US: u64 = 1_000_000;
/// How long it may take for a step, in microseconds.
const STEP_US: u64 = 5_000_000;
/// How long a list may take, in microseconds: a brick reads the descriptors of a page for it, and may be busy.
const LIST_US: u64 = 120_000_000;
/// How long writes may wait until no operation is open, in microseconds.
const DRAIN_US: u64 = 3_000_000;
/// How long the arbiter may take before it is asked again, in microseconds: writes wait meanwhile.
const ADMIT_US: u64 = 1_000_000;
/// Pause before something is tried again, in microseconds.
const RETRY_US: u64 = 20_000;
/// Pauses after a failure, in microseconds: the first, and the longest.
const BACKOFF_US: (u64, u64) = (500_000, 10_000_000);

/// A slot that could not be brought level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    until: u64,
    us: u64,
}

/// Why a slot is not level yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// The epoch is over, or the brick is gone.
    Over,
    /// The slot's brick refuses, or does not answer.
    Brick(Option<Refusal>),
    /// A stripe cannot be computed or written.
    Stripe(StripeKey, Refusal),
    /// Something in the group takes too long; the text says what.
    Busy(&'static str),
}

/// An attempt that is going on.
struct Join<'a> {
    server: &'a Server,
    attempt: Attempt,
    address: String,
    /// The incarnation of the slot's brick. If it changes, the attempt starts over.
    incarnation: Cell<Option<Incarnation>>,
}

impl Server {
    /// Brings slots level, a few at a time.
    pub(crate) async fn join_slots_for_ever(self: Rc<Server>) {
        while !self.journal.has_failed() {
            let ended = self.join_ended.wait();
            let now = self.world.now();
            let candidates = self.primary.borrow().joinable(|id, slot, brick| {
                self.map_of(id.volume).is_up(brick)
                    && self.backoffs.borrow().get(&(id, slot)).is_none_or(|p| p.until <= now)
            });
            for (id, epoch, slot) in candidates {
                // A shard that is away may keep its own from ending.
                let joins = self.primary.borrow().joins(id.volume.shard());
                if joins >= JOINS_MAX || self.check_lease(id.volume).is_err() {
                    continue;
                }
                let attempt = self.primary.borrow_mut().begin_join(id, epoch, slot, now);
                if let Some(attempt) = attempt {
                    self.world.spawn("join", self.clone().join_slot(attempt));
                }
            }
            // The next one begins when one has ended: groups with few stripes would wait for longer than they take.
            self.world.timeout(LOOK_US, ended).await;
        }
    }

    async fn join_slot(self: Rc<Server>, attempt: Attempt) {
        let Attempt { id, epoch, slot, brick, .. } = attempt;
        tracing::info!(group = %id, %epoch, slot, %brick, "a slot begins to join");
        let ended = world::direct::in_class(pace::IoClass::Rebuild, self.bring_level(attempt)).await;
        self.primary.borrow_mut().end_join(&attempt);
        self.pressure.borrow_mut().remove(&brick);
        self.progress.notify();
        self.join_ended.notify();
        let mut backoffs = self.backoffs.borrow_mut();
        match ended {
            Ok(()) => {
                tracing::info!(group = %id, %epoch, slot, %brick, "a slot is live again");
                backoffs.remove(&(id, slot));
                return;
            }
            Err(Failure::Over) => tracing::debug!(group = %id, %epoch, slot, "a slot is not level yet"),
            Err(Failure::Stripe(key, refusal)) => {
                tracing::warn!(group = %id, slot, %brick, %key, %refusal, "a slot stays out: a stripe cannot be filled");
            }
            Err(failure) => tracing::warn!(group = %id, slot, %brick, ?failure, "a slot stays out for now"),
        }
        let us = match backoffs.get(&(id, slot)) {
            Some(pause) if ended != Err(Failure::Over) => (pause.us * 2).min(BACKOFF_US.1),
            _ => BACKOFF_US.0,
        };
        backoffs.insert((id, slot), Backoff { until: self.world.now() + us, us });
    }

    async fn bring_level(&self, attempt: Attempt) -> Result<(), Failure> {
        let address = self.address_in(attempt.id.volume, attempt.brick).ok_or(Failure::Over)?;
        let join = Join { server: self, attempt, address, incarnation: Cell::new(None) };
        join.start_clean().await?;
        join.compare().await?;
        join.catch_up().await?;
        // Wait while the group is still open: if an old operation were stuck, closing the group would only make
        // writers wait.
        join.wait_told().await?;
        self.primary.borrow_mut().close(&attempt);
        join.drain().await
    }

    /// Waits for a call that may take long. Meanwhile it probes the connection from time to time. If the connection
    /// is dead, the call ends with it at once, not minutes later.
    async fn while_reached<T>(&self, address: &str, call: impl Future<Output = T>) -> T {
        let probes = async {
            loop {
                self.world.sleep(STEP_US).await;
                // A probe without an answer closes the connection.
                let _ =
                    self.peers.call_within(STEP_US, address, Epoch(0), &BrickStatus {}, Buf::empty()).await;
            }
        };
        match select(pin!(call), pin!(probes)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((never, _)) => never,
        }
    }

    /// Sends an operation to the slot that joins. The stripe's lane waits for the answer, for a bounded time; the
    /// commit does not.
    pub(crate) async fn offer(
        &self,
        offer: Offer,
        epoch: Epoch,
        prepare: Prepare,
        payload: Buf,
        whole: bool,
    ) {
        let (id, seq) = (prepare.group, prepare.seq);
        let answer = match self.address_in(id.volume, offer.brick) {
            Some(address) => {
                let prepare = Prepare { decided: offer.decided, ..prepare };
                self.peers.call_within(OFFER_US, &address, epoch, &prepare, payload).await
            }
            None => Err(CallError::Unreachable),
        };
        let taken = match answer {
            Ok((prepared, _)) => {
                self.note_pressure(offer.brick, prepared.free, prepared.journal_fill);
                OfferOutcome::Prepared
            }
            Err(CallError::Refused(Refusal::ObjectRemoved)) => OfferOutcome::Prepared,
            Err(CallError::Refused(refusal)) => OfferOutcome::Refused(refusal),
            Err(_) => OfferOutcome::NoAnswer,
        };
        if taken != OfferOutcome::Prepared {
            tracing::debug!(key = %prepare.key, %seq, slot = offer.slot, ?taken, "a stripe falls behind");
        }
        self.primary.borrow_mut().offered(id, seq, taken, whole);
        self.undelivered.notify();
        self.progress.notify();
    }
}

impl Join<'_> {
    fn goes_on(&self) -> Result<(), Failure> {
        let on = self.server.primary.borrow().is_joining(&self.attempt);
        if on { Ok(()) } else { Err(Failure::Over) }
    }

    /// Asks the slot's brick, until the attempt is over.
    async fn ask<R: Request>(&self, us: u64, request: &R, payload: Buf) -> Result<R::Reply, Failure> {
        self.goes_on()?;
        let over = async {
            loop {
                let progress = self.server.progress.wait();
                if self.goes_on().is_err() {
                    return;
                }
                progress.await;
            }
        };
        let server = self.server;
        let call = server.peers.call_within(us, &self.address, self.attempt.epoch, request, payload);
        let call = server.while_reached(&self.address, call);
        match select(pin!(call), pin!(over)).await {
            Either::Left((Ok((answer, _)), _)) => Ok(answer),
            Either::Left((Err(CallError::Refused(Refusal::StaleEpoch)), _)) => {
                self.server.want_map(self.attempt.id.volume);
                Err(Failure::Over)
            }
            Either::Left((Err(CallError::Refused(refusal)), _)) => Err(Failure::Brick(Some(refusal))),
            Either::Left((Err(_), _)) => Err(Failure::Brick(None)),
            Either::Right(_) => Err(Failure::Over),
        }
    }

    /// Cleans the slot: it durably drops its undecided operations from earlier epochs, and learns the decisions and
    /// the seen writes.
    async fn start_clean(&self) -> Result<(), Failure> {
        let (server, Attempt { id, epoch, .. }) = (self.server, self.attempt);
        let config = {
            let primary = server.primary.borrow();
            primary.in_epoch(id, epoch).ok_or(Failure::Over)?.config.clone()
        };
        let new = NewEpoch { group: id, config, map: server.map_of(id.volume).version };
        let tail = self.ask(STEP_US, &new, Buf::empty()).await?;
        let decided_state = server.primary.borrow().decided_state(&self.attempt);
        let (upto, windows) = decided_state.ok_or(Failure::Over)?;
        let aborted = tail.held.iter().map(|op| op.seq).collect();
        let decide = Decide { group: id, upto, aborted, windows };
        self.ask(STEP_US, &decide, Buf::empty()).await?;
        self.goes_on()?;
        server.primary.borrow_mut().clean(&self.attempt, upto);
        Ok(())
    }

    /// Goes through all stripes of the group, and fills what the slot lacks.
    async fn compare(&self) -> Result<(), Failure> {
        let mut failed = Vec::new();
        loop {
            self.goes_on()?;
            let from = self.server.primary.borrow().compare_from(&self.attempt);
            let Some(from) = from else { break };
            self.compare_page(from).await?;
            self.fill_behind(&mut failed).await?;
        }
        Ok(())
    }

    async fn compare_page(&self, from: Option<StripeKey>) -> Result<(), Failure> {
        let (asked, found) =
            futures_util::future::join(self.list_live(from, Vec::new()), self.list_joining(from, Vec::new()))
                .await;
        let (asked, found) = (asked?, found?);
        let upto = asked.iter().chain([&found]).filter_map(|page| page.upto).min();
        let above = asked.iter().map(|page| page.above).max().unwrap_or(0);
        let within = |unit: &UnitState| upto.is_none_or(|upto| unit.key <= upto);
        let expected = expected(asked.into_iter().map(|page| page.units).collect());
        let found: BTreeMap<StripeKey, UnitState> =
            found.units.into_iter().map(|unit| (unit.key, unit)).collect();
        let strangers = found.keys().filter(|key| !expected.contains_key(key));
        let keys: Vec<StripeKey> = expected.keys().chain(strangers).copied().collect();
        let total = expected.len() as u64;
        let compared = expected.values().filter(|unit| within(unit)).count() as u64;
        let behind = keys
            .into_iter()
            .filter(|key| upto.is_none_or(|upto| *key <= upto))
            .filter(|key| need(expected.get(key), found.get(key)) != Need::Nothing);
        let mut primary = self.server.primary.borrow_mut();
        primary.compared(&self.attempt, from, upto, behind);
        primary.report_join(&self.attempt, |report| {
            // Only the first page counts the stripes above it.
            let (before, counted) = if from.is_none() { (0, 0) } else { (report.compared, report.stripes) };
            report.compared = before + compared;
            report.stripes = counted.max(report.compared + (total - compared).max(above));
        });
        Ok(())
    }

    /// Lists the units that the slot should have, from the slots that know.
    async fn list_live(
        &self,
        after: Option<StripeKey>,
        only: Vec<StripeKey>,
    ) -> Result<Vec<UnitPage>, Failure> {
        let (server, Attempt { id, epoch, slot, .. }) = (self.server, self.attempt);
        let (me, k, live) = {
            let primary = server.primary.borrow();
            let group = primary.serving(id, epoch).ok_or(Failure::Over)?;
            let slots = group.config.slots.iter().enumerate();
            let live = slots.filter(|(slot, _)| group.config.live() & 1 << slot != 0);
            let live: Vec<(usize, BrickId)> = live.map(|(slot, c)| (slot, c.brick)).collect();
            (group.me, group.code.k(), live)
        };
        let decided = server.primary.borrow().decided(id);
        let list = |asked: usize, of: usize| UnitList {
            group: id,
            slot: asked as u8,
            of: of as u8,
            after,
            limit: PAGE,
            only: only.clone(),
            decided,
        };
        if me >= k {
            // A parity slot takes part in every operation and remembers every unit that it encodes.
            let page = server.unit_list(epoch, list(me, slot)).await;
            return Ok(vec![page.map_err(|refusal| self.of_live(refusal))?]);
        }
        // No parity slot is live: each data slot knows only its own unit.
        let pages = live.iter().map(|(asked, brick)| {
            let list = list(*asked, *asked);
            async move {
                if *brick == server.options.brick {
                    return server.unit_list(epoch, list).await.map_err(|refusal| self.of_live(refusal));
                }
                let address = server
                    .address_in(id.volume, *brick)
                    .ok_or(Failure::Busy("a live brick has no address"))?;
                let call = server.peers.call_within(LIST_US, &address, epoch, &list, Buf::empty());
                match server.while_reached(&address, call).await {
                    Ok((page, _)) => Ok(page),
                    Err(CallError::Refused(refusal)) => Err(self.of_live(refusal)),
                    Err(_) => Err(Failure::Busy("a live brick does not list")),
                }
            }
        });
        join_all(pages).await.into_iter().collect()
    }

    /// The failure for a refusal of a live slot.
    fn of_live(&self, refusal: Refusal) -> Failure {
        if refusal == Refusal::StaleEpoch {
            Failure::Over
        } else {
            Failure::Busy("a live brick refuses to list")
        }
    }

    /// Lists the units that the slot has.
    async fn list_joining(
        &self,
        after: Option<StripeKey>,
        only: Vec<StripeKey>,
    ) -> Result<UnitPage, Failure> {
        let Attempt { id, slot, .. } = self.attempt;
        let slot = slot as u8;
        let decided = self.server.primary.borrow().decided_limit(&self.attempt).ok_or(Failure::Over)?;
        let list = UnitList { group: id, slot, of: slot, after, limit: PAGE, only, decided };
        let page = self.ask(LIST_US, &list, Buf::empty()).await?;
        // A restarted brick has lost what was not durable. Everything that counts here was durable, but starting over
        // is simpler than relying on that.
        if self.incarnation.replace(Some(page.incarnation)).is_some_and(|life| life != page.incarnation) {
            return Err(Failure::Over);
        }
        Ok(page)
    }

    /// Makes the slot level on the stripes that are behind now. Stripes where this fails are added to `failed` and
    /// skipped from then on.
    async fn fill_behind(&self, failed: &mut Vec<(StripeKey, Refusal)>) -> Result<(), Failure> {
        let behind = self.server.primary.borrow().behind(&self.attempt, usize::MAX);
        let behind = behind.into_iter().filter(|key| !failed.iter().any(|(other, _)| other == key));
        let behind: Vec<StripeKey> = behind.collect();
        let stopped = &Cell::new(false);
        let level = |key| async move { if stopped.get() { Ok(()) } else { self.level(key).await } };
        let unit = self.server.tier(self.attempt.id).map_or(FILL_BYTES, |tier| tier.geometry.unit());
        let together = (FILL_BYTES / unit).clamp(TOGETHER.0, TOGETHER.1);
        let mut levels = futures_util::stream::iter(behind.into_iter().map(level)).buffer_unordered(together);
        let mut ended = Ok(());
        // After a failure, stripes already begun are finished: an abandoned operation would block later decisions.
        while let Some(level) = levels.next().await {
            let ends = match level {
                Ok(()) => continue,
                // Every other stripe would fail in the same way.
                Err(Failure::Stripe(key, Refusal::NoSpace)) => Failure::Stripe(key, Refusal::NoSpace),
                Err(Failure::Stripe(key, refusal)) if failed.len() < FAILED_MAX => {
                    failed.push((key, refusal));
                    continue;
                }
                Err(failure) => failure,
            };
            stopped.set(true);
            ended = ended.and(Err(ends));
        }
        ended
    }

    /// Fills the stripes that have fallen behind, until they are few or do not become fewer.
    async fn catch_up(&self) -> Result<(), Failure> {
        let mut rounds = 0;
        let mut failed = Vec::new();
        loop {
            let before = self.server.primary.borrow().behind_len(&self.attempt);
            if let Some(from) = self.server.primary.borrow().compare_from(&self.attempt) {
                tracing::debug!(group = %self.attempt.id, ?from, "too many stripes fell behind");
                return Err(Failure::Busy("too many stripes fell behind"));
            }
            self.fill_behind(&mut failed).await?;
            if let Some((key, refusal)) = failed.first() {
                return Err(Failure::Stripe(*key, *refusal));
            }
            let behind = self.server.primary.borrow().behind_len(&self.attempt);
            rounds = if behind < before { 0 } else { rounds + 1 };
            if behind <= FEW || rounds >= ROUNDS {
                return Ok(());
            }
        }
    }

    /// Makes the slot level on one stripe.
    async fn level(&self, key: StripeKey) -> Result<(), Failure> {
        let (server, Attempt { id, epoch, .. }) = (self.server, self.attempt);
        let ticket = server.lanes.enter(key);
        ticket.wait().await;
        if !server.primary.borrow().is_behind(&self.attempt, key) {
            return self.goes_on();
        }
        let of_stripe = |refusal| match refusal {
            Refusal::StaleEpoch | Refusal::NotServing => Failure::Over,
            refusal => Failure::Stripe(key, refusal),
        };
        let told = self.wait_told().await?;
        let stripe = Stripe::load(server, id, epoch, key).await.map_err(of_stripe)?;
        let dropped = server.slot.borrow().is_dropped(key.object);
        let pages = if dropped { Vec::new() } else { self.list_live(None, vec![key]).await? };
        let found = self.list_joining(None, vec![key]).await?;
        let lists: Vec<Vec<UnitState>> = pages.into_iter().map(|page| page.units).collect();
        let units: Vec<Option<UnitState>> = lists.iter().map(|units| units.first().cloned()).collect();
        let expected = expected(lists);
        let expected = expected.get(&key);
        match need(expected, found.units.first()) {
            Need::Nothing => {}
            Need::Fold => return self.fold(&stripe).await,
            Need::Forget => self.forget(key, told).await?,
            Need::Fill { forget } => {
                if forget {
                    self.forget(key, told).await?;
                }
                let stripe = stripe.of_bases(&units);
                self.fill(&stripe, told).await?;
            }
        }
        // If the object was dropped meanwhile, the slot must forget the filled unit again: the stripe stays behind.
        if dropped || !server.slot.borrow().is_dropped(key.object) {
            server.primary.borrow_mut().leveled(&self.attempt, key);
        }
        Ok(())
    }

    /// Waits until every operation ordered so far is decided and the slot may be told so. After that no message sent
    /// to it earlier can take effect.
    async fn wait_told(&self) -> Result<Seq, Failure> {
        let server = self.server;
        let last = server.primary.borrow().last_ordered(&self.attempt).ok_or(Failure::Over)?;
        let give_up = server.world.now() + STEP_US;
        loop {
            let progress = server.progress.wait();
            let told = server.primary.borrow().decided_limit(&self.attempt).ok_or(Failure::Over)?;
            if told >= last {
                return Ok(told);
            }
            if server.world.now() >= give_up {
                return Err(Failure::Busy("an operation is not decided"));
            }
            server.world.timeout(RETRY_US, progress).await;
        }
    }

    /// Folds the stripe whole, with the slot taking part.
    async fn fold(&self, stripe: &Stripe<'_>) -> Result<(), Failure> {
        let (server, key) = (self.server, stripe.key);
        let of_stripe = |refusal| match refusal {
            Refusal::StaleEpoch => Failure::Over,
            refusal => Failure::Stripe(key, refusal),
        };
        let units = stripe.units().await.map_err(of_stripe)?;
        let bytes: u64 = units.iter().map(|unit| unit.len() as u64).max().unwrap_or(0);
        let plan = server.plan_full(stripe, units);
        server.replicate(stripe, plan, Vec::new()).await.map_err(of_stripe)?;
        server.unpatched.borrow_mut().remove(&key);
        count(&server.counters.folded);
        if server.primary.borrow().is_behind(&self.attempt, key) {
            self.goes_on()?;
            let refusal = server.primary.borrow().refused(&self.attempt);
            return match refusal {
                Some(Refusal::NoSpace) => Err(Failure::Stripe(key, Refusal::NoSpace)),
                Some(refusal) => Err(Failure::Brick(Some(refusal))),
                None => Err(Failure::Brick(None)),
            };
        }
        self.filled(bytes);
        Ok(())
    }

    /// Computes the slot's unit and sends it.
    async fn fill(&self, stripe: &Stripe<'_>, told: Seq) -> Result<(), Failure> {
        let (key, Attempt { id, slot, .. }) = (stripe.key, self.attempt);
        let is_parity = slot >= stripe.geometry.code().k();
        let base = if is_parity { stripe.shape.identity } else { stripe.shape.identity_of(slot) };
        let payload = stripe.base_of_missing(slot).await.map_err(|refusal| match refusal {
            Refusal::StaleEpoch => Failure::Over,
            refusal => Failure::Stripe(key, refusal),
        })?;
        // No operation on the stripe is open, so all operations that made it are decided.
        assert!(base <= told && base != Seq::NONE, "the slot must know the base as decided");
        let fill = Fill {
            group: id,
            key,
            slot: slot as u8,
            base,
            unit_blocks: stripe.shape.unit_blocks.clone(),
            identities: if is_parity { stripe.shape.identities.clone() } else { Vec::new() },
            decided: told,
            crcs: crc_blocks(&payload),
        };
        let bytes = payload.len() as u64;
        self.give(fill, payload).await?;
        self.filled(bytes);
        Ok(())
    }

    async fn forget(&self, key: StripeKey, told: Seq) -> Result<(), Failure> {
        let Attempt { id, slot, .. } = self.attempt;
        let fill = Fill {
            group: id,
            key,
            slot: slot as u8,
            base: Seq::NONE,
            unit_blocks: Vec::new(),
            identities: Vec::new(),
            decided: told,
            crcs: Vec::new(),
        };
        self.give(fill, Buf::empty()).await
    }

    async fn give(&self, fill: Fill, payload: Buf) -> Result<(), Failure> {
        let key = fill.key;
        match self.ask(STEP_US, &fill, payload).await {
            Ok(told) => self.server.note_pressure(self.attempt.brick, told.free, told.journal_fill),
            // The slot has dropped the object, and this brick soon will.
            Err(Failure::Brick(Some(Refusal::ObjectRemoved))) => {}
            Err(Failure::Brick(Some(Refusal::NoSpace))) => {
                return Err(Failure::Stripe(key, Refusal::NoSpace));
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn filled(&self, bytes: u64) {
        hit(CodeProbe::SlotFilled);
        self.server.primary.borrow_mut().report_join(&self.attempt, |report| {
            report.filled += 1;
            report.bytes += bytes;
        });
    }

    /// In the closed group, waits until the last stripes are level and no operation is open. Then tells every slot,
    /// and asks for the admission.
    async fn drain(&self) -> Result<(), Failure> {
        let server = self.server;
        let give_up = server.world.now() + DRAIN_US;
        let mut failed = Vec::new();
        let (upto, windows) = loop {
            let progress = server.progress.wait();
            self.goes_on()?;
            let sealed = server.primary.borrow_mut().seal(&self.attempt);
            if let Some(sealed) = sealed {
                hit(CodeProbe::DrainClosed);
                break sealed;
            }
            if server.world.now() >= give_up {
                return Err(Failure::Busy("an operation stays open in a closed group"));
            }
            if server.primary.borrow().behind_len(&self.attempt) > 0 {
                self.fill_behind(&mut failed).await?;
            } else {
                server.world.timeout(RETRY_US, progress).await;
            }
            if let Some((key, refusal)) = failed.first() {
                return Err(Failure::Stripe(*key, *refusal));
            }
        };
        let decide = Decide { group: self.attempt.id, upto, aborted: Vec::new(), windows };
        self.tell_all(&decide).await?;
        // Is it still the same incarnation of the brick?
        self.list_joining(None, vec![StripeKey::default()]).await?;
        self.admit().await
    }

    /// Makes every live slot, and the one that joins, know durably that everything is decided.
    async fn tell_all(&self, decide: &Decide) -> Result<(), Failure> {
        let (server, Attempt { id, epoch, .. }) = (self.server, self.attempt);
        let config = {
            let primary = server.primary.borrow();
            primary.in_epoch(id, epoch).ok_or(Failure::Over)?.config.clone()
        };
        let live = config.slots.iter().enumerate().filter(|(slot, _)| config.live() & 1 << slot != 0);
        let tells = live.map(|(_, slot)| async move {
            if slot.brick == server.options.brick {
                return server.decide(epoch, decide.clone()).await.map_err(CallError::Refused).map(drop);
            }
            let address = server.address_in(id.volume, slot.brick).ok_or(CallError::Unreachable)?;
            server.peers.call_within(STEP_US, &address, epoch, decide, Buf::empty()).await.map(drop)
        });
        let (told, joining) =
            futures_util::future::join(join_all(tells), self.ask(STEP_US, decide, Buf::empty())).await;
        joining?;
        // A slot that does not answer loses its lease: the next epoch begins without it.
        told.into_iter()
            .collect::<Result<Vec<()>, CallError>>()
            .map_err(|_| Failure::Busy("a live brick does not confirm the decisions"))?;
        self.goes_on()
    }

    /// Asks the arbiter until the outcome is known.
    async fn admit(&self) -> Result<(), Failure> {
        let (server, Attempt { id, epoch, slot, .. }) = (self.server, self.attempt);
        let admit = GroupAdmit { group: id, epoch, brick: server.options.brick, slot: slot as u8 };
        // Whether an answer was lost: then a request could still be on its way and take effect later.
        let mut unsure = false;
        while server.primary.borrow().in_epoch(id, epoch).is_some() {
            let progress = server.progress.wait();
            let meta = server.meta_of(id.volume);
            match server.peers.call_within(ADMIT_US, &meta, Epoch(0), &admit, Buf::empty()).await {
                Ok(_) => server.want_map(id.volume),
                Err(CallError::Refused(Refusal::StaleEpoch | Refusal::NotPrimary | Refusal::NotServing)) => {
                    server.want_map(id.volume);
                }
                Err(CallError::Refused(refusal)) if !unsure => return Err(Failure::Brick(Some(refusal))),
                Err(CallError::Refused(_)) => {
                    // A new epoch voids the requests that are on their way.
                    server.end_epoch(id, epoch).await;
                    return Err(Failure::Over);
                }
                Err(error) => {
                    tracing::debug!(group = %id, %error, "no answer to an admission");
                    hit(CodeProbe::AdmissionUnsure);
                    unsure = true;
                }
            }
            server.world.timeout(RETRY_US * 5, progress).await;
        }
        let map = server.map_of(id.volume);
        let admitted = map.group(id).is_some_and(|(_, config)| config.live() & 1 << slot != 0);
        if !admitted {
            return Err(Failure::Over);
        }
        hit(CodeProbe::Admitted);
        Ok(())
    }
}
