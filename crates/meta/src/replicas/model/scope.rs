//! The bounds of a search, and the steps that may happen next.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use stateright::{Model, Property};

use super::super::agreement::{Counted, Members, Promises, ReplicaCore, TermCore};
use super::mutants::Mutant;
use super::state::*;

/// The bounds of a search.
#[derive(Clone)]
pub(super) struct Scope {
    /// The servers, and which of them are members at first.
    pub(super) servers: usize,
    pub(super) first: Ids,
    /// Who may stand for election.
    pub(super) stands: Ids,
    /// Terms, records that clients write, restarts of a process, power cuts, stores that are lost, changes of the members, whole
    /// stores that are sent, and terms that are handed over.
    pub(super) terms: u64,
    pub(super) values: u8,
    pub(super) restarts: u8,
    pub(super) cuts: u8,
    pub(super) losses: u8,
    pub(super) changes: u8,
    pub(super) transfers: u8,
    pub(super) hand_overs: u8,
    /// Whether promises, and records, reach the disk in steps of their own.
    pub(super) slow_promises: bool,
    pub(super) slow_records: bool,
    /// Whether leases are of interest: a follower hears a leader until it becomes free. Otherwise all are free at any time.
    pub(super) leases: bool,
    /// Whether a record that was replaced may be found at a start.
    pub(super) keeps_other: bool,
    /// Whether chosen records are sent many at a time, too.
    pub(super) batches: bool,
    /// Whether answers to signs of life take their time.
    pub(super) late_answers: bool,
    /// Whether every state must lead to a leader.
    pub(super) with_liveness: bool,
    pub(super) mutant: Option<Mutant>,
    pub(super) members: Arc<[Members]>,
}

impl Scope {
    /// Three servers, none of the faults.
    pub(super) fn new(terms: u64, values: u8) -> Scope {
        Scope {
            servers: 3,
            first: 0b111,
            stands: u8::MAX,
            terms,
            values,
            restarts: 0,
            cuts: 0,
            losses: 0,
            changes: 0,
            transfers: 0,
            hand_overs: 0,
            slow_promises: false,
            slow_records: false,
            leases: false,
            keeps_other: false,
            batches: false,
            late_answers: false,
            with_liveness: false,
            mutant: None,
            members: all_members(),
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn begin(&self) -> State {
        let server = |at: usize| {
            let id = id_at(at, 0);
            let is_member = self.first & mask_of(id) != 0;
            let log = vec![Rec { term: 0, value: 0, members: self.first }; usize::from(is_member)];
            let promises = Promises { id, term: 0, vote: 0, was_member: is_member };
            let engine = log.len() as u64;
            let files = Files { promises, is_incomplete: !is_member, engine, log, other: None };
            let heard = if self.leases { NOW } else { 0 };
            let core = ReplicaCore::restart(promises, files.records(&self.members), !is_member, heard);
            let role = Role::Follows(core, None);
            Arc::new(Server {
                safe: files.clone(),
                now: files,
                writing: None,
                role,
                staged: Vec::new(),
                told: 0,
            })
        };
        let oracle = Oracle { chosen: vec![(0, self.first)], ..Oracle::default() };
        State {
            servers: (0..self.servers).map(server).collect(),
            net: BTreeSet::new(),
            oracle: Arc::new(oracle),
            spent: Spent::default(),
            wrong: None,
        }
    }
}

/// One step.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// A follower promises itself its vote.
    Stand(usize),
    /// A message reaches a server.
    Deliver(Arc<Message>, usize),
    /// A candidate leads.
    Lead(usize),
    Propose(usize),
    /// A leader shows a sign of life.
    Sign(usize, usize),
    /// A leader sends this number of chosen records that a server lacks.
    CatchUp(usize, usize, usize),
    /// A leader counts who has what.
    Count(usize),
    /// What is being written reaches the page cache, or is synced.
    Write(usize),
    Sync(usize),
    Restart(usize),
    PowerCut(usize),
    /// A follower has heard no leader for so long that no lease rests on it.
    BecomeFree(usize),
    /// A leader begins to hand over, and ends its term.
    HandOver(usize, u64),
    EndTerm(usize),
    /// A leader makes these the members.
    Change(usize, Ids),
    /// A server that was removed ends.
    Leave(usize),
    /// A leader's engine gets what is chosen.
    Flush(usize),
    /// A leader sends a part of its store.
    Part(usize, usize, u64),
    /// A server loses its store.
    Lose(usize),
}

impl Scope {
    fn actions_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let (server, spent) = (&state.servers[at], &state.spent);
        if matches!(server.role, Role::Gone) {
            return;
        }
        match server.writing {
            Some((_, false)) => actions.push(Action::Write(at)),
            Some((_, true)) => actions.push(Action::Sync(at)),
            None => {}
        }
        if spent.restarts < self.restarts {
            actions.push(Action::Restart(at));
        }
        if spent.cuts < self.cuts {
            actions.push(Action::PowerCut(at));
        }
        if spent.losses < self.losses && !server.now.is_incomplete {
            actions.push(Action::Lose(at));
        }
        match &server.role {
            Role::Follows(core, asks) => self.actions_of_follower(state, at, core, asks.as_ref(), actions),
            Role::Leads(leads) => self.actions_of_leader(state, at, leads, actions),
            Role::Gone => {}
        }
    }

    fn actions_of_follower(
        &self,
        state: &State,
        at: usize,
        core: &ReplicaCore,
        asks: Option<&Asks>,
        actions: &mut Vec<Action>,
    ) {
        let server = &state.servers[at];
        if self.leases && core.heard_us == NOW {
            actions.push(Action::BecomeFree(at));
        }
        if core.is_removed() {
            actions.push(Action::Leave(at));
        }
        if server.writing.is_some() {
            return;
        }
        let term = core.next_term();
        let may_stand = self.stands & mask_of(server.id()) != 0 && term <= self.terms;
        if may_stand && core.may_ask(term, self.time_for(core)) {
            actions.push(Action::Stand(at));
        }
        if asks.is_some_and(|asks| core.may_lead(asks.term, &asks.election)) {
            actions.push(Action::Lead(at));
        }
    }

    fn actions_of_leader(&self, state: &State, at: usize, leads: &Leads, actions: &mut Vec<Action>) {
        let (server, core, spent) = (&state.servers[at], &leads.core, &state.spent);
        if TermCore::count(&mut core.clone()) != Counted::Nothing
            || self.is(Mutant::OldMajority)
            || self.is(Mutant::CountsItself)
        {
            actions.push(Action::Count(at));
        }
        let is_idle = core.begun == core.chosen && core.own == core.begun && server.writing.is_none();
        let has_news = leads.queued || spent.values < self.values;
        if is_idle && has_news && (core.may_begin() || self.is(Mutant::BeginWhileEnding)) {
            actions.push(Action::Propose(at));
        }
        if core.term < self.terms && self.stands & mask_of(core.id) != 0 {
            // It leads no more, and stands again.
            actions.push(Action::Stand(at));
        }
        for to in (0..state.servers.len()).filter(|to| *to != at) {
            self.actions_towards(state, at, to, leads, actions);
        }
        if spent.hand_overs < self.hand_overs && !core.is_ending {
            let others = core.members.iter().map(|member| member.id).filter(|id| *id != core.id);
            actions.extend(others.map(|id| Action::HandOver(at, id)));
        }
        if core.is_ending && self.is_level(leads) {
            actions.push(Action::EndTerm(at));
        }
        if self.transfers > 0 && server.now.engine < core.chosen.min(core.own) {
            actions.push(Action::Flush(at));
        }
        self.changes(state, at, leads, actions);
    }
}

impl Scope {
    fn actions_towards(&self, state: &State, at: usize, to: usize, leads: &Leads, actions: &mut Vec<Action>) {
        let (server, core) = (&state.servers[to], &leads.core);
        let Some(follower) = server.follower().filter(|follower| follower.term() <= core.term) else {
            return;
        };
        let hears_late = self.leases
            && (follower.heard_us < NOW && follower.ended < core.term
                || core.heard_us(follower.id()) < Some(NOW));
        let learns = follower.records.has_tail() && follower.last().term == core.term;
        if hears_late || learns && follower.last().number <= core.chosen || follower.term() < core.term {
            actions.push(Action::Sign(at, to));
        }
        let lacks = core.chosen.saturating_sub(self.next_for(server, core.term) - 1) as usize;
        if lacks > 0 && server.writing.is_none() && (!follower.is_incomplete || follower.arriving.is_some()) {
            actions.push(Action::CatchUp(at, to, 1));
            if self.batches && lacks > 1 {
                actions.push(Action::CatchUp(at, to, lacks));
            }
        }
        self.parts(state, at, to, actions);
    }
}

impl Model for Scope {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        (0..state.servers.len()).for_each(|at| self.actions_of(state, at, actions));
        for message in &state.net {
            let to = |to| Action::Deliver(Arc::clone(message), to);
            match &**message {
                Message::Appended { to: id, .. } => {
                    actions.push(to(place_of(*id)));
                }
                Message::Vote { from, .. }
                | Message::Append { from, .. }
                | Message::TermEnded { from, .. } => {
                    let others = (0..state.servers.len()).filter(|at| *at != place_of(*from));
                    actions.extend(others.filter(|at| self.is_of_use(state, message, *at)).map(to));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.act(&mut state, &action);
        self.prune(&mut state);
        if state == *last {
            return None;
        }
        self.check(&mut state);
        if self.with_liveness && state.wrong.is_none() {
            state.wrong = self.recovers(&state).err();
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Scope>> {
        vec![Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none())]
    }
}

impl Scope {
    fn act(&self, state: &mut State, action: &Action) {
        match action {
            Action::Stand(at) => self.stand(state, *at),
            Action::Deliver(message, at) => self.deliver(state, message, *at),
            Action::Lead(at) => self.lead(state, *at),
            Action::Propose(at) => self.propose(state, *at),
            Action::Sign(at, to) => self.sign(state, *at, *to),
            Action::CatchUp(at, to, count) => self.catch_up(state, *at, *to, *count),
            Action::Count(at) => self.count(state, *at),
            Action::Write(at) => self.reach_cache(state, *at),
            Action::Sync(at) => self.reach_disk(state, *at),
            Action::Restart(at) => {
                state.spent.restarts += 1;
                self.restart(state, *at, false);
            }
            Action::PowerCut(at) => {
                state.spent.cuts += 1;
                self.power_cut(state, *at);
            }
            Action::BecomeFree(at) => self.become_free(state, *at),
            Action::HandOver(at, successor) => {
                state.spent.hand_overs += 1;
                let leads = state.leads(*at);
                leads.core.is_ending = true;
                leads.successor = *successor;
            }
            Action::EndTerm(at) => self.end_term(state, *at),
            Action::Change(at, members) => self.change(state, *at, *members),
            Action::Leave(at) => state.server(*at).role = Role::Gone,
            Action::Flush(at) => {
                let chosen = state.leads(*at).core.chosen;
                let server = state.server(*at);
                (server.now.engine, server.safe.engine) = (chosen, chosen);
            }
            Action::Part(at, to, part) => self.part(state, *at, *to, *part),
            Action::Lose(at) => self.lose(state, *at),
        }
    }

    /// Forgets messages that make no difference any more.
    fn prune(&self, state: &mut State) {
        let terms = |server: &Server| match server.role {
            Role::Gone => u64::MAX,
            _ => server.safe.promises.term,
        };
        let oldest = state.servers.iter().map(|server| terms(server)).min().unwrap_or(0);
        let servers = &state.servers;
        let asks = |id: u64, term: u64| {
            matches!(&servers[place_of(id)].role, Role::Follows(core, Some(asks))
                if core.id() == id && asks.term == term && core.term() == term)
        };
        let leads = |id: u64, term: u64| {
            let leads = servers[place_of(id)].leader();
            leads.is_some_and(|leads| leads.core.id == id && leads.core.term == term && !leads.core.is_over)
        };
        state.net.retain(|message| match &**message {
            Message::Vote { from, term, .. } => asks(*from, *term),
            Message::Appended { to, term, .. } => leads(*to, *term),
            Message::Append { term, .. } => *term >= oldest,
            Message::TermEnded { term, .. } => *term >= oldest && self.leases,
        });
        let votes = &state.oracle.votes;
        let may_vote_again = |(id, term): &(u64, u64)| {
            let server = &servers[place_of(*id)];
            server.safe.promises.id == *id && server.safe.promises.term <= *term
        };
        if !votes.keys().all(may_vote_again) {
            Arc::make_mut(&mut state.oracle).votes.retain(|key, _| may_vote_again(key));
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Stand(at) => write!(f, "{at} stands"),
            Action::Deliver(message, at) => write!(f, "{at} gets {message:?}"),
            Action::Lead(at) => write!(f, "{at} leads"),
            Action::Propose(at) => write!(f, "{at} begins a record"),
            Action::Sign(at, to) => write!(f, "{at} shows {to} a sign of life"),
            Action::CatchUp(at, to, count) => write!(f, "{at} sends {to} {count} chosen records"),
            Action::Count(at) => write!(f, "{at} counts"),
            Action::Write(at) => write!(f, "what {at} writes is in the page cache"),
            Action::Sync(at) => write!(f, "{at} syncs"),
            Action::Restart(at) => write!(f, "{at} is started again"),
            Action::PowerCut(at) => write!(f, "{at} loses power"),
            Action::BecomeFree(at) => write!(f, "{at} has heard nobody for long enough"),
            Action::HandOver(at, id) => write!(f, "{at} is to hand over to id {id}"),
            Action::EndTerm(at) => write!(f, "{at} ends its term"),
            Action::Change(at, members) => write!(f, "{at} makes {members:b} the members"),
            Action::Leave(at) => write!(f, "{at} ends, as it was removed"),
            Action::Flush(at) => write!(f, "the engine of {at} gets what is chosen"),
            Action::Part(at, to, part) => write!(f, "{at} sends {to} part {part} of its store"),
            Action::Lose(at) => write!(f, "{at} loses its store"),
        }
    }
}
