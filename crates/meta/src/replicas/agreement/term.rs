//! A term of a leader: who has which records, and how long it may answer.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::replica::*;

use super::{Members, ReplicaCore, is_in, majority};
use crate::replicas::{ELECTION_US, LEASE_US};

/// What the leader knows of another server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Progress {
    /// Where its records end, as far as they are those of the leader.
    pub(crate) last: u64,
    /// When the newest call was begun that it has answered in this term; `None` if it has not answered.
    pub(crate) heard_us: Option<u64>,
}

/// A server that leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TermCore {
    pub(crate) id: u64,
    pub(crate) term: u64,
    /// Those of the last record, chosen or not.
    pub(crate) members: Members,
    /// The last record that was chosen when the term began: a server that has it needs no older one.
    pub(crate) base: RecordPosition,
    pub(crate) progress: BTreeMap<u64, Progress>,
    /// The last record that was sent.
    pub(crate) begun: u64,
    /// Up to which record this server's own journal is durable, and up to which all is chosen.
    pub(crate) own: u64,
    pub(crate) chosen: u64,
    /// Members do not change twice at the same time.
    pub(crate) is_changing: bool,
    /// The record without this server among the members, once there is one.
    pub(crate) leaves_with: Option<u64>,
    /// That record is chosen.
    pub(crate) is_removed: bool,
    pub(crate) is_over: bool,
    /// No record is begun any more: another server is to lead.
    pub(crate) is_ending: bool,
}

/// What a count has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// Nothing new is chosen.
    Nothing,
    /// All up to this record is chosen.
    Chosen(u64),
}

impl TermCore {
    /// A server was elected, and had asked for votes at `asked_us`.
    pub(crate) fn new(core: &ReplicaCore, voters: &BTreeSet<u64>, asked_us: u64) -> TermCore {
        let heard = |id: &u64| (*id, Progress { last: 0, heard_us: Some(asked_us) });
        let (base, members) = (core.records.chosen, core.records.members().clone());
        TermCore {
            id: core.id(),
            term: core.term(),
            // The last record may remove this server, which leads until that record is chosen.
            leaves_with: (!is_in(&members, core.id())).then_some(base.number + 1),
            members,
            progress: voters.iter().map(heard).collect(),
            begun: base.number,
            own: base.number,
            chosen: base.number,
            base,
            is_changing: false,
            is_removed: false,
            is_over: false,
            is_ending: false,
        }
    }

    /// The order of what a majority has reached, or more: of each member one number.
    fn majority_of(&self, number: impl Fn(u64) -> u64) -> u64 {
        let mut numbers: Vec<u64> = self.members.iter().map(|member| number(member.id)).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.get(majority(&self.members) - 1).copied().unwrap_or(0)
    }

    /// When a server was heard.
    pub(crate) fn heard_us(&self, id: u64) -> Option<u64> {
        self.progress.get(&id).and_then(|progress| progress.heard_us)
    }

    /// Where the records of a server end, as far as it has told.
    pub(crate) fn last_of(&self, id: u64) -> u64 {
        self.progress.get(&id).map_or(0, |progress| progress.last)
    }

    /// Until when this server may answer.
    pub(crate) fn lease_until(&self, now: u64) -> u64 {
        let heard = |id| if id == self.id { now } else { self.heard_us(id).unwrap_or(0) };
        self.majority_of(heard) + LEASE_US
    }

    /// Whether this server may answer now.
    pub(crate) fn may_answer(&self, now: u64) -> bool {
        !self.is_over && now < self.lease_until(now)
    }

    /// Whether a server has answered as one that runs would.
    pub(crate) fn was_heard_lately(&self, id: u64, now: u64) -> bool {
        self.heard_us(id).is_some_and(|heard| now < heard + ELECTION_US)
    }

    /// Ends the term. Returns whether it was not over before.
    pub(crate) fn depose(&mut self) -> bool {
        !std::mem::replace(&mut self.is_over, true)
    }

    /// Whether a record may be begun.
    pub(crate) fn may_begin(&self) -> bool {
        !self.is_over && !self.is_ending
    }

    /// A record is about to be sent.
    pub(crate) fn propose(&mut self, number: u64) -> RecordPosition {
        self.begun = number;
        RecordPosition { number, term: self.term }
    }

    /// A server has answered to records. Returns up to which of them it has them, as far as that counts.
    pub(crate) fn acknowledged(&self, append: &Append, answer: &Appended) -> Option<u64> {
        // A record that is not chosen counts only in the term of its leader.
        let counts = |record: &RecordPosition| record.term == self.term || record.number <= append.chosen;
        let last = append.records.last().map(|sent| sent.position);
        last.filter(|record| has(answer, record) && counts(record)).map(|record| record.number)
    }

    /// A call to a server, begun at `begun_us`, was answered; `last`: what it has [acknowledged](TermCore::acknowledged). Returns
    /// whether the term continues: then [`TermCore::count`] is due.
    pub(crate) fn answered(&mut self, id: u64, begun_us: u64, last: Option<u64>, answer: &Appended) -> bool {
        if answer.term > self.term {
            return false;
        }
        let known = self.progress.entry(id).or_default();
        known.heard_us = known.heard_us.max(Some(begun_us));
        // What it knows to be chosen is what this server has, even if this one does not know it yet.
        known.last = known.last.max(last.unwrap_or(0)).max(answer.chosen);
        true
    }

    /// Counts who has what. A leader without whom the members are chosen ends: before anybody hears that the record is chosen, because
    /// one that is the only member then may answer at once.
    pub(crate) fn count(&mut self) -> Counted {
        let chosen = self.majority_of(|id| if id == self.id { self.own } else { self.last_of(id) });
        let is_news = chosen > self.chosen;
        self.chosen = self.chosen.max(chosen);
        self.is_removed |= self.leaves_with.is_some_and(|record| self.chosen >= record);
        if is_news { Counted::Chosen(chosen) } else { Counted::Nothing }
    }

    /// Another server wants to lead. Returns the answer, and whether this term ends: that one has asked a majority before, which has
    /// not heard this server.
    pub(crate) fn vote(&self, vote: &Vote) -> (Voted, bool) {
        // A change that is not chosen may come to nothing.
        let is_member =
            self.is_changing || self.leaves_with.is_some() || is_in(&self.members, vote.candidate);
        let voted = Voted { term: self.term, is_granted: false, is_member };
        (voted, !vote.is_poll && vote.term > self.term)
    }

    /// The answer to a server that leads; `None` if it does in a newer term.
    pub(crate) fn append(&self, append: &Append) -> Option<Appended> {
        let last = RecordPosition { number: self.own, term: self.term };
        let answer = Appended { term: self.term, chosen: self.chosen, last, is_incomplete: false };
        (append.term <= self.term).then_some(answer)
    }

    /// Whether a server has every record, and has answered a call that was begun since then.
    pub(crate) fn is_level(&self, id: u64, since: u64) -> bool {
        let last = self.begun.max(self.chosen);
        self.heard_us(id) >= Some(since) && self.chosen >= last && self.last_of(id) >= last
    }
}

/// Whether a server has a record: as its last one, or among its chosen ones. A different record may have the same number.
pub(crate) fn has(answer: &Appended, record: &RecordPosition) -> bool {
    answer.last == *record || answer.chosen >= record.number
}
