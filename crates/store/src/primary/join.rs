//! What a primary remembers of a slot that joins: on which stripes it is level.
//!
//! ```text
//! starting ──(slot is clean)──▶ comparing, filling ──▶ closed ──(nothing on its way)──▶ sealed ──▶ the arbiter admits it
//!                                      ▲                  │                                │
//!                                      └──────────────────┴── something is in the way ◀────┘
//! ```
//!
//! Only the primary knows this: the slot is Out until the arbiter makes it Live. The state is dropped with a new
//! epoch, and when the slot's brick goes away: comparing again is cheap.
//!
//! # Invariants
//! - A stripe is *level* if it was compared and the slot has taken part in every operation on it since. Overlays and
//!   patches, which build on earlier operations, go to the slot only for level stripes.
//! - The slot's answer never counts for a commit. But the slot gets no decision that covers an operation before it
//!   has answered this operation or its stripe has fallen behind, because a slot counts as holding every operation
//!   that it knows as decided.
//! - Once the group is sealed, nothing is ordered until it is opened again or the epoch ends.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::brick::{DedupWindow, JoinReport};
use types::messages::cluster::GroupConfig;
use types::{BrickId, Epoch, GroupId, Refusal, Seq, ShardId, StripeKey};

use super::{Phase, PrimaryCore, PrimaryGroup};

/// Most stripes that may be behind at a time; with more, the comparison starts over.
const BEHIND_MAX: usize = 64 << 10;
/// A slot counts as gone after so many unanswered operations in a row.
const SILENT_MAX: u32 = 3;

/// An operation for the slot that joins, in addition to the slots that must hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) slot: usize,
    pub(crate) brick: BrickId,
    /// What the slot may know as decided.
    pub(crate) decided: Seq,
}

/// One attempt to bring a slot level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub(crate) id: GroupId,
    pub(crate) epoch: Epoch,
    pub(crate) slot: usize,
    pub(crate) brick: BrickId,
    number: u64,
}

/// How far the comparison has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compared {
    /// The slot is not clean yet: it takes part in nothing.
    Unclean,
    /// Everything up to this key.
    Upto(Option<StripeKey>),
    All,
}

/// How far the group is closed for new operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DrainState {
    Open,
    /// No new write is accepted; accepted ones go on.
    Closed,
    /// Nothing is ordered.
    Sealed,
}

/// The outcome of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfferOutcome {
    Prepared,
    Refused(Refusal),
    NoAnswer,
}

/// A slot that joins.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct Joining {
    attempt: Attempt,
    compared: Compared,
    /// Stripes that are behind: the slot lacks or may lack operations on them.
    behind: BTreeSet<StripeKey>,
    /// There were too many of them: the comparison starts over.
    overflown: bool,
    /// Operations that it was offered and has not answered.
    given: BTreeMap<Seq, StripeKey>,
    silent: u32,
    /// Its last refusal.
    refused: Option<Refusal>,
    drain: DrainState,
    report: JoinReport,
    since: u64,
}

impl Joining {
    fn is_level(&self, key: StripeKey) -> bool {
        let compared = match self.compared {
            Compared::Unclean => false,
            Compared::Upto(upto) => upto.is_some_and(|upto| key <= upto),
            Compared::All => true,
        };
        compared && !self.behind.contains(&key)
    }

    fn falls_behind(&mut self, key: StripeKey) {
        if self.compared == Compared::Unclean {
            return;
        }
        self.behind.insert(key);
        if self.behind.len() > BEHIND_MAX {
            self.behind.clear();
            (self.compared, self.overflown) = (Compared::Upto(None), true);
        }
    }

    /// The greatest number up to which the slot may be told that everything is decided.
    fn decided_limit(&self, decided: Seq) -> Seq {
        match self.given.first_key_value() {
            Some((first, _)) if *first <= decided => Seq(first.0 - 1),
            _ => decided,
        }
    }

    /// Decides whether to offer the slot an operation in which it takes part; if not, the stripe falls behind.
    /// `whole`: the operation replaces everything that the slot has of the stripe.
    pub(super) fn offer(&mut self, seq: Seq, key: StripeKey, whole: bool, decided: Seq) -> Option<Offer> {
        if self.compared == Compared::Unclean {
            return None;
        }
        if !whole && !self.is_level(key) {
            self.falls_behind(key);
            return None;
        }
        assert!(!self.is_sealed(), "a slot that is about to be admitted would miss an operation");
        assert!(
            decided < seq && self.given.last_key_value().is_none_or(|(last, _)| *last < seq),
            "the slot would get the decision of an operation that it has not answered"
        );
        let decided = self.decided_limit(decided);
        self.given.insert(seq, key);
        let Attempt { slot, brick, .. } = self.attempt;
        Some(Offer { slot, brick, decided })
    }

    /// The slot, and up to where it may know everything as decided.
    pub(super) fn slot_limit(&self, decided: Seq) -> Option<(usize, Seq)> {
        (self.compared != Compared::Unclean).then(|| (self.attempt.slot, self.decided_limit(decided)))
    }

    pub(super) fn slot(&self) -> usize {
        self.attempt.slot
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.drain == DrainState::Sealed
    }

    /// Asserts the invariants between two calls.
    pub(super) fn check(&self, config: &GroupConfig) {
        let Attempt { epoch, slot, .. } = self.attempt;
        assert_eq!(epoch, config.epoch, "the slot would be admitted for its state in an epoch that is over");
        assert!(config.live() & 1 << slot == 0, "a commit would count a slot that lacks operations");
        assert!(
            self.compared != Compared::Unclean || self.behind.is_empty() && self.given.is_empty(),
            "a slot would take part with operations that it holds from an earlier epoch"
        );
        assert!(
            !self.is_sealed() || self.given.is_empty(),
            "the slot would be admitted without an operation that it has not answered"
        );
        assert!(
            !self.overflown || self.compared == Compared::Upto(None),
            "stripes that are behind, but not recorded so, would count as level"
        );
        assert!(self.behind.len() <= BEHIND_MAX, "stripes that are behind would fill the RAM");
        assert!(self.silent < SILENT_MAX, "every operation would wait for a slot that is gone");
    }
}

impl PrimaryGroup {
    /// Whether no accepted write is uncommitted, every operation is decided, and the slot is level and has answered
    /// everything.
    fn is_drained(&self) -> bool {
        let joined = |joining: &Joining| {
            joining.compared == Compared::All && joining.behind.is_empty() && joining.given.is_empty()
        };
        let idle = self.unstable.is_empty() && self.ops.is_empty() && self.committed.is_empty();
        idle && self.joining.as_ref().is_some_and(joined)
    }
}

impl PrimaryCore {
    /// Out slots for which `may` allows a join, in groups in which no slot joins yet; at most one per group.
    pub(crate) fn joinable(
        &self,
        may: impl Fn(GroupId, usize, BrickId) -> bool,
    ) -> Vec<(GroupId, Epoch, usize)> {
        let idle = self.served().filter(|(_, group)| group.joining.is_none());
        let slot_of = |(id, group): (GroupId, &PrimaryGroup)| {
            let live = group.config.live();
            let mut slots = group.config.slots.iter().enumerate();
            let (slot, _) = slots.find(|(slot, c)| live & 1 << slot == 0 && may(id, *slot, c.brick))?;
            Some((id, group.config.epoch, slot))
        };
        idle.filter_map(slot_of).collect()
    }

    /// Whether any slot is being brought level.
    pub(crate) fn has_joins(&self) -> bool {
        self.groups.values().any(|group| group.joining.is_some())
    }

    /// How many slots are joining.
    pub(crate) fn joins(&self, shard: ShardId) -> usize {
        let of_shard = self.groups.iter().filter(|(id, _)| id.volume.shard() == shard);
        of_shard.filter(|(_, group)| group.joining.is_some()).count()
    }

    /// Begins to bring a slot level, at the time `now`. Until [`PrimaryCore::clean`] the slot takes part in no
    /// operation.
    pub(crate) fn begin_join(&mut self, id: GroupId, epoch: Epoch, slot: usize, now: u64) -> Option<Attempt> {
        self.attempts += 1;
        let number = self.attempts;
        let group = self.in_epoch_mut(id, epoch).filter(|group| matches!(group.phase, Phase::Serving))?;
        if group.joining.is_some() || group.config.live() & 1 << slot != 0 {
            return None;
        }
        let brick = group.config.slots.get(slot)?.brick;
        let attempt = Attempt { id, epoch, slot, brick, number };
        let report = JoinReport {
            group: id,
            slot: slot as u8,
            brick,
            stripes: 0,
            compared: 0,
            filled: 0,
            bytes: 0,
            age: 0,
        };
        group.joining = Some(Joining {
            attempt,
            compared: Compared::Unclean,
            behind: BTreeSet::new(),
            overflown: false,
            given: BTreeMap::new(),
            silent: 0,
            refused: None,
            drain: DrainState::Open,
            report,
            since: now,
        });
        Some(attempt)
    }

    fn joining_mut(&mut self, attempt: &Attempt) -> Option<&mut Joining> {
        let joining = self.groups.get_mut(&attempt.id)?.joining.as_mut()?;
        (joining.attempt == *attempt).then_some(joining)
    }

    fn joining(&self, attempt: &Attempt) -> Option<(&PrimaryGroup, &Joining)> {
        let group = self.groups.get(&attempt.id)?;
        let joining = group.joining.as_ref()?;
        (joining.attempt == *attempt).then_some((group, joining))
    }

    /// Whether an attempt is still going on.
    pub(crate) fn is_joining(&self, attempt: &Attempt) -> bool {
        self.joining(attempt).is_some()
    }

    /// Ends an attempt and drops its state.
    pub(crate) fn end_join(&mut self, attempt: &Attempt) {
        if self.is_joining(attempt)
            && let Some(group) = self.groups.get_mut(&attempt.id)
        {
            group.joining = None;
        }
    }

    /// Ends the attempts whose bricks are gone.
    pub(crate) fn end_joins(&mut self, is_gone: impl Fn(GroupId, BrickId) -> bool) {
        for (id, group) in &mut self.groups {
            if group.joining.as_ref().is_some_and(|joining| is_gone(*id, joining.attempt.brick)) {
                group.joining = None;
            }
        }
    }

    /// The decisions and seen writes that a slot needs to be clean.
    pub(crate) fn decided_state(&self, attempt: &Attempt) -> Option<(Seq, Vec<DedupWindow>)> {
        let (group, _) = self.joining(attempt)?;
        Some((group.decided, group.clients.windows()))
    }

    /// The slot is clean: it knows everything up to `told` as decided and holds no undecided operation. From now on
    /// it takes part. Stripes with an open operation that it has not got are behind.
    pub(crate) fn clean(&mut self, attempt: &Attempt, told: Seq) {
        let Some(group) = self.groups.get_mut(&attempt.id) else { return };
        let Some(joining) = group.joining.as_mut().filter(|joining| joining.attempt == *attempt) else {
            return;
        };
        assert_eq!(joining.compared, Compared::Unclean, "a slot is made clean once");
        assert_eq!(joining.drain, DrainState::Open, "writers would wait for a slot that is not clean");
        assert!(told <= group.decided, "the slot would show an operation that may still be aborted");
        group.progress[attempt.slot] = super::SlotProgress { given: Seq::NONE, told };
        joining.compared = Compared::Upto(None);
        group.ops.values().for_each(|op| joining.falls_behind(op.key));
        group.check();
    }

    /// Where the comparison goes on: above this key, from the start for an inner `None`. `None` if it is done.
    pub(crate) fn compare_from(&self, attempt: &Attempt) -> Option<Option<StripeKey>> {
        match self.joining(attempt)?.1.compared {
            Compared::Upto(upto) => Some(upto),
            Compared::Unclean | Compared::All => None,
        }
    }

    /// Stripes above `from` were compared, up to `upto` or, if it is `None`, all of them. Each was compared as it was
    /// at some moment after the request. `behind`: those where the slot lacks something. Stripes that fell behind
    /// meanwhile stay behind.
    pub(crate) fn compared(
        &mut self,
        attempt: &Attempt,
        from: Option<StripeKey>,
        upto: Option<StripeKey>,
        behind: impl IntoIterator<Item = StripeKey>,
    ) {
        let Some(joining) = self.joining_mut(attempt) else { return };
        // Too many stripes fell behind while the page was on its way: the comparison starts over.
        if joining.compared != Compared::Upto(from) || std::mem::take(&mut joining.overflown) {
            return;
        }
        joining.compared = upto.map_or(Compared::All, |upto| Compared::Upto(Some(upto)));
        behind.into_iter().for_each(|key| joining.falls_behind(key));
    }

    /// The first stripes that are behind, at most `max`.
    pub(crate) fn behind(&self, attempt: &Attempt, max: usize) -> Vec<StripeKey> {
        let Some((_, joining)) = self.joining(attempt) else { return Vec::new() };
        joining.behind.iter().take(max).copied().collect()
    }

    /// How many stripes are behind.
    pub(crate) fn behind_len(&self, attempt: &Attempt) -> usize {
        self.joining(attempt).map_or(0, |(_, joining)| joining.behind.len())
    }

    /// Whether a stripe is behind.
    pub(crate) fn is_behind(&self, attempt: &Attempt, key: StripeKey) -> bool {
        self.joining(attempt).is_some_and(|(_, joining)| joining.behind.contains(&key))
    }

    /// The slot is level on a stripe. The caller holds its lane, so no operation on it is open.
    pub(crate) fn leveled(&mut self, attempt: &Attempt, key: StripeKey) {
        if let Some(joining) = self.joining_mut(attempt) {
            assert_ne!(
                joining.compared,
                Compared::Unclean,
                "units from an earlier epoch would count as level"
            );
            joining.behind.remove(&key);
        }
    }

    /// Marks a stripe as behind, so that it is compared again.
    pub(crate) fn mark_behind(&mut self, id: GroupId, key: StripeKey) {
        if let Some(joining) = self.groups.get_mut(&id).and_then(|group| group.joining.as_mut()) {
            joining.falls_behind(key);
        }
    }

    /// Notes the outcome of an operation that the slot was offered.
    pub(crate) fn offered(&mut self, id: GroupId, seq: Seq, taken: OfferOutcome, whole: bool) {
        let Some(group) = self.in_epoch_mut(id, seq.epoch()) else { return };
        let Some(joining) = &mut group.joining else { return };
        let Some(key) = joining.given.remove(&seq) else { return };
        match taken {
            OfferOutcome::Prepared => {
                joining.silent = 0;
                joining.refused = None;
                if whole {
                    joining.behind.remove(&key);
                }
            }
            OfferOutcome::Refused(refusal) => {
                joining.refused = Some(refusal);
                joining.falls_behind(key);
            }
            OfferOutcome::NoAnswer => {
                joining.silent += 1;
                joining.falls_behind(key);
                if joining.silent >= SILENT_MAX {
                    group.joining = None;
                }
            }
        }
        group.check();
    }

    /// Why the slot refused the last operation that it was offered.
    pub(crate) fn refused(&self, attempt: &Attempt) -> Option<Refusal> {
        self.joining(attempt)?.1.refused
    }

    /// The number of the last operation ordered.
    pub(crate) fn last_ordered(&self, attempt: &Attempt) -> Option<Seq> {
        let (group, _) = self.joining(attempt)?;
        Some(Seq::new(group.config.epoch, group.counter))
    }

    /// Up to where the slot may be told that everything is decided.
    pub(crate) fn decided_limit(&self, attempt: &Attempt) -> Option<Seq> {
        let (group, joining) = self.joining(attempt)?;
        Some(joining.decided_limit(group.decided))
    }

    /// Whether writes are accepted.
    pub(crate) fn accepts(&self, id: GroupId) -> bool {
        let joining = self.groups.get(&id).and_then(|group| group.joining.as_ref());
        joining.is_none_or(|joining| joining.drain == DrainState::Open)
    }

    /// Accepts no more writes.
    pub(crate) fn close(&mut self, attempt: &Attempt) {
        if let Some(joining) = self.joining_mut(attempt) {
            assert_eq!(joining.drain, DrainState::Open, "writes are stopped once");
            assert_ne!(
                joining.compared,
                Compared::Unclean,
                "writers would wait for a slot that is not clean"
            );
            joining.drain = DrainState::Closed;
        }
    }

    /// Seals the group, if the slot is level and no operation is open. Returns what every slot must know durably
    /// before the slot is admitted.
    pub(crate) fn seal(&mut self, attempt: &Attempt) -> Option<(Seq, Vec<DedupWindow>)> {
        if !self.joining(attempt)?.0.is_drained() {
            return None;
        }
        let joining = self.joining_mut(attempt)?;
        assert!(joining.drain != DrainState::Open, "writes could be accepted");
        joining.drain = DrainState::Sealed;
        let (group, _) = self.joining(attempt)?;
        let last = Seq::new(group.config.epoch, group.counter);
        assert!(group.counter == 0 || group.decided == last, "everything is decided");
        group.check();
        Some((group.decided, group.clients.windows()))
    }

    /// The reports of all attempts, at the time `now`.
    pub(crate) fn join_reports(&self, now: u64) -> Vec<JoinReport> {
        let joining = self.groups.values().filter_map(|group| group.joining.as_ref());
        joining.map(|j| JoinReport { age: now.saturating_sub(j.since), ..j.report.clone() }).collect()
    }

    /// Changes the report of an attempt.
    pub(crate) fn report_join(&mut self, attempt: &Attempt, change: impl FnOnce(&mut JoinReport)) {
        if let Some(joining) = self.joining_mut(attempt) {
            change(&mut joining.report);
        }
    }
}

#[cfg(test)]
mod tests;
