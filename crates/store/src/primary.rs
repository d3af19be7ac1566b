//! What a primary decides: the order of the operations in its groups, and their fate in a take-over.
//!
//! ```text
//! new epoch ──▶ promising ──(every live slot promised, sent its tail)──▶ settling ──(all know the fate)──▶ serving
//!     ▲                                                                                                      │
//!     └──────────────── the arbiter has a newer configuration, in any phase ◀────────────────────────────────┘
//! ```
//!
//! Pure: the caller sends the messages. An operation is *committed* when every live participant holds it durably. It
//! is *decided* once every earlier operation is committed too, so one number ("everything up to here") describes all
//! decisions.
//!
//! # Invariants
//! - A primary serves an epoch only after every live slot has promised it durably and knows the fate of all
//!   operations before it.
//! - Numbers grow; the participants of an operation include every parity slot and the primary itself, so any later
//!   primary knows of it.
//! - A take-over forwards an undecided operation only if every live participant holds it. With an aborted operation
//!   it aborts all later ones on the same stripe.
//! - A decision or abort that one live slot knows is final.
//! - "Decided up to here" only grows, and never covers an operation that is open.

mod invariants;
mod join;
#[cfg(test)]
mod model_hooks;
mod notes;
mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use types::code_probe::{CodeProbe, hit};
use types::messages::brick::{DedupWindow, GroupDecision, PreparedOp, Tail, WriteId};
use types::messages::cluster::GroupConfig;
use types::{BrickId, ClientId, ClientSeq, Code, Epoch, GroupId, Seq, StripeKey};

pub(crate) use join::{Attempt, Offer, OfferOutcome};

use crate::slot::ClientTable;
use join::Joining;

/// The phase of a group at its primary.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
enum Phase {
    /// Collecting promises and tails.
    Promising {
        tails: BTreeMap<usize, Tail>,
    },
    /// Telling every live slot the fate of the undecided operations.
    Settling {
        told: u64,
    },
    Serving,
}

/// An open operation: ordered, not committed.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct Op {
    key: StripeKey,
    /// Live slots that do not hold it yet.
    awaited: u64,
    origins: Vec<WriteId>,
}

/// The operations and decisions that a slot was sent.
#[derive(Clone, Copy, Debug, Default)]
struct SlotProgress {
    /// The last operation that it was sent.
    given: Seq,
    /// It was sent the decision of everything up to here.
    told: Seq,
}

/// The end of a take-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub(crate) upto: Seq,
    pub(crate) aborted: Vec<Seq>,
    pub(crate) windows: Vec<DedupWindow>,
}

/// The sequence number of an operation, and the slots that must hold it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) seq: Seq,
    /// Slots that take part, live or not.
    pub(crate) participants: u64,
    /// The live ones, with their bricks.
    pub(crate) targets: Vec<(usize, BrickId)>,
    /// The slot that joins, if it takes part.
    pub(crate) offer: Option<Offer>,
    pub(crate) acked: Vec<(ClientId, ClientSeq)>,
    /// Everything up to here is decided.
    pub(crate) decided: Seq,
}

/// A group of which this brick is the primary.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct PrimaryGroup {
    pub(crate) config: GroupConfig,
    pub(crate) code: Code,
    /// This brick's slot.
    pub(crate) me: usize,
    phase: Phase,
    counter: u64,
    ops: BTreeMap<Seq, Op>,
    decided: Seq,
    /// Committed, but an earlier operation is not.
    committed: BTreeMap<Seq, StripeKey>,
    /// The operations and decisions that each slot was sent.
    progress: Vec<SlotProgress>,
    /// Writes that are part of committed operations.
    clients: ClientTable,
    /// Writes accepted and not yet committed.
    unstable: BTreeSet<(ClientId, ClientSeq)>,
    /// The slot that joins, if any.
    joining: Option<Joining>,
}

/// All groups of which a brick is the primary.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct PrimaryCore {
    groups: BTreeMap<GroupId, PrimaryGroup>,
    /// Number of join attempts so far.
    attempts: u64,
}

impl PrimaryCore {
    /// Begins a take-over. Open operations of an older epoch are forgotten: the clients send their writes again.
    pub(crate) fn begin(&mut self, id: GroupId, config: GroupConfig, code: Code, me: usize) {
        assert_eq!(config.primary(code), Some(me), "two bricks would order the operations of a group");
        let group = PrimaryGroup {
            progress: vec![SlotProgress::default(); config.slots.len()],
            config,
            code,
            me,
            phase: Phase::Promising { tails: BTreeMap::new() },
            counter: 0,
            ops: BTreeMap::new(),
            decided: Seq::NONE,
            committed: BTreeMap::new(),
            clients: ClientTable::default(),
            unstable: BTreeSet::new(),
            joining: None,
        };
        if let Some(old) = self.groups.insert(id, group) {
            assert!(
                old.config.epoch < self.groups[&id].config.epoch,
                "a take-over begins only once per epoch"
            );
        }
    }

    /// Stops being the primary of a group.
    pub(crate) fn end(&mut self, id: GroupId) {
        self.groups.remove(&id);
    }

    /// The group, if it is in this epoch, in any phase.
    pub(crate) fn in_epoch(&self, id: GroupId, epoch: Epoch) -> Option<&PrimaryGroup> {
        self.groups.get(&id).filter(|group| group.config.epoch == epoch)
    }

    /// The group, if it serves this epoch.
    pub(crate) fn serving(&self, id: GroupId, epoch: Epoch) -> Option<&PrimaryGroup> {
        self.in_epoch(id, epoch).filter(|group| matches!(group.phase, Phase::Serving))
    }

    fn in_epoch_mut(&mut self, id: GroupId, epoch: Epoch) -> Option<&mut PrimaryGroup> {
        self.groups.get_mut(&id).filter(|group| group.config.epoch == epoch)
    }

    /// The epoch of a group, if this brick is or becomes its primary.
    pub(crate) fn epoch(&self, id: GroupId) -> Option<Epoch> {
        Some(self.groups.get(&id)?.config.epoch)
    }

    /// Groups that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = (GroupId, &PrimaryGroup)> {
        self.groups
            .iter()
            .filter(|(_, group)| matches!(group.phase, Phase::Serving))
            .map(|(id, group)| (*id, group))
    }

    /// A slot has promised. When all live slots have, returns the fate of every earlier operation.
    pub(crate) fn promised(
        &mut self,
        id: GroupId,
        epoch: Epoch,
        slot: usize,
        tail: Tail,
    ) -> Option<Settlement> {
        let group = self.in_epoch_mut(id, epoch)?;
        let live = group.config.live();
        assert!(live & 1 << slot != 0, "a slot that has missed operations would bring back aborted ones");
        let Phase::Promising { tails } = &mut group.phase else { return None };
        tails.insert(slot, tail);
        if tails.keys().fold(0, |mask, slot| mask | 1 << slot) & live != live {
            return None;
        }
        let tails = std::mem::take(tails);
        let settlement = settle(&tails, live, epoch);
        group.clients.merge(&settlement.windows);
        group.decided = settlement.upto;
        group.phase = Phase::Settling { told: 0 };
        group.check();
        Some(settlement)
    }

    /// A slot knows the fate of every operation before the epoch. True when all live slots do: the group is served.
    pub(crate) fn settled(&mut self, id: GroupId, epoch: Epoch, slot: usize) -> bool {
        let Some(group) = self.in_epoch_mut(id, epoch) else { return false };
        let live = group.config.live();
        assert!(live & 1 << slot != 0, "the answer of a slot that is Out would count as that of a live one");
        let Phase::Settling { told } = &mut group.phase else { return false };
        *told |= 1 << slot;
        if *told & live != live {
            return false;
        }
        group.phase = Phase::Serving;
        assert_eq!(group.decided, Seq::new(epoch, 0), "the next take-over could abort a forwarded operation");
        group.check();
        true
    }

    /// Accepts a write, unless it was seen already.
    pub(crate) fn accept(&mut self, id: GroupId, client: ClientId, seq: ClientSeq, acked: ClientSeq) -> bool {
        let Some(group) = self.groups.get_mut(&id) else { return false };
        assert!(
            matches!(group.phase, Phase::Serving),
            "before all slots have sent their seen writes, a repeated write would not be recognised"
        );
        let seen = group.clients.0.entry(client).or_default();
        seen.acknowledge(acked);
        let fresh = !seen.has(seq) && group.unstable.insert((client, seq));
        if !fresh {
            hit(CodeProbe::DedupeHit);
        }
        fresh
    }

    /// Gives an operation its number, unless an earlier one of its stripe is open: a slot in a newer epoch has
    /// refused that one, otherwise the lane would be taken. A take-over aborts the refused operation and all later
    /// ones on the stripe, so no later one may be committed. `touched`: mask of data slots; `whole`: the operation
    /// replaces everything that a slot has of the stripe.
    pub(crate) fn order(
        &mut self,
        id: GroupId,
        epoch: Epoch,
        key: StripeKey,
        touched: u64,
        whole: bool,
        origins: Vec<WriteId>,
    ) -> Option<Order> {
        if self.is_free(id, key) { self.force_order(id, epoch, key, touched, whole, origins) } else { None }
    }

    /// Whether every operation on a stripe is committed.
    pub(crate) fn is_free(&self, id: GroupId, key: StripeKey) -> bool {
        self.groups
            .get(&id)
            .is_some_and(|group| types::cost::walked(group.ops.values()).all(|op| op.key != key))
    }

    /// As [`PrimaryCore::order`], even if an earlier operation of the stripe is open.
    pub(crate) fn force_order(
        &mut self,
        id: GroupId,
        epoch: Epoch,
        key: StripeKey,
        touched: u64,
        whole: bool,
        origins: Vec<WriteId>,
    ) -> Option<Order> {
        let group = self.in_epoch_mut(id, epoch).filter(|group| matches!(group.phase, Phase::Serving))?;
        let has_number = !Seq::new(epoch, group.counter).is_last();
        if !has_number || group.joining.as_ref().is_some_and(Joining::is_sealed) {
            return None;
        }
        group.counter += 1;
        let seq = Seq::new(epoch, group.counter);
        assert_eq!(touched >> group.code.k(), 0, "a slot without a data unit would get a part of one");
        let parity = (group.code.k()..group.code.slots()).fold(0, |mask, slot| mask | 1 << slot);
        let participants = touched | parity | 1 << group.me;
        let live = participants & group.config.live();
        let out = group.code.slots() - group.config.live().count_ones() as usize;
        let least = if touched == 0 { group.code.m() } else { group.code.m() + 1 };
        assert!(
            live.count_ones() as usize + out >= least,
            "a committed operation survives as many losses as the code allows"
        );
        assert!(
            live & 1 << group.me != 0,
            "the primary would read, fold and decode without an operation that it ordered"
        );
        let targets = (0..group.code.slots()).filter(|slot| live & 1 << slot != 0);
        for slot in targets.clone() {
            group.progress[slot] = SlotProgress { given: seq, told: group.decided };
        }
        let targets = targets.map(|slot| (slot, group.config.slots[slot].brick)).collect();
        let joining = group.joining.as_mut().filter(|joining| participants & 1 << joining.slot() != 0);
        let offer = joining.and_then(|joining| joining.offer(seq, key, whole, group.decided));
        if let Some(offer) = &offer {
            group.progress[offer.slot] = SlotProgress { given: seq, told: offer.decided };
        }
        let acked =
            origins.iter().filter_map(|o| Some((o.client, group.clients.0.get(&o.client)?.acked))).collect();
        group.ops.insert(seq, Op { key, awaited: live, origins });
        group.check();
        Some(Order { seq, participants, targets, offer, acked, decided: group.decided })
    }

    /// A slot holds an operation durably. True when that commits it.
    pub(crate) fn acked(&mut self, id: GroupId, seq: Seq, slot: usize) -> bool {
        let Some(group) = self.in_epoch_mut(id, seq.epoch()) else { return false };
        let Some(op) = group.ops.get_mut(&seq) else { return false };
        op.awaited &= !(1 << slot);
        if op.awaited != 0 {
            return false;
        }
        let op = group.ops.remove(&seq).expect("just found");
        for origin in &op.origins {
            group.unstable.remove(&(origin.client, origin.seq));
            group.clients.mark_seen(origin);
        }
        let twice = group.committed.insert(seq, op.key);
        assert_eq!(twice, None, "two operations would have the same number");
        let first_open = group.ops.first_key_value().map(|(seq, _)| *seq);
        while let Some(entry) = group.committed.first_entry()
            && first_open.is_none_or(|open| *entry.key() < open)
        {
            assert!(*entry.key() > group.decided, "a decision that slots already know would be taken back");
            group.decided = *entry.key();
            entry.remove();
        }
        group.check();
        true
    }

    /// Slots that do not hold all operations of this group yet.
    pub(crate) fn awaited(&self, id: GroupId) -> u64 {
        self.groups.get(&id).map_or(0, |group| group.ops.values().fold(0, |mask, op| mask | op.awaited))
    }

    /// Everything up to here is decided.
    pub(crate) fn decided(&self, id: GroupId) -> Seq {
        self.groups.get(&id).map_or(Seq::NONE, |group| group.decided)
    }

    /// Decisions that slots wait for and that no operation has carried to them, by brick. From now on they count as
    /// sent.
    pub(crate) fn undelivered(&mut self) -> BTreeMap<BrickId, Vec<GroupDecision>> {
        let mut by_brick: BTreeMap<BrickId, Vec<GroupDecision>> = BTreeMap::new();
        let serving =
            types::cost::walked(&mut self.groups).filter(|(_, group)| matches!(group.phase, Phase::Serving));
        for (id, group) in serving {
            let live = group.config.live();
            let joining = group.joining.as_ref().and_then(|joining| joining.slot_limit(group.decided));
            for (slot, progress) in group.progress.iter_mut().enumerate() {
                let upto = match joining {
                    Some((joining, upto)) if joining == slot => upto,
                    _ if live & 1 << slot != 0 => group.decided,
                    _ => continue,
                };
                if progress.told >= progress.given.min(upto) {
                    continue;
                }
                assert!(upto <= group.decided, "a slot would show an operation that may still be aborted");
                progress.told = upto;
                let decision = GroupDecision { group: *id, epoch: group.config.epoch, upto };
                by_brick.entry(group.config.slots[slot].brick).or_default().push(decision);
            }
        }
        by_brick
    }

    /// The decisions of these groups did not reach a brick, or the brick has forgotten them: they are sent again.
    pub(crate) fn resend(&mut self, brick: BrickId, groups: impl IntoIterator<Item = (GroupId, Epoch)>) {
        for (id, epoch) in groups {
            let Some(group) = self.in_epoch_mut(id, epoch) else { continue };
            for (slot, progress) in group.progress.iter_mut().enumerate() {
                if group.config.slots[slot].brick == brick {
                    progress.told = Seq::NONE;
                }
            }
        }
    }

    /// Operations on a stripe that are committed but not decided yet.
    pub(crate) fn committed_on(&self, id: GroupId, key: StripeKey) -> Vec<Seq> {
        let Some(group) = self.groups.get(&id) else { return Vec::new() };
        types::cost::walked(&group.committed).filter(|(_, on)| **on == key).map(|(seq, _)| *seq).collect()
    }

    /// Whether there are accepted, uncommitted writes of clients that `which` selects.
    pub(crate) fn has_accepted_of(&self, which: impl Fn(ClientId) -> bool) -> bool {
        types::cost::walked(self.groups.values().flat_map(|group| &group.unstable))
            .any(|(client, _)| which(*client))
    }

    /// Gives up an accepted write of a lost client that cannot be committed: nobody waits for it.
    pub(crate) fn give_up(&mut self, id: GroupId, epoch: Epoch, client: ClientId, seq: ClientSeq) {
        if let Some(group) = self.in_epoch_mut(id, epoch) {
            group.unstable.remove(&(client, seq));
        }
    }

    /// Forgets the seen writes of clients that `which` selects: they write no more.
    pub(crate) fn forget_clients(&mut self, which: impl Fn(ClientId) -> bool) {
        self.groups.values_mut().for_each(|group| group.clients.forget(&which));
    }

    /// Whether every accepted write of `client` up to `upto` is committed.
    pub(crate) fn is_stable(&self, id: GroupId, client: ClientId, upto: ClientSeq) -> bool {
        let Some(group) = self.groups.get(&id) else { return false };
        group.unstable.range((client, ClientSeq(0))..=(client, upto)).next().is_none()
    }
}

/// The fate of every operation before `epoch`, from the tails of all live slots.
fn settle(tails: &BTreeMap<usize, Tail>, live: u64, epoch: Epoch) -> Settlement {
    let told = tails.keys().fold(0, |mask, slot| mask | 1 << slot);
    assert_eq!(told, live, "an operation would be aborted that a slot that was not asked knows as decided");
    let decided = tails.values().map(|tail| tail.decided).max().unwrap_or(Seq::NONE);
    // An unfinished take-over may have told one slot which operations it aborted while other slots still hold them.
    let gone: BTreeSet<Seq> = tails.values().flat_map(|tail| tail.aborted.iter().copied()).collect();
    let mut ops: BTreeMap<Seq, (&PreparedOp, u64)> = BTreeMap::new();
    let mut clients = ClientTable::default();
    tails.values().for_each(|tail| clients.merge(&tail.windows));
    for (slot, tail) in tails {
        for op in &tail.held {
            if op.seq > decided || gone.contains(&op.seq) {
                ops.entry(op.seq).or_insert((op, 0)).1 |= 1 << slot;
            } else {
                // A slot that knows the decision need not be a participant, and then does not know whose writes the
                // operation carries.
                op.origins.iter().for_each(|origin| clients.mark_seen(origin));
            }
        }
    }
    let mut aborted = Vec::new();
    let mut cut: BTreeSet<StripeKey> = BTreeSet::new();
    for (seq, (op, held_by)) in ops {
        let needed = op.participants & live;
        let held = needed & held_by == needed;
        if held && !cut.contains(&op.key) && !gone.contains(&seq) {
            hit(CodeProbe::Forwarded);
            op.origins.iter().for_each(|origin| clients.mark_seen(origin));
        } else {
            hit(match held {
                _ if gone.contains(&seq) => CodeProbe::AbortedAgain,
                true => CodeProbe::AbortedFollower,
                false => CodeProbe::AbortedPrepared,
            });
            cut.insert(op.key);
            aborted.push(seq);
        }
    }
    Settlement { upto: Seq::new(epoch, 0), aborted, windows: clients.windows() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::messages::brick::OpKind;
    use types::messages::cluster::{SlotConfig, SlotState};
    use types::{ObjectId, VolumeId};

    pub(super) const GROUP: GroupId = GroupId { volume: VolumeId(1), index: 0 };

    fn config(epoch: u32, out: &[usize]) -> GroupConfig {
        let slot = |i: usize| SlotConfig {
            brick: BrickId(i as u32),
            state: if out.contains(&i) { SlotState::Out } else { SlotState::Live },
        };
        GroupConfig { epoch: Epoch(epoch), slots: (0..4).map(slot).collect() }
    }

    pub(super) fn key(stripe: u64) -> StripeKey {
        StripeKey { object: ObjectId(9), stripe }
    }

    fn tail(decided: Seq, held: Vec<PreparedOp>) -> Tail {
        Tail { decided, held, aborted: Vec::new(), windows: Vec::new(), free: 0 }
    }

    pub(super) fn serving(out: &[usize]) -> PrimaryCore {
        let code = Code::new(2, 2).expect("2+2");
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config(1, out), code, 2);
        for slot in (0..4).filter(|s| !out.contains(s)) {
            core.promised(GROUP, Epoch(1), slot, tail(Seq::NONE, Vec::new()));
        }
        for slot in (0..4).filter(|s| !out.contains(s)) {
            core.settled(GROUP, Epoch(1), slot);
        }
        assert!(core.serving(GROUP, Epoch(1)).is_some());
        core
    }

    #[test]
    fn commits_when_every_live_participant_holds_it() {
        let mut core = serving(&[3]);
        let origin = WriteId { client: ClientId(5), seq: ClientSeq(1), note: None };
        assert!(core.accept(GROUP, origin.client, origin.seq, ClientSeq(0)));
        assert!(
            !core.accept(GROUP, origin.client, origin.seq, ClientSeq(0)),
            "a repeated write is recognised"
        );
        let order = core.order(GROUP, Epoch(1), key(0), 0b01, false, vec![origin.clone()]).expect("serving");
        assert_eq!(order.participants, 0b1101);
        assert_eq!(order.targets, vec![(0, BrickId(0)), (2, BrickId(2))]);
        assert!(!core.is_stable(GROUP, origin.client, ClientSeq(1)));
        assert!(!core.acked(GROUP, order.seq, 0));
        assert!(core.acked(GROUP, order.seq, 2));
        assert!(core.is_stable(GROUP, origin.client, ClientSeq(1)));
        assert!(!core.accept(GROUP, origin.client, origin.seq, ClientSeq(0)), "also after it is committed");
        assert_eq!(core.decided(GROUP), order.seq);
    }

    #[test]
    fn a_lost_client_is_done_with_when_nothing_of_it_is_accepted() {
        let mut core = serving(&[]);
        let of = |client| move |id| id == ClientId(client);
        for (client, seq) in [(5, 1), (5, 2), (6, 1)] {
            assert!(core.accept(GROUP, ClientId(client), ClientSeq(seq), ClientSeq(0)));
        }
        let origin = WriteId { client: ClientId(5), seq: ClientSeq(1), note: None };
        let order = core.order(GROUP, Epoch(1), key(0), 1, false, vec![origin]).expect("serving");
        assert!(core.has_accepted_of(of(5)) && !core.has_accepted_of(of(7)));
        for slot in [0, 2, 3] {
            core.acked(GROUP, order.seq, slot);
        }
        assert!(core.has_accepted_of(of(5)));
        core.give_up(GROUP, Epoch(1), ClientId(5), ClientSeq(2));
        assert!(!core.has_accepted_of(of(5)) && core.has_accepted_of(of(6)));
        assert!(!core.accept(GROUP, ClientId(5), ClientSeq(1), ClientSeq(0)), "it is still recognised");
        core.forget_clients(of(5));
        assert!(core.accept(GROUP, ClientId(5), ClientSeq(1), ClientSeq(0)));
        assert!(!core.accept(GROUP, ClientId(6), ClientSeq(1), ClientSeq(0)));
        // An epoch that has ended has nothing under way.
        core.begin(GROUP, config(2, &[]), Code::new(2, 2).expect("2+2"), 2);
        assert!(!core.has_accepted_of(|_| true));
    }

    #[test]
    fn what_comes_after_an_open_operation_waits() {
        let mut core = serving(&[]);
        let order = |core: &mut PrimaryCore, stripe| {
            core.order(GROUP, Epoch(1), key(stripe), 1, false, Vec::new()).map(|order| order.seq)
        };
        let first = order(&mut core, 0).expect("serving");
        assert!(!core.acked(GROUP, first, 0));
        assert_eq!(order(&mut core, 0), None, "it may be aborted, and what comes after it as well");
        assert!(order(&mut core, 1).is_some(), "another stripe is nobody's business");
        assert!(!core.acked(GROUP, first, 2) && core.acked(GROUP, first, 3));
        assert!(order(&mut core, 0).is_some(), "it is committed");
    }

    #[test]
    fn decides_in_order() {
        let mut core = serving(&[]);
        let first = core.order(GROUP, Epoch(1), key(0), 1, false, Vec::new()).expect("serving");
        let second = core.order(GROUP, Epoch(1), key(1), 1, false, Vec::new()).expect("serving");
        for slot in [0, 2, 3] {
            core.acked(GROUP, second.seq, slot);
        }
        assert!(core.decided(GROUP) < first.seq);
        assert_eq!(core.committed_on(GROUP, key(1)), vec![second.seq]);
        for slot in [0, 2, 3] {
            core.acked(GROUP, first.seq, slot);
        }
        assert_eq!(core.decided(GROUP), second.seq);
        assert!(core.committed_on(GROUP, key(1)).is_empty());
    }

    #[test]
    fn news_goes_to_who_holds_something_and_was_not_told_by_an_operation() {
        let mut core = serving(&[]);
        let first = core.order(GROUP, Epoch(1), key(0), 0b01, false, Vec::new()).expect("serving");
        assert!(core.undelivered().is_empty(), "nothing is decided");
        for slot in [0, 2, 3] {
            core.acked(GROUP, first.seq, slot);
        }
        // Carries the decision to slots 1, 2 and 3, so only slot 0 has to be told.
        let second = core.order(GROUP, Epoch(1), key(1), 0b10, false, Vec::new()).expect("serving");
        assert_eq!(second.decided, first.seq);
        let news = core.undelivered();
        assert_eq!(news.keys().collect::<Vec<_>>(), [&BrickId(0)]);
        assert!(core.undelivered().is_empty(), "once");
        core.resend(BrickId(0), [(GROUP, Epoch(1))]);
        assert_eq!(core.undelivered(), news, "what was lost is told again");
        for slot in [1, 2, 3] {
            core.acked(GROUP, second.seq, slot);
        }
        assert_eq!(core.undelivered().into_keys().collect::<Vec<_>>(), [BrickId(1), BrickId(2), BrickId(3)]);
    }

    #[test]
    fn amendment_2_a_take_over_forwards_what_all_hold_and_aborts_the_rest_with_its_followers() {
        let held = |counter, stripe, participants| PreparedOp {
            seq: Seq::new(Epoch(1), counter),
            key: key(stripe),
            kind: OpKind::Overlay,
            participants,
            origins: vec![WriteId { client: ClientId(7), seq: ClientSeq(counter), note: None }],
        };
        let all = [held(1, 0, 0b1101), held(2, 0, 0b1101), held(3, 1, 0b1101), held(4, 0, 0b1110)];
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config(2, &[2]), Code::new(2, 2).expect("2+2"), 3);
        // Slot 0 lacks operation 2, so 2 goes, and 4 on the same stripe with it.
        let of = |which: &[usize]| tail(Seq::NONE, which.iter().map(|i| all[*i].clone()).collect());
        assert_eq!(core.promised(GROUP, Epoch(2), 0, of(&[0, 2])), None);
        assert_eq!(core.promised(GROUP, Epoch(2), 1, of(&[3])), None);
        let settlement = core.promised(GROUP, Epoch(2), 3, of(&[0, 1, 2, 3])).expect("all promised");
        assert_eq!(settlement.aborted, vec![Seq::new(Epoch(1), 2), Seq::new(Epoch(1), 4)]);
        assert_eq!(settlement.upto, Seq::new(Epoch(2), 0));
        assert_eq!(settlement.windows[0].seen, vec![ClientSeq(1), ClientSeq(3)]);
    }

    #[test]
    fn a_decision_known_to_one_slot_stands() {
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config(2, &[]), Code::new(2, 2).expect("2+2"), 2);
        let decided = Seq::new(Epoch(1), 8);
        for slot in 0..3 {
            core.promised(GROUP, Epoch(2), slot, tail(Seq::NONE, Vec::new()));
        }
        let held = PreparedOp {
            seq: Seq::new(Epoch(1), 8),
            key: key(0),
            kind: OpKind::Full,
            participants: 0b1111,
            origins: vec![WriteId { client: ClientId(7), seq: ClientSeq(1), note: None }],
        };
        let settlement = core.promised(GROUP, Epoch(2), 3, tail(decided, vec![held])).expect("all promised");
        assert!(settlement.aborted.is_empty());
        assert_eq!(settlement.windows[0].seen, vec![ClientSeq(1)], "its writer may send it again");
    }

    /// Slot 1 took no part, and knows the decision; slot 0 holds the operation, and has forgotten it in a restart.
    #[test]
    fn writes_of_a_decision_that_only_others_know_were_seen() {
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config(2, &[]), Code::new(2, 2).expect("2+2"), 2);
        let seq = Seq::new(Epoch(1), 8);
        let origin = WriteId { client: ClientId(7), seq: ClientSeq(4), note: None };
        let held = || PreparedOp {
            seq,
            key: key(0),
            kind: OpKind::Overlay,
            participants: 0b1101,
            origins: vec![origin.clone()],
        };
        core.promised(GROUP, Epoch(2), 1, tail(seq, Vec::new()));
        for slot in [0, 2] {
            core.promised(GROUP, Epoch(2), slot, tail(Seq::NONE, vec![held()]));
        }
        let settlement =
            core.promised(GROUP, Epoch(2), 3, tail(Seq::NONE, vec![held()])).expect("all promised");
        assert!(settlement.aborted.is_empty());
        for slot in 0..4 {
            core.settled(GROUP, Epoch(2), slot);
        }
        assert!(
            !core.accept(GROUP, origin.client, origin.seq, ClientSeq(0)),
            "a repeated write is recognised"
        );
    }

    /// The take-over before came to its end on slot 0 only.
    #[test]
    fn an_abort_known_to_one_slot_stands() {
        let mut core = PrimaryCore::default();
        core.begin(GROUP, config(3, &[]), Code::new(2, 2).expect("2+2"), 2);
        let lost = Seq::new(Epoch(1), 8);
        let held = |seq| PreparedOp {
            seq,
            key: key(0),
            kind: OpKind::Full,
            participants: 0b1111,
            origins: vec![WriteId { client: ClientId(7), seq: ClientSeq(1), note: None }],
        };
        let knows = Tail { aborted: vec![lost], ..tail(Seq::new(Epoch(2), 0), Vec::new()) };
        core.promised(GROUP, Epoch(3), 0, knows);
        for slot in 1..3 {
            core.promised(GROUP, Epoch(3), slot, tail(Seq::NONE, vec![held(lost)]));
        }
        let last = core.promised(GROUP, Epoch(3), 3, tail(Seq::NONE, vec![held(lost)]));
        let settlement = last.expect("all promised");
        assert_eq!(settlement.aborted, vec![lost], "its slots would part ways");
        assert!(settlement.windows.is_empty(), "its writer must not be told that it was seen");
    }
}
