//! Steps of a primary: it accepts writes, orders them, and folds.

use std::sync::Arc;

use types::messages::brick::WriteId;
use types::{ClientSeq, Seq, StripeKey};

use super::brick::*;
use super::cluster::*;
use super::mutants::Mutant;
use super::oracle::*;
use super::primary::{self, Delivery, InFlight, Primary, View, WriteRequest};

impl Scope {
    /// `ops/write.rs`, `write`.
    pub(super) fn accept(&self, state: &mut State, at: usize, write: usize) {
        let this = &self.writes[write];
        let origin = self.origin(write);
        let oracle = Arc::make_mut(&mut state.oracle);
        let stable = |number: &u64| {
            let mut of = (0..self.writes.len()).filter(|other| self.writes[*other].client == this.client);
            of.nth(*number as usize - 1).is_some_and(|other| oracle.stable & 1 << other != 0)
        };
        let acked = (1..=self.writes.len() as u64).take_while(stable).count() as u64;
        if oracle.begun & 1 << write == 0 {
            let same = |other: &usize| {
                self.writes[*other].client == this.client && self.writes[*other].stripe == this.stripe
            };
            oracle.before[write] =
                (0..write).filter(same).fold(oracle.stable, |mask, other| mask | 1 << other);
            oracle.begun |= 1 << write;
        }
        let primary = Arc::make_mut(&mut state.primaries[at]);
        oracle.accepted[write] = primary.epoch.0;
        if primary.core.accept(GROUP, origin.client, origin.seq, ClientSeq(acked)) {
            primary.lanes.entry(Scope::key(this.stripe)).or_default().push_back(write);
        }
    }

    /// `ops/proxy.rs`. The client has sent the write twice in this epoch: to the primary, and by way of another brick. It knew less of
    /// what is stable when it sent the copy.
    pub(super) fn accept_late(&self, state: &mut State, at: usize, write: usize) {
        state.spent.late += 1;
        let key = Scope::key(self.writes[write].stripe);
        let WriteId { client, seq, .. } = match self.is(Mutant::ProxyNumbersWrites) {
            true => primary::origin(u8::MAX, self.number(write)),
            false => self.origin(write),
        };
        let primary = Arc::make_mut(&mut state.primaries[at]);
        if primary.core.accept(GROUP, client, seq, ClientSeq(0)) {
            primary.lanes.entry(key).or_default().push_back(write);
        }
    }

    /// A stripe as its primary sees it.
    pub(super) fn view<'a>(
        &'a self,
        bricks: &'a [&'a Brick],
        primary: &Primary,
        oracle: &Oracle,
        me: usize,
        live: u64,
        key: StripeKey,
    ) -> View<'a> {
        let upto = primary.core.decided(GROUP);
        let mut decided: Vec<Seq> = oracle.ops.keys().copied().filter(|seq| *seq <= upto).collect();
        decided.extend(primary.core.committed_on(GROUP, key));
        if self.is(Mutant::FoldUndecided) {
            decided.extend(oracle.ops.keys().copied());
        }
        let mut shape = bricks[me].now.core.shape(key);
        shape.exists |= me < self.code.k();
        let (k, unit, epoch) = (self.code.k(), self.unit, primary.epoch);
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

    /// `ops/write.rs`, `try_commit`, up to the sending of all messages.
    pub(super) fn order(&self, state: &mut State, at: usize, key: StripeKey) {
        let Some(write) = state.primaries[at].lanes.get(&key).and_then(|lane| lane.front().copied()) else {
            return;
        };
        let this = &self.writes[write];
        let byte =
            |block: &usize| if this.zero || this.blank { 0 } else { super::bytes::written(write, *block) };
        let request = WriteRequest {
            cells: this.blocks.iter().map(|block| (*block, byte(block))).collect(),
            zero: this.zero,
            small: this.small,
        };
        let origins = vec![self.origin(write)];
        let bricks: Vec<&Brick> = state.bricks.iter().map(|brick| &**brick).collect();
        let live = state.live_in(state.primaries[at].epoch);
        let Some(plan) =
            primary::plan(&self.view(&bricks, &state.primaries[at], &state.oracle, at, live, key), &request)
        else {
            return;
        };
        let primary = Arc::make_mut(&mut state.primaries[at]);
        let Some((seq, deliveries)) = primary::replicate(primary, key, plan, origins, false) else { return };
        primary.lanes.get_mut(&key).map(|lane| lane.pop_front());
        primary.busy.push(InFlight { seq, key, write: Some(write), patch: None, acked: 0, refused: false });
        self.ordered(state, at, seq, Some(write), request.cells, &deliveries);
        self.send(state, deliveries);
    }

    /// `ops/fold.rs`, `fold`.
    pub(super) fn fold(&self, state: &mut State, at: usize, key: StripeKey, patch: bool) {
        state.spent.folds += 1;
        let bricks: Vec<Arc<Brick>> = state.bricks.clone();
        let bricks: Vec<&Brick> = bricks.iter().map(|brick| &**brick).collect();
        let live = state.live_in(state.primaries[at].epoch);
        let mut primary = (*state.primaries[at]).clone();
        let view = self.view(&bricks, &primary, &state.oracle, at, live, key);
        let folded = match patch {
            true => primary::patch(&mut primary, &view),
            false => primary::plan_fold(&view).and_then(|plan| {
                let (seq, deliveries) =
                    primary::replicate(&mut primary, key, plan, Vec::new(), self.is(Mutant::FoldUndecided))?;
                Some((InFlight { seq, key, write: None, patch: None, acked: 0, refused: false }, deliveries))
            }),
        };
        let Some((busy, deliveries)) = folded else { return };
        let seq = busy.seq;
        primary.busy.push(busy);
        *Arc::make_mut(&mut state.primaries[at]) = primary;
        self.ordered(state, at, seq, None, Vec::new(), &deliveries);
        self.send(state, deliveries);
    }

    /// Notes in the oracle that this operation was ordered.
    pub(super) fn ordered(
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
        if Arc::make_mut(&mut state.oracle).ops.insert(seq, op).is_some() {
            state.wrong = Some(format!("I4 {seq} was given before"));
        }
        if self.is(Mutant::CommitEarly)
            && let Some((slot, ..)) = to.iter().rfind(|(slot, ..)| *slot >= self.code.k())
        {
            self.acked(state, at, seq, *slot);
        }
    }
}
