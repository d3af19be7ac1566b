//! What each step does.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use types::messages::brick::{Tail, WriteId};
use types::{Epoch, Refusal, Seq};

use super::brick::{Brick, GROUP, PrepareOutcome, Record};
use super::cluster::{Action, Message, MessageId, Scope, Spent, State};
use super::mutants::Mutant;
use super::oracle::{Fate, Oracle};
use super::primary::{self, Delivery, Primary};
use crate::primary::Settlement;
use crate::record::{Promise, Settle};

impl Scope {
    /// The first state: every slot is live and serves the first epoch.
    pub(super) fn begin(&self) -> State {
        let all = (1 << self.code.slots()) - 1;
        let mut state = State {
            bricks: self
                .slots()
                .map(|slot| Arc::new(Brick::new(slot, self.data_blocks, self.checkpoints > 0)))
                .collect(),
            primaries: self.slots().map(|_| Arc::default()).collect(),
            maps: self.slots().map(|_| Epoch(0)).collect(),
            leases: all,
            configs: vec![all],
            owed: vec![BTreeMap::new(); self.code.slots()],
            net: BTreeMap::new(),
            oracle: Arc::new(Oracle {
                accepted: vec![0; self.writes.len()],
                before: vec![0; self.writes.len()],
                ..Oracle::default()
            }),
            spent: Spent::default(),
            wrong: None,
        };
        self.slots().for_each(|slot| self.fetch(&mut state, slot));
        while let Some(message_id) = state.net.keys().next().copied() {
            self.deliver(&mut state, message_id);
            (0..self.code.slots()).for_each(|slot| self.sync(&mut state, slot));
            self.prune_messages(&mut state);
        }
        state
    }

    /// The number of a write at its client.
    pub(super) fn number(&self, write: usize) -> u64 {
        let client = self.writes[write].client;
        self.writes[..=write].iter().filter(|other| other.client == client).count() as u64
    }

    pub(super) fn origin(&self, write: usize) -> WriteId {
        primary::origin(self.writes[write].client, self.number(write))
    }

    pub(super) fn is_stable(&self, primary: &Primary, write: usize) -> bool {
        let origin = self.origin(write);
        primary.core.is_stable(GROUP, origin.client, origin.seq)
    }

    /// Takes one step. A failed assertion of the code is a violation.
    pub(super) fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            self.act(&mut state, action);
            self.prune_messages(&mut state);
            self.check_invariants(&mut state);
        }));
        if let Err(panic) = stepped {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            state.wrong = Some(format!("assert {}", said.unwrap_or_default()));
        }
        Some(state)
    }

    pub(super) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Accept(at, write) => self.accept(state, at, write),
            Action::AcceptLate(at, write) => self.accept_late(state, at, write),
            Action::Order(at, stripe) => self.order(state, at, Scope::key(stripe)),
            Action::Fold(at, stripe, patch) => self.fold(state, at, Scope::key(stripe), patch),
            Action::Stable(_, write) => Arc::make_mut(&mut state.oracle).stable |= 1 << write,
            Action::Tell(at, slot) => {
                let (epoch, upto) =
                    (state.primaries[at].epoch, Scope::decided_limit(&state.primaries[at], slot));
                Arc::make_mut(&mut state.bricks[slot]).learn(epoch, upto);
            }
            Action::Deliver(message_id) => self.deliver(state, message_id),
            Action::Sync(slot) => self.sync(state, slot),
            Action::Segment(slot) => {
                state.spent.segments += 1;
                Arc::make_mut(&mut state.bricks[slot]).next_segment();
            }
            Action::Checkpoint(slot) => {
                state.spent.checkpoints += 1;
                let brick = Arc::make_mut(&mut state.bricks[slot]);
                brick.checkpoint(self.data_blocks, &self.keys(), self.mutant);
            }
            Action::Crash(slot, kept, whole) => self.crash(state, slot, kept, whole),
            Action::Expel(slot) => {
                state.spent.expels += 1;
                if !self.is(Mutant::SkipLeaseWait) {
                    state.leases &= !(1 << slot);
                }
                let (_, live) = state.config();
                state.configs.push(live & !(1 << slot));
            }
            Action::Rejoin(slot) => {
                state.spent.rejoins += 1;
                state.leases |= 1 << slot;
                self.fetch(state, slot);
            }
            Action::Fetch(slot) => self.fetch(state, slot),
            Action::Join(at, slot) => self.join(state, at, slot),
            Action::Compare(at) => self.compare(state, at),
            Action::Level(at, stripe) => self.level(state, at, Scope::key(stripe)),
            Action::GiveUp(at, seq) => self.give_up(state, at, seq),
            Action::Seal(at) => self.seal(state, at),
            Action::Admit(at) => self.admit(state, at),
            Action::Renew(_) => {
                state.spent.renews += 1;
                let (_, live) = state.config();
                state.configs.push(live);
            }
        }
        if !self.lazy {
            self.slots()
                .filter(|slot| !state.owed[*slot].is_empty())
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|slot| self.sync(state, slot));
        }
    }

    pub(super) fn send(&self, state: &mut State, deliveries: Vec<Delivery>) {
        for (slot, prepare, payload) in deliveries {
            let message_id = message_id(1, slot, prepare.seq);
            state.net.insert(message_id, Arc::new(Message::Prepare { prepare, payload }));
        }
    }

    /// The slot of the primary of an epoch.
    pub(super) fn primary_of(&self, state: &State, epoch: Epoch) -> Option<usize> {
        self.config(epoch, state.live_in(epoch)).primary(self.code)
    }

    /// The primary of an epoch, if its brick still is it.
    fn acting_primary(&self, state: &State, epoch: Epoch) -> Option<usize> {
        self.primary_of(state, epoch).filter(|at| state.primaries[*at].epoch == epoch)
    }

    fn deliver(&self, state: &mut State, message_id: MessageId) {
        let (_, slot, epoch, _) = message_id;
        let Some(message) = state.net.get(&message_id).cloned() else { return };
        if self.is(Mutant::AskOnce) {
            state.net.remove(&message_id);
        }
        match &*message {
            Message::Prepare { prepare, payload } => {
                let brick = Arc::make_mut(&mut state.bricks[slot]);
                let (kind, answer) = match brick.prepare(epoch, prepare, payload, self.unit, self.mutant) {
                    PrepareOutcome::Prepared(delta) => (2, Message::Prepared { seq: prepare.seq, delta }),
                    // Asked again until it serves the epoch.
                    PrepareOutcome::Refused(Refusal::NotServing) => return,
                    PrepareOutcome::Refused(refusal) => (3, Message::Refused { seq: prepare.seq, refusal }),
                };
                let to = if kind == 2 { &mut state.owed[slot] } else { &mut state.net };
                to.insert((kind, message_id.1, message_id.2, message_id.3), Arc::new(answer));
            }
            Message::NewEpoch => self.new_epoch(state, slot, epoch),
            Message::Decide(settlement) => self.decide(state, slot, epoch, settlement),
            answer => {
                if let Some(at) = self.acting_primary(state, epoch) {
                    self.answered(state, at, slot, answer);
                }
            }
        }
    }

    /// `ops/decide.rs`, `new_epoch`.
    fn new_epoch(&self, state: &mut State, slot: usize, epoch: Epoch) {
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        let promised = brick.now.core.promised(GROUP);
        if epoch < promised {
            return;
        }
        if epoch > promised {
            brick.append(Record::Promise(Promise { group: GROUP, epoch }));
        }
        if self.is(Mutant::SkipFence) {
            let tail = brick.now.core.tail(GROUP, 0);
            state.net.insert((5, slot, epoch, digest(&tail)), Arc::new(Message::Tail(tail)));
        } else {
            state.owed[slot].insert((4, slot, epoch, 0), Arc::new(Message::NewEpoch));
        }
    }

    /// `ops/decide.rs`, `decide`.
    fn decide(&self, state: &mut State, slot: usize, epoch: Epoch, settlement: &Settlement) {
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        if brick.now.core.promised(GROUP) != epoch {
            return;
        }
        if brick.now.core.served(GROUP) != Some(epoch) {
            brick.append(Record::Settle(settle_record(epoch, settlement)));
        }
        state.owed[slot].insert((7, slot, epoch, 0), Arc::new(Message::Settled));
    }

    /// A primary handles an answer: `ops/write.rs`, `replicate_to`; `take_over.rs`, `promise` and `tell_fate`.
    fn answered(&self, state: &mut State, at: usize, slot: usize, answer: &Message) {
        match answer {
            Message::Prepared { seq, delta } => {
                let primary = Arc::make_mut(&mut state.primaries[at]);
                if let Some(joining) = primary.joining.as_mut().filter(|joining| joining.slot == slot) {
                    if let Some(key) = joining.given.remove(seq)
                        && state.oracle.ops.get(seq).is_some_and(|op| !op.small)
                    {
                        joining.behind.remove(&key);
                    }
                    return;
                }
                let mut round = None;
                if let Some(busy) = primary.busy.iter_mut().find(|busy| busy.seq == *seq) {
                    busy.acked |= 1 << slot;
                    if let Some(patch) = busy.patch.as_mut().filter(|_| slot < self.code.k()) {
                        match patch.add_delta(slot, delta, &self.code4) {
                            Ok(next) => round = next,
                            Err(()) => busy.refused = true,
                        }
                    }
                }
                self.send(state, round.unwrap_or_default());
                self.acked(state, at, *seq, slot);
            }
            Message::Refused { seq, refusal } => {
                if state.primaries[at].joining.as_ref().is_some_and(|joining| joining.slot == slot) {
                    return self.give_up(state, at, *seq);
                }
                let primary = Arc::make_mut(&mut state.primaries[at]);
                let Some(busy) = primary.busy.iter_mut().find(|busy| busy.seq == *seq && !busy.refused)
                else {
                    return;
                };
                // It is tried again as a new operation, or given up until the epoch ends.
                busy.refused = true;
                if let Some(write) = busy.write.filter(|_| *refusal == Refusal::StaleEpoch) {
                    primary.lanes.entry(busy.key).or_default().push_front(write);
                }
            }
            Message::Tail(tail) => {
                let mut tail = tail.clone();
                if self.is(Mutant::ForgetNotes) {
                    tail.windows.iter_mut().for_each(|window| window.notes.clear());
                    let origins = tail.held.iter_mut().flat_map(|op| &mut op.origins);
                    origins.for_each(|origin| origin.note = None);
                }
                if self.is(Mutant::ForgetWindows) {
                    tail.windows.clear();
                    tail.held.iter_mut().for_each(|op| op.origins.clear());
                }
                let primary = Arc::make_mut(&mut state.primaries[at]);
                primary.promised |= 1 << slot;
                let epoch = primary.epoch;
                let Some(settlement) = primary.core.promised(GROUP, epoch, slot, tail) else { return };
                let more = digest(&settlement);
                let live = state.live_in(epoch);
                for to in self.slots().filter(|to| live & 1 << to != 0) {
                    state.net.insert((6, to, epoch, more), Arc::new(Message::Decide(settlement.clone())));
                }
            }
            Message::Settled => {
                let primary = Arc::make_mut(&mut state.primaries[at]);
                primary.told |= 1 << slot;
                let epoch = primary.epoch;
                if primary.core.settled(GROUP, epoch, slot) {
                    self.settled(state, epoch);
                }
            }
            Message::Prepare { .. } | Message::NewEpoch | Message::Decide(_) => {}
        }
    }

    pub(super) fn acked(&self, state: &mut State, at: usize, seq: Seq, slot: usize) {
        let primary = Arc::make_mut(&mut state.primaries[at]);
        if primary.core.acked(GROUP, seq, slot) {
            primary.busy.retain(|busy| busy.seq != seq);
            if let Some(op) = Arc::make_mut(&mut state.oracle).ops.get_mut(&seq) {
                op.fate = Fate::Committed;
            }
        }
    }

    /// A take-over has ended: every earlier operation has its fate.
    fn settled(&self, state: &mut State, epoch: Epoch) {
        let live = state.live_in(epoch);
        let bricks = state.bricks.clone();
        let stands = |seq: Seq| {
            bricks.iter().any(|brick| live & 1 << brick.slot != 0 && brick.now.applied.contains(&seq))
        };
        for (seq, op) in &mut Arc::make_mut(&mut state.oracle).ops {
            if op.fate == Fate::Open && seq.epoch() < epoch {
                op.fate = if stands(*seq) { Fate::Committed } else { Fate::Aborted };
            }
        }
    }

    fn sync(&self, state: &mut State, slot: usize) {
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        brick.sync(&self.keys());
        for (message_id, answer) in std::mem::take(&mut state.owed[slot]) {
            let (_, _, epoch, _) = message_id;
            match &*answer {
                Message::NewEpoch if brick.now.core.promised(GROUP) == epoch => {
                    let tail: Tail = brick.now.core.tail(GROUP, 0);
                    state.net.insert((5, slot, epoch, digest(&tail)), Arc::new(Message::Tail(tail)));
                }
                Message::NewEpoch => {}
                _ => drop(state.net.insert(message_id, answer)),
            }
        }
    }

    /// A brick restarts within its lease: `recover.rs`; `cluster/bricks.rs`, `join`; `member.rs`, `try_join`.
    fn crash(&self, state: &mut State, slot: usize, kept: usize, whole: bool) {
        state.spent.crashes += 1;
        state.owed[slot].clear();
        Arc::make_mut(&mut state.bricks[slot]).crash(kept, whole, self.mutant);
        state.primaries[slot] = Arc::default();
        // The primary sees another incarnation and starts the join over.
        for primary in state
            .primaries
            .iter_mut()
            .filter(|primary| primary.joining.as_ref().is_some_and(|j| j.slot == slot))
        {
            Arc::make_mut(primary).joining = None;
        }
        let (epoch, live) = state.config();
        if self.primary_of(state, epoch) == Some(slot) {
            state.configs.push(live);
        }
        state.maps[slot] = Epoch(0);
        self.fetch(state, slot);
    }

    /// `take_over.rs`, `follow_map`.
    fn fetch(&self, state: &mut State, slot: usize) {
        let (epoch, live) = state.config();
        if state.maps[slot] >= epoch {
            return;
        }
        state.maps[slot] = epoch;
        let config = self.config(epoch, live);
        let primary = Arc::make_mut(&mut state.primaries[slot]);
        if config.primary(self.code) != Some(slot) {
            *primary = Primary::default();
            return;
        }
        primary.core.begin(GROUP, config, self.code, slot);
        *primary = Primary { core: std::mem::take(&mut primary.core), epoch, ..Primary::default() };
        for to in self.slots().filter(|to| live & 1 << to != 0) {
            state.net.insert((4, to, epoch, 0), Arc::new(Message::NewEpoch));
        }
    }

    /// Drops messages that can make no difference any more.
    pub(super) fn prune_messages(&self, state: &mut State) {
        let message_ids: Vec<MessageId> = state.net.keys().copied().collect();
        for message_id in message_ids {
            if self.is_pointless(state, message_id) {
                state.net.remove(&message_id);
            }
        }
    }

    fn is_pointless(&self, state: &State, message_id: MessageId) -> bool {
        let (kind, slot, epoch, more) = message_id;
        let primary = self.acting_primary(state, epoch).map(|at| &state.primaries[at]);
        let brick = &state.bricks[slot];
        let (promised, served) = brick.durable_epochs();
        let arrived =
            |kind| state.net.range((kind, slot, epoch, 0)..=(kind, slot, epoch, u64::MAX)).next().is_some();
        let waits = |done: fn(&Primary) -> u64| primary.is_some_and(|primary| done(primary) & 1 << slot == 0);
        match kind {
            1..=3 => {
                let seq = Seq::new(epoch, more);
                let busy = primary.and_then(|primary| primary.busy.iter().find(|busy| busy.seq == seq));
                let joining = primary
                    .and_then(|primary| primary.joining.as_ref())
                    .filter(|joining| joining.slot == slot);
                let offered = joining.is_some_and(|joining| joining.given.contains_key(&seq));
                let awaited =
                    offered || joining.is_none() && busy.is_some_and(|busy| busy.acked & 1 << slot == 0);
                match kind {
                    1 if awaited => {
                        state.net.contains_key(&(2, slot, epoch, more))
                            || state.net.contains_key(&(3, slot, epoch, more))
                            || busy.is_some_and(|busy| busy.refused && promised > epoch)
                    }
                    1 => promised > epoch || brick.knows_durably(seq),
                    2 => !awaited,
                    _ => !offered && busy.is_none_or(|busy| busy.refused),
                }
            }
            4 => arrived(5) || !waits(|primary| primary.promised) && promised >= epoch,
            5 => !waits(|primary| primary.promised),
            6 => arrived(7) || !waits(|primary| primary.told) && (promised > epoch || served == Some(epoch)),
            _ => !waits(|primary| primary.told),
        }
    }
}

fn message_id(kind: u8, slot: usize, seq: Seq) -> MessageId {
    (kind, slot, seq.epoch(), seq.0 & 0xff_ffff)
}

/// `ops/decide.rs`: a settlement as a record.
pub(super) fn settle_record(epoch: Epoch, settlement: &Settlement) -> Settle {
    let Settlement { upto, aborted, windows } = settlement.clone();
    Settle { group: GROUP, epoch, upto, aborted, windows }
}

fn digest(what: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{what:?}").hash(&mut hasher);
    hasher.finish()
}
