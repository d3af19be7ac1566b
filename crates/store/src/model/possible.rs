//! Which steps may come next.

use types::{Epoch, Seq};

use super::brick::GROUP;
use super::cluster::{Action, Scope, State};
use super::mutants::Mutant;
use super::primary::Primary;

impl Scope {
    /// Everything that may happen next.
    pub(super) fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let (epoch, live) = state.config();
        let more_epochs = state.configs.len() < self.epochs;
        for (at, primary) in state.primaries.iter().enumerate().filter(|(_, primary)| primary.is_serving()) {
            self.possible_at_primary(state, at, primary, actions);
            self.possible_joins(state, at, primary, actions);
            let may_renew = more_epochs && state.spent.renews < self.renews && primary.epoch == epoch;
            if may_renew && !primary.busy.is_empty() {
                actions.push(Action::Renew(at));
            }
        }
        actions.extend(state.net.keys().map(|message_id| Action::Deliver(*message_id)));
        for slot in self.slots() {
            let (brick, is_live) = (&state.bricks[slot], live & 1 << slot != 0);
            if self.lazy && (brick.is_dirty() || !state.owed[slot].is_empty()) {
                actions.push(Action::Sync(slot));
            }
            // A checkpoint waits for the journal: a sync first.
            if state.owed[slot].is_empty() {
                if state.spent.segments < self.segments && !brick.is_dirty() {
                    actions.push(Action::Segment(slot));
                }
                if state.spent.checkpoints < self.checkpoints {
                    actions.push(Action::Checkpoint(slot));
                }
            }
            let leads = self.primary_of(state, epoch) == Some(slot);
            let frail = self.frail & 1 << slot != 0 && state.spent.crashes < self.crashes;
            let joins = state
                .primaries
                .iter()
                .any(|primary| primary.joining.as_ref().is_some_and(|joining| joining.slot == slot));
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
            if state.maps[slot] < epoch && (leads || state.primaries[slot].epoch != Epoch(0)) {
                actions.push(Action::Fetch(slot));
            }
        }
    }

    fn possible_at_primary(&self, state: &State, at: usize, primary: &Primary, actions: &mut Vec<Action>) {
        let leased = state.has_lease(at);
        let live = state.live_in(primary.epoch);
        let joining = primary.joining.as_ref();
        let sealed = joining.is_some_and(|joining| joining.sealed);
        for write in 0..self.writes.len() {
            let accepted = state.oracle.accepted[write] == primary.epoch.0;
            let stable = state.oracle.stable & 1 << write != 0;
            if leased && accepted && !stable && self.is_stable(primary, write) {
                actions.push(Action::Stable(at, write));
            }
            let enough = live.count_ones() as usize >= self.code.live_min();
            if leased && !sealed && !accepted && !stable && enough && self.is_next(state, primary, write) {
                actions.push(Action::Accept(at, write));
            }
            if leased && !sealed && accepted && enough && state.spent.late < self.late {
                actions.push(Action::AcceptLate(at, write));
            }
        }
        let ordered = !sealed && (state.oracle.ops.len() as u64) < self.orders + u64::from(self.folds);
        for key in self.keys() {
            let waits = primary.lanes.get(&key).is_some_and(|lane| !lane.is_empty());
            let idle = primary.is_idle(key);
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
            let upto = Scope::decided_limit(primary, slot);
            if core.served(GROUP) == Some(primary.epoch) && core.decided(GROUP) < upto {
                actions.push(Action::Tell(at, slot));
            }
        }
    }

    /// Up to where a slot may be told that everything is decided.
    pub(super) fn decided_limit(primary: &Primary, slot: usize) -> Seq {
        let decided = primary.core.decided(GROUP);
        let joining = primary.joining.as_ref().filter(|joining| joining.slot == slot);
        joining.map_or(decided, |joining| joining.decided_limit(decided))
    }

    /// A client sends its writes to a stripe in order: every earlier one is stable, or accepted in this epoch.
    fn is_next(&self, state: &State, primary: &Primary, write: usize) -> bool {
        let this = &self.writes[write];
        (0..write).filter(|other| self.writes[*other].client == this.client).all(|other| {
            let there = self.writes[other].stripe != this.stripe;
            let done =
                state.oracle.stable & 1 << other != 0 || state.oracle.accepted[other] == primary.epoch.0;
            done || there && state.oracle.begun & 1 << other != 0
        })
    }
}
