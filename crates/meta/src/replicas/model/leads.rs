//! A leader.

use std::sync::Arc;

use types::messages::replica::RecordPosition;

use super::super::agreement::{Counted, TermCore};
use super::mutants::Mutant;
use super::scope::Scope;
use super::state::*;

/// The contents of the record with which a term begins, if no other one is left, and of one that changes the members.
const BEGINNING: u8 = 100;
pub(super) const CHANGE: u8 = 200;

impl Scope {
    /// `Service::leading`: the last record gets the new term.
    pub(super) fn lead(&self, state: &mut State, at: usize) {
        let server = state.server(at);
        let Role::Follows(follower, Some(asks)) = &server.role else { return };
        let core = TermCore::new(follower, &asks.election.voters, asks.asked_us);
        let number = core.base.number + 1;
        let last = server.now.record(core.base.number).map_or(0, |record| record.members);
        let record = match server.now.record(number) {
            Some(tail) if self.is(Mutant::NoNewTerm) || self.is(Mutant::OldTermCounted) => tail,
            Some(tail) => Rec { term: core.term, ..tail },
            None => Rec { term: core.term, value: BEGINNING + core.term as u8, members: last },
        };
        let leads = Leads { core, sent: None, queued: false, changes_with: 0, successor: 0 };
        server.role = Role::Leads(leads);
        server.staged.clear();
        self.begin_record(state, at, number, record);
    }

    /// `Shared::write_record`.
    pub(super) fn propose(&self, state: &mut State, at: usize) {
        let term = state.leads(at).core.term;
        let leads = state.servers[at].leader().expect("it leads");
        let number = leads.core.begun + 1;
        let before = state.servers[at].now.record(number - 1).map_or(0, |record| record.members);
        let record = match leads.queued {
            true => Rec { term, value: CHANGE, members: mask(&leads.core.members) },
            false => {
                state.spent.values += 1;
                Rec { term, value: state.spent.values, members: before }
            }
        };
        state.leads(at).queued = false;
        self.begin_record(state, at, number, record);
    }

    fn begin_record(&self, state: &mut State, at: usize, number: u64, record: Rec) {
        let previous = state.servers[at].now.position(number - 1);
        let leads = state.leads(at);
        leads.core.propose(number);
        leads.sent = Some(record);
        let (from, term, chosen) = (leads.core.id, leads.core.term, leads.core.chosen);
        state.send(Message::Append { from, term, first: number, records: vec![record], previous, chosen });
        self.begin_write(state, at, Write::Own(number, record));
    }

    /// `Leading::has_own`.
    pub(super) fn has_own(&self, state: &mut State, at: usize, number: u64) {
        if state.servers[at].leader().is_some() {
            let leads = state.leads(at);
            leads.core.own = number;
            leads.sent = None;
        }
    }

    /// `Leading::count`.
    pub(super) fn count(&self, state: &mut State, at: usize) {
        let log_members = {
            let server = &state.servers[at];
            let chosen = server.leader().map_or(0, |leads| leads.core.chosen);
            server.now.record(chosen).map_or(0, |record| record.members)
        };
        let core = &mut state.leads(at).core;
        let members = Arc::clone(&core.members);
        match self.mutant {
            Some(Mutant::OldMajority) => core.members = self.members[log_members as usize].clone(),
            Some(Mutant::CountsItself) => core.members = self.with_itself(core),
            _ => {}
        }
        let counted = core.count();
        core.members = members;
        if let Counted::Chosen(number) = counted {
            self.mark_chosen(state, at, number);
        }
        let leads = state.leads(at);
        if leads.core.is_changing && !leads.queued && leads.core.chosen >= leads.changes_with {
            leads.core.end_change();
        }
        if leads.core.is_removed && !self.is(Mutant::RemovedLeads) {
            let (from, term) = (leads.core.id, leads.core.term);
            state.server(at).role = Role::Gone;
            state.server(at).writing = None;
            state.send(Message::TermEnded { from, term, successor: 0 });
        }
    }

    /// The members, with the leader in place of the one that has least.
    fn with_itself(&self, core: &TermCore) -> super::super::agreement::Members {
        let ids = mask(&core.members);
        if ids & mask_of(core.id) != 0 {
            return core.members.clone();
        }
        let least = core.members.iter().map(|member| member.id).min_by_key(|id| core.last_of(*id));
        let least = least.map_or(0, mask_of);
        self.members[(ids & !least | mask_of(core.id)) as usize].clone()
    }

    /// A leader says that all up to a record is chosen, so it must be: the members have it, and it is what was chosen before.
    fn mark_chosen(&self, state: &mut State, at: usize, number: u64) {
        let server = &state.servers[at];
        let Some(leads) = server.leader() else { return };
        let own = |number| match &leads.sent {
            Some(sent) if number == leads.core.begun => Some(*sent),
            _ => server.now.record(number),
        };
        let mut wrong = None;
        let has = |id: u64, number: u64, record: Rec| {
            let other = &state.servers[place_of(id)];
            let found = other.safe.record(number);
            // One that has lost its store since has another id.
            other.id() != id || found.is_some_and(|found| found.contents() == record.contents())
        };
        let mut chosen = state.oracle.chosen.clone();
        for number in 1..=number {
            let Some(record) = own(number) else {
                wrong = Some(format!("server {at} counts record {number}, which it does not have"));
                break;
            };
            match chosen.get(number as usize - 1) {
                Some(before) if *before != record.contents() => {
                    wrong = Some(format!("record {number}: {record:?} is chosen, and {before:?} was"));
                }
                Some(_) => {}
                None => {
                    let members = &leads.core.members;
                    let count = members.iter().filter(|member| has(member.id, number, record)).count();
                    if count < members.len() / 2 + 1 && !self.is(Mutant::SameId) {
                        wrong = Some(format!("record {number} counts as chosen, and {count} have it"));
                    }
                    chosen.push(record.contents());
                }
            }
        }
        if chosen != state.oracle.chosen {
            Arc::make_mut(&mut state.oracle).chosen = chosen;
        }
        if let Some(wrong) = wrong {
            state.fail(wrong);
        }
    }

    /// What a leader sends next to a server, as far as it knows that one. In the model it knows.
    pub(super) fn next_for(&self, server: &Server, term: u64) -> u64 {
        let Some(core) = server.follower() else { return u64::MAX };
        let arriving = core.arriving.as_ref().filter(|arriving| arriving.term == term);
        arriving.map_or(core.chosen(), |arriving| arriving.last) + 1
    }

    /// `feed::beats`.
    pub(super) fn sign(&self, state: &mut State, at: usize, to: usize) {
        let core = &state.leads(at).core;
        let sign = Message::Append {
            from: core.id,
            term: core.term,
            first: 0,
            records: Vec::new(),
            previous: RecordPosition::default(),
            chosen: core.chosen,
        };
        self.get_sign(state, to, &sign);
    }

    /// `feed::send`.
    pub(super) fn catch_up(&self, state: &mut State, at: usize, to: usize, count: usize) {
        if state.servers[to].writing.is_some() {
            return;
        }
        let (from, term, chosen) = {
            let core = &state.leads(at).core;
            (core.id, core.term, core.chosen)
        };
        let first = self.next_for(&state.servers[to], term);
        let own = &state.servers[at].now;
        let records = (first..).take(count).map_while(|number| own.record(number)).collect();
        let previous = own.position(first - 1);
        let message = Message::Append { from, term, first, records, previous, chosen };
        self.heed(state, to, &message);
    }

    /// The term is over, and the server opens its store again.
    pub(super) fn depose(&self, state: &mut State, at: usize) {
        self.restart(state, at, true);
    }

    /// Whether a server to which this one hands over has everything.
    pub(super) fn is_level(&self, leads: &Leads) -> bool {
        let since = if self.leases { NOW } else { 0 };
        if self.is(Mutant::BeginWhileEnding) {
            let core = TermCore { begun: leads.core.chosen, ..leads.core.clone() };
            return core.is_level(leads.successor, since);
        }
        leads.core.is_level(leads.successor, since)
    }

    /// `Leading::end_with`.
    pub(super) fn end_term(&self, state: &mut State, at: usize) {
        let leads = state.leads(at);
        let (from, term, successor, begun) =
            (leads.core.id, leads.core.term, leads.successor, leads.core.begun);
        let next = &state.servers[place_of(successor)];
        if next.id() == successor && (next.now.log.len() as u64) < begun {
            state.fail(format!("{successor} is to lead, and lacks record {begun}"));
        }
        state.send(Message::TermEnded { from, term, successor });
        if !self.is(Mutant::EndsBeforeDeposed) {
            self.depose(state, at);
        }
    }
}
