//! What a primary keeps in mind of a slot that it brings level: which stripes the slot has.
//!
//! ```text
//! starting ──(slot is clean)──▶ comparing, filling ──▶ closed ──(nothing on its way)──▶ sealed ──▶ the arbiter admits it
//!                                      ▲                  │                                │
//!                                      └──────────────────┴── something is in the way ◀────┘
//! ```
//!
//! Nobody else knows: the slot is Out until the arbiter says Live. A new epoch forgets everything, and so does the slot's
//! brick when it goes away: comparing again is cheap.
//!
//! # Invariants
//! - A stripe is *level* if it was compared and nothing has happened since that the slot did not take part in. Only of
//!   those the slot gets what presumes that it has the rest: overlays and patches.
//! - The slot's answer never counts for a commit. But no decision that covers an operation is told to it before it has
//!   answered that one or is given up for it: an operation that counts as decided counts as held.
//! - Once the group is sealed nothing is ordered any more, until it is opened again or the epoch ends.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::brick::{DedupWindow, JoinReport};
use types::{BrickId, Epoch, GroupId, Refusal, Seq, StripeKey};

use super::{Phase, PrimaryCore, PrimaryGroup};

/// Stripes that may be behind at once; with more, the comparison starts over.
const BEHIND_MAX: usize = 64 << 10;
/// Operations in a row that a slot may leave unanswered before it counts as gone.
const SILENT_MAX: u32 = 3;

/// An operation for the slot that joins, beside those who must hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) slot: usize,
    pub(crate) brick: BrickId,
    /// What the slot may know as decided.
    pub(crate) decided: Seq,
}

/// Which attempt to bring a slot level.
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

/// What may still happen in the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DrainState {
    Open,
    /// No new write is accepted; those that are go on.
    Closed,
    /// Nothing is ordered.
    Sealed,
}

/// What came of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OfferOutcome {
    Prepared,
    Refused(Refusal),
    NoAnswer,
}

/// A slot that is brought level.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(super) struct Joining {
    attempt: Attempt,
    compared: Compared,
    /// Stripes of which the slot lacks something, or may.
    behind: BTreeSet<StripeKey>,
    /// There were too many of them.
    overflown: bool,
    /// Operations that it was given and has not answered.
    given: BTreeMap<Seq, StripeKey>,
    silent: u32,
    /// What it refused last.
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

    /// Everything up to here may be told as decided.
    fn decided_limit(&self, decided: Seq) -> Seq {
        match self.given.first_key_value() {
            Some((first, _)) if *first <= decided => Seq(first.0 - 1),
            _ => decided,
        }
    }

    /// Whether the slot is offered an operation that concerns it; if not, the stripe falls behind. `whole`: the operation
    /// replaces all that the slot has of the stripe.
    pub(super) fn offer(&mut self, seq: Seq, key: StripeKey, whole: bool, decided: Seq) -> Option<Offer> {
        if self.compared == Compared::Unclean {
            return None;
        }
        if !whole && !self.is_level(key) {
            self.falls_behind(key);
            return None;
        }
        let decided = self.decided_limit(decided);
        self.given.insert(seq, key);
        let Attempt { slot, brick, .. } = self.attempt;
        Some(Offer { slot, brick, decided })
    }

    /// What the slot may know as decided, and who it is.
    pub(super) fn slot_limit(&self, decided: Seq) -> Option<(usize, Seq)> {
        (self.compared != Compared::Unclean).then(|| (self.attempt.slot, self.decided_limit(decided)))
    }

    pub(super) fn slot(&self) -> usize {
        self.attempt.slot
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.drain == DrainState::Sealed
    }
}

impl PrimaryGroup {
    /// Whether nothing is on its way that the slot lacks, or that somebody does not know as decided.
    fn is_drained(&self) -> bool {
        let joined = |joining: &Joining| {
            joining.compared == Compared::All && joining.behind.is_empty() && joining.given.is_empty()
        };
        let idle = self.unstable.is_empty() && self.ops.is_empty() && self.committed.is_empty();
        idle && self.joining.as_ref().is_some_and(joined)
    }
}

impl PrimaryCore {
    /// Slots that are Out although their bricks are not, of groups that bring no slot level yet; at most one a group.
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

    /// How many slots are brought level.
    pub(crate) fn joins(&self) -> usize {
        self.groups.values().filter(|group| group.joining.is_some()).count()
    }

    /// Begins to bring a slot level, at the time `now`. Until [`PrimaryCore::clean`] it takes part in nothing.
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

    /// Whether an attempt goes on.
    pub(crate) fn is_joining(&self, attempt: &Attempt) -> bool {
        self.joining(attempt).is_some()
    }

    /// Ends an attempt: the group is as if it had never begun.
    pub(crate) fn end_join(&mut self, attempt: &Attempt) {
        if self.is_joining(attempt)
            && let Some(group) = self.groups.get_mut(&attempt.id)
        {
            group.joining = None;
        }
    }

    /// Ends the attempts whose bricks are gone.
    pub(crate) fn end_joins(&mut self, is_gone: impl Fn(BrickId) -> bool) {
        for group in self.groups.values_mut() {
            if group.joining.as_ref().is_some_and(|joining| is_gone(joining.attempt.brick)) {
                group.joining = None;
            }
        }
    }

    /// What a slot must be told to be clean.
    pub(crate) fn decided_state(&self, attempt: &Attempt) -> Option<(Seq, Vec<DedupWindow>)> {
        let (group, _) = self.joining(attempt)?;
        Some((group.decided, group.clients.windows()))
    }

    /// The slot is clean: it knows everything up to `told` as decided, and holds nothing that is not. From here on it
    /// takes part; what is on its way without it is behind.
    pub(crate) fn clean(&mut self, attempt: &Attempt, told: Seq) {
        let Some(group) = self.groups.get_mut(&attempt.id) else { return };
        let Some(joining) = group.joining.as_mut().filter(|joining| joining.attempt == *attempt) else {
            return;
        };
        assert_eq!(joining.compared, Compared::Unclean, "a slot is made clean once");
        group.progress[attempt.slot] = super::SlotProgress { given: Seq::NONE, told };
        joining.compared = Compared::Upto(None);
        group.ops.values().for_each(|op| joining.falls_behind(op.key));
    }

    /// Where the comparison goes on: above this key, from the start for an inner `None`. `None` if it is done.
    pub(crate) fn compare_from(&self, attempt: &Attempt) -> Option<Option<StripeKey>> {
        match self.joining(attempt)?.1.compared {
            Compared::Upto(upto) => Some(upto),
            Compared::Unclean | Compared::All => None,
        }
    }

    /// Stripes above `from` were compared, as they were at some moments since they were asked for: up to `upto`, or all
    /// if it is `None`. `behind`: those where the slot lacks something. What has fallen behind meanwhile stays so.
    pub(crate) fn compared(
        &mut self,
        attempt: &Attempt,
        from: Option<StripeKey>,
        upto: Option<StripeKey>,
        behind: impl IntoIterator<Item = StripeKey>,
    ) {
        let Some(joining) = self.joining_mut(attempt) else { return };
        // Too many fell behind while the page was on its way: it starts over.
        if joining.compared != Compared::Upto(from) || std::mem::take(&mut joining.overflown) {
            return;
        }
        joining.compared = upto.map_or(Compared::All, |upto| Compared::Upto(Some(upto)));
        behind.into_iter().for_each(|key| joining.falls_behind(key));
    }

    /// Stripes that are behind, the first ones.
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

    /// The slot has everything of a stripe. Its lane is held, so no operation on it is on its way.
    pub(crate) fn leveled(&mut self, attempt: &Attempt, key: StripeKey) {
        if let Some(joining) = self.joining_mut(attempt) {
            joining.behind.remove(&key);
        }
    }

    /// A stripe is to be looked at again.
    pub(crate) fn mark_behind(&mut self, id: GroupId, key: StripeKey) {
        if let Some(joining) = self.groups.get_mut(&id).and_then(|group| group.joining.as_mut()) {
            joining.falls_behind(key);
        }
    }

    /// What came of an operation that the slot was offered.
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
    }

    /// Why the slot did not take what it was offered last.
    pub(crate) fn refused(&self, attempt: &Attempt) -> Option<Refusal> {
        self.joining(attempt)?.1.refused
    }

    /// The number of the last operation ordered.
    pub(crate) fn last_ordered(&self, attempt: &Attempt) -> Option<Seq> {
        let (group, _) = self.joining(attempt)?;
        Some(Seq::new(group.config.epoch, group.counter))
    }

    /// What the slot may be told as decided.
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
            joining.drain = DrainState::Closed;
        }
    }

    /// Orders nothing more, if the slot has everything and nothing is on its way. What all must know, durably, before
    /// the slot is admitted.
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
        Some((group.decided, group.clients.windows()))
    }

    /// The attempt as it is told, at the time `now`.
    pub(crate) fn join_reports(&self, now: u64) -> Vec<JoinReport> {
        let joining = self.groups.values().filter_map(|group| group.joining.as_ref());
        joining.map(|j| JoinReport { age: now.saturating_sub(j.since), ..j.report.clone() }).collect()
    }

    /// Changes what is told of an attempt.
    pub(crate) fn report_join(&mut self, attempt: &Attempt, change: impl FnOnce(&mut JoinReport)) {
        if let Some(joining) = self.joining_mut(attempt) {
            change(&mut joining.report);
        }
    }
}

#[cfg(test)]
mod tests;
