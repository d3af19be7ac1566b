//! Liveness: from whatever state, once faults cease and everything that can happen does, clients are told that all their
//! writes are stable, slots that were lost are level again and live, and nothing is left to do.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::brick::GROUP;
use super::cluster::{Action, Scope, State};
use super::lead::Lead;
use super::mutants::Mutant;

/// Steps after which nobody believes in the end any more.
const PATIENCE: usize = 600;

impl Scope {
    /// From here everything comes to rest. The bounds of the scope do not count: they are about faults.
    pub(super) fn check_rest(&self, state: &State) -> Result<(), String> {
        let calm = Scope {
            orders: u64::from(u32::MAX),
            epochs: usize::MAX,
            crashes: 0,
            expels: 0,
            renews: 0,
            rejoins: u8::MAX,
            joins: u8::MAX,
            checkpoints: 0,
            rests: false,
            ..self.clone()
        };
        let mut way = Vec::new();
        let mut now = state.clone();
        let mut print = fingerprint(&now);
        for _ in 0..PATIENCE {
            // From there it is known already.
            let known = self.rested.contains(print);
            way.push(print);
            match if known { None } else { calm.proceed(&now, print)? } {
                Some((next, its)) => (now, print) = (next, its),
                None => {
                    if !known {
                        calm.check_at_rest(now)?;
                    }
                    way.into_iter().for_each(|print| self.rested.insert(print));
                    return Ok(());
                }
            }
        }
        Err(format!("L it does not come to rest in {PATIENCE} steps: {now:?}"))
    }

    /// The first step that changes something, if there is one.
    fn proceed(&self, state: &State, print: u64) -> Result<Option<(State, u64)>, String> {
        let mut actions = Vec::new();
        self.possible(state, &mut actions);
        // Whoever waits for an operation that cannot be completed asks for a new epoch: `ops/write.rs`, `end_epoch`.
        let (epoch, _) = state.config();
        let asks = !self.is(Mutant::WaitForSpace);
        let stuck = |lead: &Lead| asks && lead.epoch == epoch && lead.busy.iter().any(|busy| busy.refused);
        actions.extend((0..state.leads.len()).filter(|at| stuck(&state.leads[*at])).map(Action::Renew));
        actions.retain(|action| rank(action).is_some());
        actions.sort_by_key(rank);
        for action in actions {
            let mut next = state.clone();
            self.act(&mut next, action);
            self.tidy(&mut next);
            if let Some(wrong) = next.wrong {
                return Err(wrong);
            }
            let its = fingerprint(&next);
            if its != print {
                return Ok(Some((next, its)));
            }
        }
        Ok(None)
    }

    /// Nothing is left to do, and all is well.
    fn check_at_rest(&self, mut state: State) -> Result<(), String> {
        self.judge(&mut state);
        if let Some(wrong) = state.wrong {
            return Err(wrong);
        }
        let (epoch, live) = state.config();
        let lead = self.primary_of(&state, epoch).map(|at| &state.leads[at]);
        let Some(lead) = lead.filter(|lead| lead.epoch == epoch && lead.is_serving()) else {
            return Err(format!("L nobody leads {epoch}: {state:?}"));
        };
        let all_stable = state.ghost.stable == (1 << self.writes.len()) - 1;
        let all_live = live == (1 << self.code.slots()) - 1;
        let decided = lead.core.decided(GROUP);
        let all_know = state.bricks.iter().all(|brick| brick.now.core.decided(GROUP) == decided);
        let nothing_moves = state.net.is_empty() && state.owed.iter().all(|owed| owed.is_empty());
        match (all_stable, all_live, all_know, nothing_moves && lead.busy.is_empty()) {
            (true, true, true, true) => Ok(()),
            rests => Err(format!("L at rest, but (stable, live, decided, idle) are {rests:?}: {state:?}")),
        }
    }
}

/// What comes first when no fault happens; `None`: a fault, or what nobody has to do.
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
        Action::Fold(..) | Action::Checkpoint(_) | Action::Crash(..) | Action::Expel(_) => None,
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
