//! A follower becomes a candidate.

use std::collections::BTreeSet;

use types::messages::replica::{MetaMember, Voted};

use super::{Members, ReplicaCore, majority};
use crate::replicas::ELECTION_US;

/// The votes for one candidate, or what it hears when it asks whether it would get them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Election {
    /// The members that the candidate asks.
    pub(crate) members: Members,
    /// Who has granted a vote.
    pub(crate) voters: BTreeSet<u64>,
    /// How many say that the candidate is no member.
    strangers: usize,
    /// The newest term in the answers of members that refuse.
    seen_term: u64,
}

impl Election {
    /// A member has answered.
    pub(crate) fn answered(&mut self, id: u64, voted: &Voted) {
        if voted.is_granted {
            self.voters.insert(id);
            return;
        }
        self.seen_term = self.seen_term.max(voted.term);
        self.strangers += usize::from(!voted.is_member);
    }

    pub(crate) fn is_won(&self) -> bool {
        self.voters.len() >= majority(&self.members)
    }
}

impl ReplicaCore {
    /// Whether it may become a candidate. One that a record removes may have to lead until that record is chosen.
    pub(crate) fn may_stand(&self) -> bool {
        !self.is_incomplete && (self.is_member() || self.is_surely_member())
    }

    /// Whether there is nobody else who could lead. A record that makes it so counts once it is chosen: until then the leader that
    /// has sent it may still answer.
    pub(crate) fn is_only_member(&self) -> bool {
        let is_me = |members: &[MetaMember]| matches!(members, [only] if only.id == self.id());
        is_me(self.records.members()) && is_me(&self.records.chosen_members)
    }

    /// The term in which it would lead.
    pub(crate) fn next_term(&self) -> u64 {
        self.term().max(self.seen_term) + 1
    }

    /// The votes before anybody has answered: its own, if it is a member.
    pub(crate) fn election(&self) -> Election {
        let members = self.records.members().clone();
        let voters = members.iter().map(|member| member.id).filter(|id| *id == self.id()).collect();
        Election { members, voters, strangers: 0, seen_term: 0 }
    }

    /// Whether it may promise itself its own vote in `term`. Much may have happened while the others were asked.
    pub(crate) fn may_ask(&self, term: u64, now: u64) -> bool {
        let hears_a_leader = self.hears_a_leader(now) && !self.is_only_member();
        self.term() < term && !hears_a_leader && self.may_stand()
    }

    /// Whether a majority makes it the leader of `term`. It may have heeded a later leader meanwhile.
    pub(crate) fn may_lead(&self, term: u64, election: &Election) -> bool {
        election.is_won() && self.term() == term && self.may_stand()
    }

    /// The answers count, also without a majority. They may say that it is no member any more. One of a majority has the record that made this server a
    /// member, and so has one that removed it.
    pub(crate) fn has_asked(&mut self, election: &Election) {
        self.seen_term = self.seen_term.max(election.seen_term);
        self.is_disowned |= election.strangers >= majority(&election.members) && self.promises.was_member;
    }

    /// It was not elected: it waits as long as everybody else.
    pub(crate) fn has_lost(&mut self, now: u64) {
        self.heard_us = self.heard_us.max(now.saturating_sub(ELECTION_US));
    }
}
