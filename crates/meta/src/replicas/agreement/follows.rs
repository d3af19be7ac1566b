//! A follower votes, hears leaders, takes records and whole stores.

use types::messages::replica::*;

use super::records::Taken;
use super::{Arriving, Members, ReplicaCore};
use crate::replicas::ELECTION_US;

/// What to answer to a server that asks for a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Voting {
    /// This, at once.
    Answer(bool),
    /// It has the vote once that is durable.
    Promise,
}

/// Whether a server heeds a leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heeds {
    /// It knows a newer term.
    No,
    /// It does.
    Yes,
    /// It does once it has promised the leader's term.
    Promise,
}

/// What to do with records that have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taking {
    /// Nothing.
    Nothing,
    /// They follow the store that comes, and are kept until it is here.
    Keep,
    /// They are taken.
    Take(Taken),
}

impl ReplicaCore {
    /// Whether a leader was heard, or a vote given, so lately that a leader may still answer.
    pub(crate) fn hears_a_leader(&self, now: u64) -> bool {
        now < self.heard_us + ELECTION_US
    }

    /// Another server asks for a vote.
    pub(crate) fn vote(&self, ask: &Vote, now: u64) -> Voting {
        let is_stale = ask.last < self.last() || ask.term < self.term();
        if self.hears_a_leader(now) || self.is_incomplete || is_stale {
            return Voting::Answer(false);
        }
        let has_promised = ask.term == self.term() && ![0, ask.candidate].contains(&self.promises.vote);
        if has_promised || ask.is_poll { Voting::Answer(!has_promised) } else { Voting::Promise }
    }

    /// A vote is given.
    pub(crate) fn voted(&mut self, now: u64) {
        self.heard_us = now;
    }

    pub(crate) fn answer_to_vote(&self, ask: &Vote, is_granted: bool) -> Voted {
        Voted { term: self.term(), is_granted, is_member: self.may_be_member(ask.candidate) }
    }

    pub(crate) fn appended(&self) -> Appended {
        Appended {
            term: self.term(),
            chosen: self.chosen(),
            last: self.last(),
            is_incomplete: self.is_incomplete,
        }
    }

    /// A leader says that its term is over: it answers nobody any more. Returns whether that concerns this server.
    pub(crate) fn term_ended(&mut self, ended: &TermEnded) -> bool {
        let is_heeded = ended.term >= self.term() && ended.term >= self.promising;
        if is_heeded {
            self.ended = ended.term;
            self.heard_us = 0;
            self.is_called |= ended.successor == self.id();
        }
        is_heeded
    }

    /// A sign of the leader of a term has come. Returns whether that leader counts as one: it may have said since that its term is
    /// over.
    pub(crate) fn hear(&mut self, term: u64, now: u64) -> bool {
        let is_late = term <= self.ended;
        if !is_late {
            self.heard_us = now;
        }
        !is_late
    }

    /// Whether a leader of this term leads, as far as this server knows.
    pub(crate) fn heeds(&self, term: u64) -> Heeds {
        match term.cmp(&self.term()) {
            std::cmp::Ordering::Less => Heeds::No,
            std::cmp::Ordering::Equal => Heeds::Yes,
            std::cmp::Ordering::Greater => Heeds::Promise,
        }
    }

    /// Whether this server has less than the leader has counted: its directory is that of an earlier time.
    pub(crate) fn has_less(&self, append: &Append) -> bool {
        append.has > self.last().number
    }

    /// Whether this is a sign of life that need not wait for what is being written.
    pub(crate) fn is_plain_sign(&self, append: &Append) -> bool {
        let is_sign = append.records.is_empty() && !self.has_less(append);
        is_sign && append.term == self.term() && append.term >= self.promising
    }

    /// Whether a sign shows that the last record here is chosen. The leader says up to which record all is chosen, and it has this
    /// server's last one, if that is of its term.
    pub(crate) fn shows_chosen(&self, append: &Append) -> bool {
        let last = self.last();
        last.term == append.term && (self.chosen() + 1..=append.chosen).contains(&last.number)
    }

    /// What to do with the records that a leader, which this server heeds, has sent.
    pub(crate) fn take(&self, append: &Append) -> Taking {
        // A late record may not be chosen: it is none of the store.
        let is_chosen = append.records.last().is_some_and(|sent| sent.position.number <= append.chosen);
        let is_next = |arriving: &Arriving| {
            arriving.term == append.term && arriving.last == append.previous.number && is_chosen
        };
        if self.arriving.as_ref().is_some_and(is_next) {
            return Taking::Keep;
        }
        match append.records.as_slice() {
            _ if self.is_incomplete => Taking::Nothing,
            [] => Taking::Nothing,
            [one] => Taking::Take(self.records.take_one(one.position, append.previous, append.chosen)),
            several => Taking::Take(self.records.take_chosen(several, append.previous)),
        }
    }

    /// Whether a part of a whole store is the next one. An older store than its own would make this server forget what it has said it
    /// has.
    pub(crate) fn is_next_part(&self, install: &Install) -> bool {
        let is_same = |arriving: &Arriving| {
            (arriving.term, arriving.number) == (install.term, install.number)
                && arriving.next_part == install.part
        };
        let goes_on = install.part == 0 || self.arriving.as_ref().is_some_and(is_same);
        install.number >= self.chosen() && goes_on
    }

    /// That part is taken.
    pub(crate) fn takes_part(&mut self, install: &Install, has_members: bool) {
        let Install { term, number, part, .. } = *install;
        let had_members = |arriving: &Arriving| part > 0 && arriving.has_members;
        let has_members = has_members || self.arriving.as_ref().is_some_and(had_members);
        let last = self.arriving.as_ref().filter(|_| part > 0).map_or(number, |arriving| arriving.last);
        self.arriving = Some(Arriving { term, number, next_part: part + 1, has_members, last });
    }

    /// A record is kept that follows the store that comes.
    pub(crate) fn keeps(&mut self, number: u64, has_members: bool) {
        if let Some(arriving) = &mut self.arriving {
            arriving.last = number;
            arriving.has_members |= has_members;
        }
    }

    /// All parts have come. Returns the record with which the store ends, and whether it names the members.
    pub(crate) fn has_arrived(&mut self) -> Option<(u64, bool)> {
        self.arriving.take().map(|arriving| (arriving.last, arriving.has_members))
    }

    /// The store that has come takes the place of this server's.
    pub(crate) fn installed(&mut self, chosen: RecordPosition, members: Members) {
        self.records.replace_chosen(chosen, members);
        self.is_incomplete = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Promises, Records};
    use super::*;

    /// A leader may have given up waiting for its answer, and sends the whole store meanwhile.
    #[test]
    fn a_late_record_that_is_not_chosen_is_not_kept_with_a_store_that_comes() {
        let leader = MetaMember { id: 1, address: "leader".to_owned() };
        let promises = Promises { id: 2, term: 1, vote: 0, was_member: false };
        let at = |number| RecordPosition { number, term: 1 };
        let mut core = ReplicaCore::restart(promises, Records::new(at(0), Members::from([])), true, 0);
        let install =
            Install { to: 2, term: 1, leader: leader.clone(), number: 5, part: 0, is_last: false, sum: 0 };
        assert!(core.is_next_part(&install));
        core.takes_part(&install, true);
        let append = |chosen| Append {
            to: 2,
            term: 1,
            leader: leader.clone(),
            previous: at(5),
            records: vec![SentRecord { position: at(6), len: 0 }],
            chosen,
            has: 0,
            sum: 0,
        };
        assert_eq!((core.take(&append(5)), core.take(&append(6))), (Taking::Nothing, Taking::Keep));
    }
}
