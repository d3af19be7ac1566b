//! Liveness: from every state a path without faults leads to a state in which clients know that all their writes are
//! stable, lost slots are level and live again, and nothing is left to do.
//!
//! Only the obvious path is tried: every pending step is taken, quick ones first. A slot is told decisions only if it
//! holds something, because only then it asks (`take_over.rs`, `ask_for_decisions`).

use types::Seq;

use super::cluster::{Action, Scope, State};
use super::mutants::Mutant;
use super::primary::Primary;

/// Steps after which the path counts as endless.
const STEPS_MAX: usize = 600;

impl Scope {
    /// Checks that everything comes to rest from this state.
    pub(super) fn check_liveness(&self, state: &State) -> Result<(), String> {
        // No more faults, and lost bricks come back. The steps needed for that are not bounded.
        let fault_free = Scope {
            orders: u64::from(u32::MAX),
            epochs: usize::MAX,
            crashes: 0,
            expels: 0,
            renews: 0,
            rejoins: u8::MAX,
            joins: u8::MAX,
            checkpoints: 0,
            segments: 0,
            with_liveness: false,
            ..self.clone()
        };
        let (mut now, mut fingerprint) = (state.clone(), state.fingerprint());
        let (mut fingerprints, mut way) = (Vec::new(), Vec::new());
        let told = |wrong: &str, way: &[Action]| format!("L {wrong}, by the way of {way:#?}");
        // From a known state the outcome is known already.
        while !self.known_live.contains(fingerprint) {
            fingerprints.push(fingerprint);
            let next = fault_free.proceed(&now, fingerprint).map_err(|wrong| told(&wrong, &way))?;
            let Some((action, next, next_fingerprint)) = next else {
                fault_free.check_quiescent(now).map_err(|wrong| told(&wrong, &way))?;
                break;
            };
            if way.len() == STEPS_MAX {
                return Err(told(&format!("it does not come to rest in {STEPS_MAX} steps: {now:?}"), &way));
            }
            (now, fingerprint) = (next, next_fingerprint);
            way.push(action);
        }
        fingerprints.into_iter().for_each(|fingerprint| self.known_live.insert(fingerprint));
        Ok(())
    }

    /// The first step that changes something, if there is one, and the state after it.
    fn proceed(&self, state: &State, fingerprint: u64) -> Result<Option<(Action, State, u64)>, String> {
        let mut actions = Vec::new();
        self.possible(state, &mut actions);
        // A primary that waits for an operation that cannot be completed asks for a new epoch: `ops/write.rs`,
        // `end_epoch`.
        let (epoch, _) = state.config();
        let asks = !self.is(Mutant::WaitForSpace);
        let stuck = |primary: &Primary| {
            asks && primary.epoch == epoch && primary.busy.iter().any(|busy| busy.refused)
        };
        actions
            .extend((0..state.primaries.len()).filter(|at| stuck(&state.primaries[*at])).map(Action::Renew));
        actions.retain(|action| rank(action).is_some() && !is_idle(state, action));
        actions.sort_by_key(rank);
        for action in actions {
            let mut next = state.clone();
            self.act(&mut next, action);
            self.prune_messages(&mut next);
            let next_fingerprint = next.fingerprint();
            if next_fingerprint != fingerprint {
                self.check_invariants(&mut next);
                if let Some(wrong) = next.wrong {
                    return Err(wrong);
                }
                let next_fingerprint = next.fingerprint();
                return Ok(Some((action, next, next_fingerprint)));
            }
        }
        Ok(None)
    }

    /// Nothing is left to do: checks that the final state is good.
    fn check_quiescent(&self, state: State) -> Result<(), String> {
        let (epoch, live) = state.config();
        let primary = self.primary_of(&state, epoch).map(|at| &state.primaries[at]);
        let Some(primary) = primary.filter(|primary| primary.epoch == epoch && primary.is_serving()) else {
            return Err(format!("nobody leads {epoch}: {state:?}"));
        };
        let stable = state.oracle.stable == (1 << self.writes.len()) - 1;
        let all_live = live == (1 << self.code.slots()) - 1;
        let all_know = state.bricks.iter().all(|brick| !brick.holds());
        let waits = !primary.busy.is_empty() || primary.lanes.values().any(|lane| !lane.is_empty());
        let moves = !state.net.is_empty() || state.owed.iter().any(|owed| !owed.is_empty());
        let idle = !waits && !moves && primary.joining.is_none();
        match (stable, all_live, all_know, idle) {
            (true, true, true, true) => Ok(()),
            rests => Err(format!("(stable, live, decided, idle) are {rests:?} in the end: {state:?}")),
        }
    }
}

/// Possible steps that make no progress: delivering an operation that one slot has refused (`ops/write.rs`,
/// `deliver`); telling a decision to a slot that waits for none.
fn is_idle(state: &State, action: &Action) -> bool {
    match *action {
        Action::Deliver((1, _, epoch, more)) => {
            let mut busy = state.primaries.iter().flat_map(|primary| &primary.busy);
            busy.any(|busy| busy.refused && busy.seq == Seq::new(epoch, more))
        }
        Action::Tell(_, slot) => !state.bricks[slot].holds(),
        _ => false,
    }
}

/// The order of steps when no fault happens; `None`: a fault, or an optional step.
fn rank(action: &Action) -> Option<u8> {
    match action {
        Action::Fetch(_) => Some(0),
        Action::Sync(_) => Some(1),
        Action::Deliver(_) => Some(2),
        Action::Stable(..) | Action::Tell(..) => Some(3),
        Action::Accept(..) | Action::Order(..) => Some(4),
        Action::Compare(_) | Action::Level(..) | Action::Seal(_) | Action::Admit(_) => Some(5),
        Action::Rejoin(_) | Action::Join(..) => Some(6),
        Action::GiveUp(..) | Action::Renew(_) => Some(7),
        _ => None,
    }
}
