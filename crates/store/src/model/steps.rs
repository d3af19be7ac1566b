//! What each step does.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use types::messages::brick::Tail;
use types::{ClientSeq, Epoch, Refusal, Seq, StripeKey};

use super::brick::{Brick, GROUP, Record, Taken};
use super::cluster::{Action, Letter, Message, Scope, Spent, State};
use super::ghost::{Fate, Ghost, Op};
use super::lead::{self, Busy, Delivery, Lead, View, Wish};
use super::mutants::Mutant;
use crate::primary::Settlement;
use crate::record::{Promise, Settle};

impl Scope {
    /// Every slot lives and serves the first epoch.
    pub(super) fn begin(&self) -> State {
        let all = (1 << self.code.slots()) - 1;
        let mut state = State {
            bricks: self
                .slots()
                .map(|slot| Arc::new(Brick::new(slot, self.data_blocks, self.checkpoints > 0)))
                .collect(),
            leads: self.slots().map(|_| Arc::default()).collect(),
            maps: self.slots().map(|_| Epoch(0)).collect(),
            leases: all,
            configs: vec![all],
            owed: vec![BTreeMap::new(); self.code.slots()],
            net: BTreeMap::new(),
            ghost: Arc::new(Ghost {
                accepted: vec![0; self.writes.len()],
                before: vec![0; self.writes.len()],
                ..Ghost::default()
            }),
            spent: Spent::default(),
            wrong: None,
        };
        self.slots().for_each(|slot| self.fetch(&mut state, slot));
        while let Some(letter) = state.net.keys().next().copied() {
            self.deliver(&mut state, letter);
            (0..self.code.slots()).for_each(|slot| self.sync(&mut state, slot));
            self.tidy(&mut state);
        }
        state
    }

    /// Everything that may happen next.
    pub(super) fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let (epoch, live) = state.config();
        let more_epochs = state.configs.len() < self.epochs;
        for (at, lead) in state.leads.iter().enumerate().filter(|(_, lead)| lead.is_serving()) {
            self.possible_at_primary(state, at, lead, actions);
            self.possible_joins(state, at, lead, actions);
            let may_renew = more_epochs && state.spent.renews < self.renews && lead.epoch == epoch;
            if may_renew && !lead.busy.is_empty() {
                actions.push(Action::Renew(at));
            }
        }
        actions.extend(state.net.keys().map(|letter| Action::Deliver(*letter)));
        for slot in self.slots() {
            let (brick, is_live) = (&state.bricks[slot], live & 1 << slot != 0);
            if self.lazy && (brick.is_wet() || !state.owed[slot].is_empty()) {
                actions.push(Action::Sync(slot));
            }
            // A checkpoint waits for the journal: a sync first.
            if state.owed[slot].is_empty() {
                if state.spent.segments < self.segments && !brick.is_wet() {
                    actions.push(Action::Segment(slot));
                }
                if state.spent.checkpoints < self.checkpoints {
                    actions.push(Action::Checkpoint(slot));
                }
            }
            let leads = self.primary_of(state, epoch) == Some(slot);
            let frail = self.frail & 1 << slot != 0 && state.spent.crashes < self.crashes;
            let joins = state
                .leads
                .iter()
                .any(|lead| lead.joining.as_ref().is_some_and(|joining| joining.slot == slot));
            if frail && (is_live || joins) && state.has_lease(slot) && (more_epochs || !leads) {
                for kept in 0..=brick.unsynced() {
                    actions.push(Action::Crash(slot, kept, true));
                    if kept > 0 {
                        actions.push(Action::Crash(slot, kept, false));
                    }
                }
            }
            let enough = live.count_ones() as usize > self.code.k();
            if is_live
                && enough
                && more_epochs
                && state.spent.expels < self.expels
                && self.frail & 1 << slot != 0
            {
                actions.push(Action::Expel(slot));
            }
            if !is_live && !state.has_lease(slot) && state.spent.rejoins < self.rejoins {
                actions.push(Action::Rejoin(slot));
            }
            if state.maps[slot] < epoch && (leads || state.leads[slot].epoch != Epoch(0)) {
                actions.push(Action::Fetch(slot));
            }
        }
    }

    fn possible_at_primary(&self, state: &State, at: usize, lead: &Lead, actions: &mut Vec<Action>) {
        let leased = state.has_lease(at);
        let live = state.live_in(lead.epoch);
        let joining = lead.joining.as_ref();
        let sealed = joining.is_some_and(|joining| joining.sealed);
        for write in 0..self.writes.len() {
            let accepted = state.ghost.accepted[write] == lead.epoch.0;
            let stable = state.ghost.stable & 1 << write != 0;
            if leased && accepted && !stable && self.is_stable(lead, write) {
                actions.push(Action::Stable(at, write));
            }
            let enough = live.count_ones() as usize >= self.code.live_min();
            if leased && !sealed && !accepted && !stable && enough && self.is_next(state, lead, write) {
                actions.push(Action::Accept(at, write));
            }
        }
        let ordered = !sealed && (state.ghost.ops.len() as u64) < self.orders + u64::from(self.folds);
        for key in self.keys() {
            let waits = lead.lanes.get(&key).is_some_and(|lane| !lane.is_empty());
            let idle = lead.is_idle(key);
            if ordered && waits && idle {
                actions.push(Action::Order(at, key.stripe));
            }
            let may_fold = idle || self.is(Mutant::FoldUndecided);
            let has_overlays = |slot: usize| !state.bricks[slot].now.core.shape(key).overlays.is_empty();
            // `ops/unfolded.rs`: a data slot asks the others.
            let asked = if at < self.code.k() { 0..self.code.k() } else { 0..0 };
            let overlaid =
                has_overlays(at) || asked.into_iter().any(|slot| live & 1 << slot != 0 && has_overlays(slot));
            if ordered && may_fold && overlaid && state.spent.folds < self.folds {
                actions.push(Action::Fold(at, key.stripe, true));
                actions.push(Action::Fold(at, key.stripe, false));
            }
        }
        let joins = joining.map_or(0, |joining| 1 << joining.slot);
        for slot in self.slots().filter(|slot| (live | joins) & 1 << slot != 0) {
            let core = &state.bricks[slot].now.core;
            let upto = Scope::tellable(lead, slot);
            if core.served(GROUP) == Some(lead.epoch) && core.decided(GROUP) < upto {
                actions.push(Action::Tell(at, slot));
            }
        }
    }

    /// What a slot may be told as decided.
    fn tellable(lead: &Lead, slot: usize) -> Seq {
        let decided = lead.core.decided(GROUP);
        let joining = lead.joining.as_ref().filter(|joining| joining.slot == slot);
        joining.map_or(decided, |joining| joining.tellable(decided))
    }

    /// A client sends what it wrote to a stripe in order: everything before is stable, or accepted in this epoch.
    fn is_next(&self, state: &State, lead: &Lead, write: usize) -> bool {
        let this = &self.writes[write];
        (0..write).filter(|other| self.writes[*other].client == this.client).all(|other| {
            let there = self.writes[other].stripe != this.stripe;
            let done = state.ghost.stable & 1 << other != 0 || state.ghost.accepted[other] == lead.epoch.0;
            done || there && state.ghost.begun & 1 << other != 0
        })
    }

    /// The number that its client gives to a write.
    fn number(&self, write: usize) -> u64 {
        let client = self.writes[write].client;
        self.writes[..=write].iter().filter(|other| other.client == client).count() as u64
    }

    fn is_stable(&self, lead: &Lead, write: usize) -> bool {
        let origin = lead::origin(self.writes[write].client, self.number(write));
        lead.core.is_stable(GROUP, origin.client, origin.seq)
    }

    /// One step. An assertion of the code that fails is a finding.
    pub(super) fn step(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            self.act(&mut state, action);
            self.tidy(&mut state);
            self.judge(&mut state);
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
            Action::Order(at, stripe) => self.order(state, at, Scope::key(stripe)),
            Action::Fold(at, stripe, patch) => self.fold(state, at, Scope::key(stripe), patch),
            Action::Stable(_, write) => Arc::make_mut(&mut state.ghost).stable |= 1 << write,
            Action::Tell(at, slot) => {
                let (epoch, upto) = (state.leads[at].epoch, Scope::tellable(&state.leads[at], slot));
                Arc::make_mut(&mut state.bricks[slot]).learn(epoch, upto);
            }
            Action::Deliver(letter) => self.deliver(state, letter),
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

    /// `ops/write.rs`, `write`.
    fn accept(&self, state: &mut State, at: usize, write: usize) {
        let this = &self.writes[write];
        let origin = lead::origin(this.client, self.number(write));
        let ghost = Arc::make_mut(&mut state.ghost);
        let stable = |number: &u64| {
            let mut of = (0..self.writes.len()).filter(|other| self.writes[*other].client == this.client);
            of.nth(*number as usize - 1).is_some_and(|other| ghost.stable & 1 << other != 0)
        };
        let acked = (1..=self.writes.len() as u64).take_while(stable).count() as u64;
        if ghost.begun & 1 << write == 0 {
            let same = |other: &usize| {
                self.writes[*other].client == this.client && self.writes[*other].stripe == this.stripe
            };
            ghost.before[write] = (0..write).filter(same).fold(ghost.stable, |mask, other| mask | 1 << other);
            ghost.begun |= 1 << write;
        }
        let lead = Arc::make_mut(&mut state.leads[at]);
        ghost.accepted[write] = lead.epoch.0;
        if lead.core.admit(GROUP, origin.client, origin.seq, ClientSeq(acked)) {
            lead.lanes.entry(Scope::key(this.stripe)).or_default().push_back(write);
        }
    }

    /// A stripe as its primary sees it.
    pub(super) fn view<'a>(
        &'a self,
        bricks: &'a [&'a Brick],
        lead: &Lead,
        ghost: &Ghost,
        me: usize,
        live: u64,
        key: StripeKey,
    ) -> View<'a> {
        let upto = lead.core.decided(GROUP);
        let mut decided: Vec<Seq> = ghost.ops.keys().copied().filter(|seq| *seq <= upto).collect();
        decided.extend(lead.core.committed_on(GROUP, key));
        if self.is(Mutant::FoldUndecided) {
            decided.extend(ghost.ops.keys().copied());
        }
        let mut shape = bricks[me].now.core.shape(key);
        shape.exists |= me < self.code.k();
        let (k, unit, epoch) = (self.code.k(), self.unit, lead.epoch);
        View {
            bricks,
            code4: &self.code4,
            k,
            unit,
            me,
            live,
            epoch,
            key,
            shape,
            decided,
            mutant: self.mutant,
        }
    }

    /// `ops/write.rs`, `try_commit`, up to the point where everything is on its way.
    fn order(&self, state: &mut State, at: usize, key: StripeKey) {
        let Some(write) = state.leads[at].lanes.get(&key).and_then(|lane| lane.front().copied()) else {
            return;
        };
        let this = &self.writes[write];
        let byte = |block: &usize| if this.zero { 0 } else { super::bytes::written(write, *block) };
        let wish = Wish {
            cells: this.blocks.iter().map(|block| (*block, byte(block))).collect(),
            zero: this.zero,
            small: this.small,
        };
        let origins = vec![lead::origin(this.client, self.number(write))];
        let bricks: Vec<&Brick> = state.bricks.iter().map(|brick| &**brick).collect();
        let live = state.live_in(state.leads[at].epoch);
        let Some(plan) =
            lead::plan(&self.view(&bricks, &state.leads[at], &state.ghost, at, live, key), &wish)
        else {
            return;
        };
        let lead = Arc::make_mut(&mut state.leads[at]);
        let Some((seq, deliveries)) = lead::carry(lead, key, plan, origins, false) else { return };
        lead.lanes.get_mut(&key).map(|lane| lane.pop_front());
        lead.busy.push(Busy { seq, key, write: Some(write), patch: None, acked: 0, refused: false });
        self.ordered(state, at, seq, Some(write), wish.cells, &deliveries);
        self.send(state, deliveries);
    }

    /// `ops/fold.rs`, `fold`.
    pub(super) fn fold(&self, state: &mut State, at: usize, key: StripeKey, patch: bool) {
        state.spent.folds += 1;
        let bricks: Vec<Arc<Brick>> = state.bricks.clone();
        let bricks: Vec<&Brick> = bricks.iter().map(|brick| &**brick).collect();
        let live = state.live_in(state.leads[at].epoch);
        let mut lead = (*state.leads[at]).clone();
        let view = self.view(&bricks, &lead, &state.ghost, at, live, key);
        let folded = match patch {
            true => lead::patch(&mut lead, &view),
            false => lead::plan_fold(&view).and_then(|plan| {
                let (seq, deliveries) =
                    lead::carry(&mut lead, key, plan, Vec::new(), self.is(Mutant::FoldUndecided))?;
                Some((Busy { seq, key, write: None, patch: None, acked: 0, refused: false }, deliveries))
            }),
        };
        let Some((busy, deliveries)) = folded else { return };
        let seq = busy.seq;
        lead.busy.push(busy);
        *Arc::make_mut(&mut state.leads[at]) = lead;
        self.ordered(state, at, seq, None, Vec::new(), &deliveries);
        self.send(state, deliveries);
    }

    /// Writes down what only the outside knows: this operation is on its way.
    fn ordered(
        &self,
        state: &mut State,
        at: usize,
        seq: Seq,
        write: Option<usize>,
        cells: Vec<(usize, u32)>,
        to: &[Delivery],
    ) {
        let Some((_, prepare, _)) = to.first() else { return };
        let small = matches!(
            prepare.kind,
            types::messages::brick::OpKind::Overlay | types::messages::brick::OpKind::Zero
        );
        let op = Op {
            key: prepare.key,
            write,
            small,
            participants: prepare.participants,
            cells,
            fate: Fate::Open,
        };
        if Arc::make_mut(&mut state.ghost).ops.insert(seq, op).is_some() {
            state.wrong = Some(format!("I4 {seq} was given before"));
        }
        if self.is(Mutant::CommitEarly)
            && let Some((slot, ..)) = to.iter().rfind(|(slot, ..)| *slot >= self.code.k())
        {
            self.acked(state, at, seq, *slot);
        }
    }

    fn send(&self, state: &mut State, deliveries: Vec<Delivery>) {
        for (slot, prepare, payload) in deliveries {
            let letter = letter(1, slot, prepare.seq);
            state.net.insert(letter, Arc::new(Message::Prepare { prepare, payload }));
        }
    }

    /// The slot of the primary of an epoch.
    pub(super) fn primary_of(&self, state: &State, epoch: Epoch) -> Option<usize> {
        self.config(epoch, state.live_in(epoch)).primary(self.code)
    }

    /// The primary of an epoch, if its brick still is it.
    fn lead_of(&self, state: &State, epoch: Epoch) -> Option<usize> {
        self.primary_of(state, epoch).filter(|at| state.leads[*at].epoch == epoch)
    }

    fn deliver(&self, state: &mut State, letter: Letter) {
        let (_, slot, epoch, _) = letter;
        let Some(message) = state.net.get(&letter).cloned() else { return };
        if self.is(Mutant::AskOnce) {
            state.net.remove(&letter);
        }
        match &*message {
            Message::Prepare { prepare, payload } => {
                let brick = Arc::make_mut(&mut state.bricks[slot]);
                let (kind, answer) = match brick.prepare(epoch, prepare, payload, self.unit, self.mutant) {
                    Taken::Held(delta) => (2, Message::Prepared { seq: prepare.seq, delta }),
                    // Asked again until it serves the epoch.
                    Taken::Refused(Refusal::NotServing) => return,
                    Taken::Refused(refusal) => (3, Message::Refused { seq: prepare.seq, refusal }),
                };
                let to = if kind == 2 { &mut state.owed[slot] } else { &mut state.net };
                to.insert((kind, letter.1, letter.2, letter.3), Arc::new(answer));
            }
            Message::NewEpoch => self.new_epoch(state, slot, epoch),
            Message::Decide(settlement) => self.decide(state, slot, epoch, settlement),
            answer => {
                if let Some(at) = self.lead_of(state, epoch) {
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

    /// What a primary does with an answer: `ops/write.rs`, `hand_over`; `take_over.rs`, `promise` and `tell_fate`.
    fn answered(&self, state: &mut State, at: usize, slot: usize, answer: &Message) {
        match answer {
            Message::Prepared { seq, delta } => {
                let lead = Arc::make_mut(&mut state.leads[at]);
                if let Some(joining) = lead.joining.as_mut().filter(|joining| joining.slot == slot) {
                    if let Some(key) = joining.given.remove(seq)
                        && state.ghost.ops.get(seq).is_some_and(|op| !op.small)
                    {
                        joining.behind.remove(&key);
                    }
                    return;
                }
                let mut round = None;
                if let Some(busy) = lead.busy.iter_mut().find(|busy| busy.seq == *seq) {
                    busy.acked |= 1 << slot;
                    if let Some(patch) = busy.patch.as_mut().filter(|_| slot < self.code.k()) {
                        match patch.told(slot, delta, &self.code4) {
                            Ok(next) => round = next,
                            Err(()) => busy.refused = true,
                        }
                    }
                }
                self.send(state, round.unwrap_or_default());
                self.acked(state, at, *seq, slot);
            }
            Message::Refused { seq, refusal } => {
                if state.leads[at].joining.as_ref().is_some_and(|joining| joining.slot == slot) {
                    return self.give_up(state, at, *seq);
                }
                let lead = Arc::make_mut(&mut state.leads[at]);
                let Some(busy) = lead.busy.iter_mut().find(|busy| busy.seq == *seq && !busy.refused) else {
                    return;
                };
                // Tried again as a new operation, or given up until the epoch ends.
                busy.refused = true;
                if let Some(write) = busy.write.filter(|_| *refusal == Refusal::StaleEpoch) {
                    lead.lanes.entry(busy.key).or_default().push_front(write);
                }
            }
            Message::Tail(tail) => {
                let mut tail = tail.clone();
                if self.is(Mutant::ForgetWindows) {
                    tail.windows.clear();
                    tail.held.iter_mut().for_each(|op| op.origins.clear());
                }
                let lead = Arc::make_mut(&mut state.leads[at]);
                lead.promised |= 1 << slot;
                let epoch = lead.epoch;
                let Some(settlement) = lead.core.promised(GROUP, epoch, slot, tail) else { return };
                let more = digest(&settlement);
                let live = state.live_in(epoch);
                for to in self.slots().filter(|to| live & 1 << to != 0) {
                    state.net.insert((6, to, epoch, more), Arc::new(Message::Decide(settlement.clone())));
                }
            }
            Message::Settled => {
                let lead = Arc::make_mut(&mut state.leads[at]);
                lead.told |= 1 << slot;
                let epoch = lead.epoch;
                if lead.core.settled(GROUP, epoch, slot) {
                    self.settled(state, epoch);
                }
            }
            Message::Prepare { .. } | Message::NewEpoch | Message::Decide(_) => {}
        }
    }

    fn acked(&self, state: &mut State, at: usize, seq: Seq, slot: usize) {
        let lead = Arc::make_mut(&mut state.leads[at]);
        if lead.core.acked(GROUP, seq, slot) {
            lead.busy.retain(|busy| busy.seq != seq);
            if let Some(op) = Arc::make_mut(&mut state.ghost).ops.get_mut(&seq) {
                op.fate = Fate::Stands;
            }
        }
    }

    /// A take-over has ended: what came before has its fate.
    fn settled(&self, state: &mut State, epoch: Epoch) {
        let live = state.live_in(epoch);
        let bricks = state.bricks.clone();
        let stands = |seq: Seq| {
            bricks.iter().any(|brick| live & 1 << brick.slot != 0 && brick.now.absorbed.contains(&seq))
        };
        for (seq, op) in &mut Arc::make_mut(&mut state.ghost).ops {
            if op.fate == Fate::Open && seq.epoch() < epoch {
                op.fate = if stands(*seq) { Fate::Stands } else { Fate::Gone };
            }
        }
    }

    fn sync(&self, state: &mut State, slot: usize) {
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        brick.sync(&self.keys());
        for (letter, answer) in std::mem::take(&mut state.owed[slot]) {
            let (_, _, epoch, _) = letter;
            match &*answer {
                Message::NewEpoch if brick.now.core.promised(GROUP) == epoch => {
                    let tail: Tail = brick.now.core.tail(GROUP, 0);
                    state.net.insert((5, slot, epoch, digest(&tail)), Arc::new(Message::Tail(tail)));
                }
                Message::NewEpoch => {}
                _ => drop(state.net.insert(letter, answer)),
            }
        }
    }

    /// A brick restarts within its lease: `recover.rs`; `cluster/bricks.rs`, `join`; `member.rs`, `try_join`.
    fn crash(&self, state: &mut State, slot: usize, kept: usize, whole: bool) {
        state.spent.crashes += 1;
        state.owed[slot].clear();
        Arc::make_mut(&mut state.bricks[slot]).crash(kept, whole, self.mutant);
        state.leads[slot] = Arc::default();
        // Its primary sees that it is another life, and begins again.
        for lead in
            state.leads.iter_mut().filter(|lead| lead.joining.as_ref().is_some_and(|j| j.slot == slot))
        {
            Arc::make_mut(lead).joining = None;
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
        let lead = Arc::make_mut(&mut state.leads[slot]);
        if config.primary(self.code) != Some(slot) {
            *lead = Lead::default();
            return;
        }
        lead.core.begin(GROUP, config, self.code, slot);
        *lead = Lead { core: std::mem::take(&mut lead.core), epoch, ..Lead::default() };
        for to in self.slots().filter(|to| live & 1 << to != 0) {
            state.net.insert((4, to, epoch, 0), Arc::new(Message::NewEpoch));
        }
    }

    /// Forgets letters that can make no difference any more.
    pub(super) fn tidy(&self, state: &mut State) {
        let letters: Vec<Letter> = state.net.keys().copied().collect();
        for letter in letters {
            if self.is_pointless(state, letter) {
                state.net.remove(&letter);
            }
        }
    }

    fn is_pointless(&self, state: &State, letter: Letter) -> bool {
        let (kind, slot, epoch, more) = letter;
        let lead = self.lead_of(state, epoch).map(|at| &state.leads[at]);
        let brick = &state.bricks[slot];
        let (promised, served) = brick.durable_epochs();
        let arrived =
            |kind| state.net.range((kind, slot, epoch, 0)..=(kind, slot, epoch, u64::MAX)).next().is_some();
        let waits = |done: fn(&Lead) -> u64| lead.is_some_and(|lead| done(lead) & 1 << slot == 0);
        match kind {
            1..=3 => {
                let seq = Seq::new(epoch, more);
                let busy = lead.and_then(|lead| lead.busy.iter().find(|busy| busy.seq == seq));
                let joining =
                    lead.and_then(|lead| lead.joining.as_ref()).filter(|joining| joining.slot == slot);
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
            4 => arrived(5) || !waits(|lead| lead.promised) && promised >= epoch,
            5 => !waits(|lead| lead.promised),
            6 => arrived(7) || !waits(|lead| lead.told) && (promised > epoch || served == Some(epoch)),
            _ => !waits(|lead| lead.told),
        }
    }
}

fn letter(kind: u8, slot: usize, seq: Seq) -> Letter {
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
