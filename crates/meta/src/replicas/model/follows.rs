//! A follower gets messages; a candidate.

use std::sync::Arc;

use types::checksum::crc;
use types::messages::replica::{Append, Appended, RecordPosition, SentRecord, TermEnded, Vote, Voted};

use super::super::agreement::{Heeds, Promises, ReplicaCore, Taking, Voting, has};
use super::mutants::Mutant;
use super::scope::Scope;
use super::state::*;

impl Scope {
    /// The moment by which a candidate asks whether it hears a leader.
    pub(super) fn time_for(&self, core: &ReplicaCore) -> u64 {
        let is_alone = mask(core.records.members()) == mask_of(core.id());
        if self.is(Mutant::OnlyMemberByTail) && is_alone { 2 * NOW } else { NOW }
    }

    /// `Follower::stand`, up to the promise. A leader first leads no more.
    pub(super) fn stand(&self, state: &mut State, at: usize) {
        self.follow(state, at);
        let core = state.core(at);
        let (term, id) = (core.next_term(), core.id());
        let promises = core.promise(term, id);
        self.begin_write(state, at, Write::Promise(promises, Then::Ask));
    }

    /// A leader leads no more.
    fn follow(&self, state: &mut State, at: usize) {
        if state.servers[at].leader().is_some() {
            self.depose(state, at);
        }
    }

    /// `Follower::promise`, and what comes after it.
    pub(super) fn promised(&self, state: &mut State, at: usize, promises: Promises, then: Then) {
        let Role::Follows(core, asks) = &mut state.server(at).role else { return };
        core.promised(promises);
        let last = core.last();
        match then {
            Then::Voted(to) => {
                core.voted(self.heard());
                *asks = None;
                if !self.is(Mutant::VoteNotDurable) {
                    self.give_vote(state, promises, to);
                }
            }
            Then::Ask => {
                let election = core.election();
                *asks = Some(Asks { term: promises.term, election, asked_us: NOW });
                self.note_vote(state, promises, promises.id);
                state.send(Message::Vote { from: promises.id, term: promises.term, last });
            }
            Then::Heed(message) => {
                *asks = None;
                self.heed(state, at, &message);
            }
        }
    }

    /// The vote reaches the candidate, who may take its time to lead.
    pub(super) fn give_vote(&self, state: &mut State, promises: Promises, to: u64) {
        self.note_vote(state, promises, to);
        let voted = Voted { term: promises.term, is_granted: true, is_member: true };
        if let Role::Follows(core, Some(asks)) = &mut state.server(place_of(to)).role
            && core.id() == to
            && asks.term == promises.term
        {
            asks.election.answered(promises.id, &voted);
        }
    }

    fn note_vote(&self, state: &mut State, promises: Promises, to: u64) {
        if !self.slow_promises {
            return;
        }
        let oracle = Arc::make_mut(&mut state.oracle);
        let before = oracle.votes.insert((promises.id, promises.term), to);
        if before.is_some_and(|before| before != to) {
            state.fail(format!("id {} has two votes in term {}", promises.id, promises.term));
        }
    }

    /// Whether a message to all could change something at a server.
    pub(super) fn is_of_use(&self, state: &State, message: &Message, at: usize) -> bool {
        let server = &state.servers[at];
        let (id, term_here) = (server.id(), server.now.promises.term);
        let is_gone = matches!(server.role, Role::Gone);
        // A leader ends its term for a newer one.
        let least = term_here + u64::from(server.leader().is_some());
        match message {
            _ if is_gone => false,
            Message::Vote { from, term, .. } => {
                let is_asked = match &state.servers[place_of(*from)].role {
                    Role::Follows(_, Some(asks)) => mask(&asks.election.members) & mask_of(id) != 0,
                    _ => false,
                };
                let has_voted = server.now.promises.vote == *from && term_here == *term;
                server.writing.is_none() && is_asked && least <= *term && !has_voted
            }
            Message::Append { term, .. } => server.writing.is_none() && least <= *term,
            Message::TermEnded { term, .. } => {
                least <= *term && server.told < *term && server.follower().is_some()
            }
            Message::Appended { .. } => true,
        }
    }

    pub(super) fn deliver(&self, state: &mut State, message: &Arc<Message>, at: usize) {
        if !matches!(**message, Message::Appended { .. }) {
            self.follow(state, at);
        }
        match &**message {
            Message::Vote { from, term, last } => self.vote(state, at, *from, *term, *last),
            Message::Append { .. } => self.heed(state, at, message),
            Message::Appended { from, chosen, has, is_incomplete, is_late, .. } => {
                state.net.remove(message);
                let is_late = *is_late && !self.is(Mutant::LeaseFromAnswer);
                let begun_us = if is_late { 0 } else { NOW };
                let last = RecordPosition::default();
                let answer = Appended { term: 0, chosen: *chosen, last, is_incomplete: *is_incomplete };
                state.leads(at).core.answered(*from, begun_us, *has, &answer);
            }
            Message::TermEnded { term, successor, .. } => {
                let core = state.core(at);
                let ended = TermEnded { to: core.id(), term: *term, successor: *successor };
                if core.term_ended(&ended) {
                    core.is_called = false;
                    state.server(at).told = *term;
                }
            }
        }
    }

    /// `Follower::vote`.
    fn vote(&self, state: &mut State, at: usize, candidate: u64, term: u64, last: RecordPosition) {
        let core = state.core(at);
        let mut ask = Vote { to: core.id(), term, candidate, last, is_poll: false };
        let own = core.last();
        let is_later = |last: RecordPosition| (last.term, last.number) >= (own.term, own.number);
        let most = RecordPosition { number: u64::MAX, term: u64::MAX };
        match self.mutant {
            Some(Mutant::LastIgnored) => ask.last = most,
            Some(Mutant::TermFirst) if is_later(last) => ask.last = most,
            Some(Mutant::TermFirst) => ask.last = RecordPosition::default(),
            _ => {}
        }
        let now = if self.is(Mutant::VotesWhileHearing) { 2 * NOW } else { NOW };
        if core.vote(&ask, now) == Voting::Promise {
            let promises = core.promise(term, candidate);
            self.begin_write(state, at, Write::Promise(promises, Then::Voted(candidate)));
        }
    }

    /// `Follower::append`: what needs the files.
    pub(super) fn heed(&self, state: &mut State, at: usize, message: &Message) {
        let Message::Append { from, term, .. } = *message else { return };
        let core = state.core(at);
        match core.heeds(term) {
            Heeds::No => {}
            Heeds::Promise => {
                let promises = core.promise(term, 0);
                self.begin_write(state, at, Write::Promise(promises, Then::Heed(message.clone())));
            }
            Heeds::Yes => {
                let has = state.leader_of(from, term).map_or(0, |leader| {
                    let id = state.servers[at].id();
                    state.servers[leader].leader().map_or(0, |leads| leads.core.last_of(id))
                });
                self.hear(state, at, term);
                self.take(state, at, message, has);
            }
        }
    }

    pub(super) fn hear(&self, state: &mut State, at: usize, term: u64) {
        let heard = self.heard();
        let core = state.core(at);
        if !core.hear(term, heard) && self.is(Mutant::LateSign) {
            core.heard_us = heard;
        }
    }

    fn take(&self, state: &mut State, at: usize, message: &Message, has: u64) {
        let Message::Append { first, records, .. } = message else { return };
        let core = state.core(at);
        let mut append = append_of(message, core.id(), has);
        if core.has_less(&append) {
            if !self.is(Mutant::SameId) && !self.is(Mutant::OlderStore) {
                state.fail(format!("server {at} has less than it has said"));
            }
            state.server(at).role = Role::Gone;
            return;
        }
        match self.mutant {
            Some(Mutant::PreviousIgnored) => append.previous = core.last(),
            Some(Mutant::NumberOnly) if core.records.has_tail() && core.last().number == *first => {
                // It takes the record of that number which it has for this one.
                self.answer(state, at, message);
                return;
            }
            _ => {}
        }
        match core.take(&append) {
            Taking::Nothing => self.answer(state, at, message),
            Taking::Keep => {
                for (number, record) in (*first..).zip(records) {
                    state.core(at).keeps(number, true);
                    state.server(at).staged.push(*record);
                }
                self.answer(state, at, message);
            }
            Taking::Take(taken) => {
                if taken.tail_is_chosen || (taken.from.is_none() && taken.is_chosen) {
                    core.records.tail_is_chosen();
                }
                let Some(from) = taken.from else { return self.answer(state, at, message) };
                let left = records[from..].to_vec();
                if let [one] = left.as_slice() {
                    core.records.replace_tail(one.term, Some(self.members[one.members as usize].clone()));
                }
                let write = Write::Records(first + from as u64, left, taken.is_chosen, message.clone());
                self.begin_write(state, at, write);
            }
        }
    }

    /// `Follower::take`, once the records are durable.
    pub(super) fn taken(
        &self,
        state: &mut State,
        at: usize,
        _first: u64,
        records: &[Rec],
        is_chosen: bool,
        message: &Message,
    ) {
        let core = state.core(at);
        for record in records {
            core.records.replace_tail(record.term, Some(self.members[record.members as usize].clone()));
            if is_chosen {
                core.records.tail_is_chosen();
            }
        }
        self.answer(state, at, message);
    }

    /// The answer to a leader, as far as that one will count it.
    pub(super) fn answer(&self, state: &mut State, at: usize, message: &Message) {
        let Message::Append { from, term, .. } = *message else { return };
        let Some(core) = state.servers[at].follower() else { return };
        let Some(leader) = state.leader_of(from, term).filter(|_| core.term() == term) else { return };
        let (id, answer) = (core.id(), core.appended());
        let append = append_of(message, id, 0);
        let has = match (state.servers[leader].leader(), append.records.last()) {
            (Some(_), Some(last)) if self.is(Mutant::NumberOnly) => {
                (answer.last.number >= last.position.number).then_some(last.position.number)
            }
            (Some(_), Some(last)) if self.is(Mutant::OldTermCounted) => {
                has(&answer, &last.position).then_some(last.position.number)
            }
            (Some(leads), _) => leads.core.acknowledged(&append, &answer),
            (None, _) => None,
        };
        let Appended { chosen, is_incomplete, .. } = answer;
        let said = has.unwrap_or(0).max(chosen);
        let counts = self.slow_records || self.keeps_other || self.transfers + self.losses > 0;
        if counts && state.oracle.said.get(&id).is_none_or(|before| *before < said) {
            Arc::make_mut(&mut state.oracle).said.insert(id, said);
        }
        if self.late_answers && append.records.is_empty() {
            state.send(Message::Appended {
                from: id,
                to: from,
                term,
                chosen,
                has,
                is_incomplete,
                is_late: false,
            });
        } else {
            state.leads(leader).core.answered(id, NOW, has, &answer);
        }
    }

    /// `Follower::append`: a sign of life. Nothing happens if it has to wait for what is being written.
    pub(super) fn get_sign(&self, state: &mut State, at: usize, sign: &Message) {
        let Message::Append { term, .. } = *sign else { return };
        let is_idle = state.servers[at].writing.is_none();
        let core = state.core(at);
        let append = append_of(sign, core.id(), 0);
        let is_plain = match self.is(Mutant::PromisingIgnored) {
            true => ReplicaCore { promising: 0, ..core.clone() }.is_plain_sign(&append),
            false => core.is_plain_sign(&append),
        };
        if is_plain {
            if is_idle && core.shows_chosen(&append) {
                core.records.tail_is_chosen();
            }
            self.hear(state, at, term);
            self.answer(state, at, sign);
        } else if is_idle {
            self.heed(state, at, sign);
        }
    }

    /// A follower has heard nobody for so long that all leases that rest on it have run out.
    pub(super) fn become_free(&self, state: &mut State, at: usize) {
        let core = state.core(at);
        core.heard_us = 0;
        let promises = core.promises;
        for other in 0..state.servers.len() {
            match &mut state.server(other).role {
                Role::Leads(leads) => {
                    if let Some(progress) = leads.core.progress.get_mut(&promises.id) {
                        progress.heard_us = progress.heard_us.map(|_| 0);
                    }
                }
                Role::Follows(core, Some(asks))
                    if (promises.term, promises.vote) == (asks.term, core.id()) && other != at =>
                {
                    asks.asked_us = 0;
                }
                _ => {}
            }
        }
        let is_from =
            |message: &Message| matches!(message, Message::Appended { from, .. } if *from == promises.id);
        let answers: Vec<_> = state.net.iter().filter(|message| is_from(message)).cloned().collect();
        for answer in answers {
            state.net.remove(&answer);
            let mut late = (*answer).clone();
            if let Message::Appended { is_late, .. } = &mut late {
                *is_late = true;
            }
            state.send(late);
        }
    }
}

/// A message as the product has it.
pub(super) fn append_of(message: &Message, to: u64, has: u64) -> Append {
    let Message::Append { from, term, first, records, previous, chosen } = message else {
        unreachable!("it is one with records")
    };
    let sent = |(number, record): (u64, &Rec)| SentRecord {
        position: RecordPosition { number, term: record.term },
        len: 0,
    };
    Append {
        to,
        term: *term,
        leader: member(*from),
        previous: *previous,
        records: (*first..).zip(records).map(sent).collect(),
        chosen: *chosen,
        has,
        sum: crc(&[]),
    }
}
