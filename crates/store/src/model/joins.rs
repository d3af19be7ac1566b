//! An Out slot is brought level and admitted, modelled from the design: only the primary knows that the slot joins.
//! The slot starts clean. It takes part in operations that replace a whole stripe, and in all operations on stripes
//! where it is level. Before it is admitted no operation is open, and every live slot and the joining one know that
//! durably.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::messages::brick::{OpKind, Prepare};
use types::{Seq, StripeKey};

use super::brick::{Brick, GROUP, Record};
use super::cluster::{Action, Scope, State};
use super::mutants::Mutant;
use super::oracle::Fate;
use super::primary::Primary;
use super::steps::settle_record;
use crate::ops::{empty_prepare, prepare_record};
use crate::primary::Settlement;
use crate::record::Promise;
use crate::slot::Shape;

/// A slot that joins.
#[derive(Clone, Debug, Hash)]
pub(super) struct Joining {
    pub(super) slot: usize,
    /// Stripes that are behind: the slot lacks or may lack operations on them.
    pub(super) behind: BTreeSet<StripeKey>,
    /// Operations that it was offered and has not answered.
    pub(super) given: BTreeMap<Seq, StripeKey>,
    /// Everything was compared.
    pub(super) compared: bool,
    /// Nothing is ordered any more.
    pub(super) sealed: bool,
}

impl Joining {
    /// Up to where the slot may be told that everything is decided.
    pub(super) fn decided_limit(&self, decided: Seq) -> Seq {
        match self.given.first_key_value() {
            Some((first, _)) if *first <= decided => Seq(first.0 - 1),
            _ => decided,
        }
    }

    /// Decides whether to offer the slot an operation in which it takes part; if not, the stripe falls behind.
    pub(super) fn offer(&mut self, seq: Seq, key: StripeKey, whole: bool) -> bool {
        let takes_part = whole || self.compared && !self.behind.contains(&key);
        match takes_part {
            true => drop(self.given.insert(seq, key)),
            false => drop(self.behind.insert(key)),
        }
        takes_part
    }
}

impl Scope {
    /// The steps that are possible for a slot that joins.
    pub(super) fn possible_joins(
        &self,
        state: &State,
        at: usize,
        primary: &Primary,
        actions: &mut Vec<Action>,
    ) {
        let (epoch, live) = state.config();
        let Some(joining) = &primary.joining else {
            if primary.epoch == epoch && state.spent.joins < self.joins {
                let back = |slot: &usize| live & 1 << slot == 0 && state.has_lease(*slot);
                actions.extend(self.slots().filter(back).map(|slot| Action::Join(at, slot)));
            }
            return;
        };
        if !joining.compared {
            actions.push(Action::Compare(at));
        }
        for key in &joining.behind {
            let folds = (state.oracle.ops.len() as u64) < self.orders + u64::from(self.folds);
            if joining.compared && !joining.sealed && primary.is_idle(*key) && folds {
                actions.push(Action::Level(at, key.stripe));
            }
        }
        actions.extend(joining.given.keys().map(|seq| Action::GiveUp(at, *seq)));
        let idle = primary.busy.is_empty() && primary.lanes.values().all(|lane| lane.is_empty());
        let drained = idle && joining.given.is_empty() && joining.behind.is_empty();
        if joining.compared && !joining.sealed && (drained || self.is(Mutant::AdmitUndrained)) {
            actions.push(Action::Seal(at));
        }
        if joining.sealed && primary.epoch == epoch && state.configs.len() < self.epochs {
            actions.push(Action::Admit(at));
        }
    }

    /// `NewEpoch` and `Decide` to the slot: it drops its undecided operations.
    pub(super) fn join(&self, state: &mut State, at: usize, slot: usize) {
        state.spent.joins += 1;
        let primary = Arc::make_mut(&mut state.primaries[at]);
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        if brick.now.core.promised(GROUP) < primary.epoch {
            brick.append(Record::Promise(Promise { group: GROUP, epoch: primary.epoch }));
        }
        let aborted = match self.is(Mutant::JoinUnclean) {
            true => Vec::new(),
            false => brick.now.core.tail(GROUP, 0).held.iter().map(|op| op.seq).collect(),
        };
        let (upto, windows) = (primary.core.decided(GROUP), primary.core.windows(GROUP));
        let fate = Settlement { upto, aborted, windows };
        brick.append(Record::Settle(settle_record(primary.epoch, &fate)));
        brick.sync(&self.keys());
        brick.forget_past();
        let behind = primary.busy.iter().map(|busy| busy.key).collect();
        primary.joining =
            Some(Joining { slot, behind, given: BTreeMap::new(), compared: false, sealed: false });
    }

    /// Compares the slot's units with those that it should have.
    pub(super) fn compare(&self, state: &mut State, at: usize) {
        let live = state.live_in(state.primaries[at].epoch);
        let primary = Arc::make_mut(&mut state.primaries[at]);
        let Some(joining) = &mut primary.joining else { return };
        for key in self.keys() {
            let has = state.bricks[joining.slot].now.core.shape(key);
            let wanted = self.known(&state.bricks, at, live, key);
            let same = has.identity == wanted.identity_of(joining.slot);
            if !same || !has.overlays.is_empty() || !wanted.overlays.is_empty() {
                joining.behind.insert(key);
            }
        }
        joining.compared = true;
    }

    /// `join.rs`, `list_live`, and `ops/stripe.rs`, `of_bases`, when every ordered operation is decided: a parity
    /// slot knows every unit; if no parity slot is live, each data slot knows its own unit.
    fn known(&self, bricks: &[Arc<Brick>], at: usize, live: u64, key: StripeKey) -> Shape {
        if at >= self.code.k() || self.is(Mutant::AskNobody) {
            return bricks[at].now.core.shape(key);
        }
        let (identities, unit_blocks) = (vec![Seq::NONE; self.code.k()], vec![0; self.code.k()]);
        let mut known = Shape { identities, unit_blocks, ..Shape::default() };
        for unit in (0..self.code.k()).filter(|unit| live & 1 << unit != 0) {
            let its = bricks[unit].now.core.shape(key);
            known.identities[unit] = its.identity_of(unit);
            known.unit_blocks[unit] = its.unit_blocks.get(unit).copied().unwrap_or(0);
            known.identity = known.identity.max(its.identity_of(unit));
            known.exists |= its.exists;
            known.overlays.extend(its.overlays);
        }
        known
    }

    /// One stripe: the slot gets its unit, or takes part in a fold that writes the stripe whole.
    pub(super) fn level(&self, state: &mut State, at: usize, key: StripeKey) {
        let primary = state.primaries[at].clone();
        let Some(joining) = &primary.joining else { return };
        let slot = joining.slot;
        let bricks = state.bricks.clone();
        let bricks: Vec<&Brick> = bricks.iter().map(|brick| &**brick).collect();
        let live = state.live_in(primary.epoch);
        let mut view = self.view(&bricks, &primary, &state.oracle, at, live, key);
        view.shape = self.known(&state.bricks, at, live, key);
        let base = view.shape.identity_of(slot);
        let older = bricks[slot].now.core.shape(key).identity < base;
        if !view.shape.overlays.is_empty() || !older {
            if !view.shape.exists {
                // No slot has the stripe: the slot would forget its unit.
                return;
            }
            state.spent.folds = state.spent.folds.saturating_sub(1);
            return self.fold(state, at, key, false);
        }
        let units: Result<Vec<_>, _> =
            (0..self.code.k()).map(|unit| view.data_unit(unit, unit == slot)).collect();
        let Ok(mut units) = units else { return };
        for (unit, blocks) in units.iter_mut().zip(&view.shape.unit_blocks) {
            unit.truncate(*blocks as usize);
        }
        let parity = self.code4.encode(&units);
        let cells = units.into_iter().chain(parity).nth(slot).unwrap_or_default();
        let decided = joining.decided_limit(primary.core.decided(GROUP));
        let brick = Arc::make_mut(&mut state.bricks[slot]);
        brick.learn(primary.epoch, decided);
        let served = brick.now.core.served(GROUP) == Some(primary.epoch);
        let prepare = Prepare {
            slot: slot as u8,
            participants: 1 << slot,
            unit_blocks: view.shape.unit_blocks.clone(),
            crcs: cells.clone(),
            ..empty_prepare(GROUP, base, key, OpKind::Full)
        };
        if served
            && brick.now.core.decided(GROUP) >= base
            && brick.fill(prepare_record(&prepare, Vec::new()), &cells, &view.shape.identities)
        {
            brick.sync(&self.keys());
            if let Some(joining) = &mut Arc::make_mut(&mut state.primaries[at]).joining {
                joining.behind.remove(&key);
            }
        }
    }

    /// The slot did not answer in time: the stripe falls behind.
    pub(super) fn give_up(&self, state: &mut State, at: usize, seq: Seq) {
        if let Some(joining) = &mut Arc::make_mut(&mut state.primaries[at]).joining
            && let Some(key) = joining.given.remove(&seq)
        {
            joining.behind.insert(key);
        }
    }

    /// No operation is open, every slot knows that durably, and nothing is ordered any more.
    pub(super) fn seal(&self, state: &mut State, at: usize) {
        let live = state.live_in(state.primaries[at].epoch);
        let primary = Arc::make_mut(&mut state.primaries[at]);
        let Some(joining) = &mut primary.joining else { return };
        joining.sealed = true;
        if self.is(Mutant::AdmitUndrained) {
            return;
        }
        let slot = joining.slot;
        let (upto, windows) = (primary.core.decided(GROUP), primary.core.windows(GROUP));
        let (epoch, fate) = (primary.epoch, Settlement { upto, aborted: Vec::new(), windows });
        let all = live | 1 << slot;
        let serve = |slot: &usize| state.bricks[*slot].now.core.promised(GROUP) == epoch;
        if !self.slots().filter(|slot| all & 1 << slot != 0).all(|slot| serve(&slot)) {
            // A slot has promised a newer epoch: this attempt is over.
            primary.joining = None;
            return;
        }
        for slot in self.slots().filter(|slot| all & 1 << slot != 0) {
            let brick = Arc::make_mut(&mut state.bricks[slot]);
            brick.append(Record::Settle(settle_record(epoch, &fate)));
            brick.sync(&self.keys());
        }
    }

    /// The arbiter: Out to Live, if the epoch is still the one that the primary named.
    pub(super) fn admit(&self, state: &mut State, at: usize) {
        let (_, live) = state.config();
        let primary = Arc::make_mut(&mut state.primaries[at]);
        let Some(joining) = &mut primary.joining else { return };
        let slot = joining.slot;
        let mut next = live | 1 << slot;
        if self.is(Mutant::SwapSlots) {
            // A mutant: the same change expels another slot, and the primary goes on as if it had got no answer.
            joining.sealed = false;
            let other = self.slots().find(|other| live & 1 << other != 0 && *other != at);
            next &= !other.map_or(0, |other| 1 << other);
            state.leases &= !other.map_or(0, |other| 1 << other);
        }
        state.configs.push(next);
        // A slot that was compared and is level has every committed operation.
        let stands = state.oracle.ops.iter().filter(|(_, op)| op.fate == Fate::Committed);
        let stands: Vec<Seq> = stands.map(|(seq, _)| *seq).collect();
        Arc::make_mut(&mut state.bricks[slot]).has_all(&stands);
    }
}

/// Whether an operation also goes to the slot that joins.
pub(super) fn offer(
    primary: &mut Primary,
    seq: Seq,
    key: StripeKey,
    whole: bool,
    participants: u64,
) -> Option<(usize, Seq)> {
    let decided = primary.core.decided(GROUP);
    let joining = primary.joining.as_mut().filter(|joining| participants & 1 << joining.slot != 0)?;
    joining.offer(seq, key, whole).then(|| (joining.slot, joining.decided_limit(decided)))
}
