//! What a server that does not lead knows and has promised.

use std::sync::Arc;

use types::messages::replica::{MetaMember, RecordPosition};

use super::super::ELECTION_US;
use super::Records;

/// The members of one moment.
pub(crate) type Members = Arc<[MetaMember]>;

/// How many are a majority.
pub(in crate::replicas) fn majority(members: &[MetaMember]) -> usize {
    members.len() / 2 + 1
}

/// Whether a server is in a list of members.
pub(in crate::replicas) fn is_in(members: &[MetaMember], id: u64) -> bool {
    members.iter().any(|member| member.id == id)
}

/// What a server has promised. It counts once it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Promises {
    /// The server's id.
    pub(crate) id: u64,
    /// The newest term that the server knows.
    pub(crate) term: u64,
    /// For whom it has voted in this term; 0: for nobody.
    pub(crate) vote: u64,
    /// Whether the server was a member once, by a record that was chosen. One that was, and is none any more, does not join again.
    pub(crate) was_member: bool,
}

/// A whole store that comes from a leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Arriving {
    /// The leader's term, and the record with which the store ended when its first part left.
    pub(crate) term: u64,
    pub(crate) number: u64,
    pub(crate) next_part: u64,
    /// Whether a part, or a record that was kept, had the members.
    pub(crate) has_members: bool,
    /// The last record that was kept meanwhile; if there is none, that with which the store ends.
    pub(crate) last: u64,
}

/// A server that does not lead.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ReplicaCore {
    /// What is durable.
    pub(crate) promises: Promises,
    /// The term of the newest promise, which may be on its way to the disk.
    pub(crate) promising: u64,
    pub(crate) records: Records,
    /// The store is a part of another server's.
    pub(crate) is_incomplete: bool,
    pub(crate) arriving: Option<Arriving>,
    /// When a leader was heard, or a vote given.
    pub(crate) heard_us: u64,
    /// The newest term of which its leader has said that it is over.
    pub(crate) ended: u64,
    /// The newest term in the answers of other servers.
    pub(crate) seen_term: u64,
    /// It is to stand for election at once.
    pub(crate) is_called: bool,
    /// The others say that it is no member any more.
    pub(crate) is_disowned: bool,
}

impl ReplicaCore {
    /// A server that starts, with what its files have. It may have heard a leader just before it was started.
    pub(crate) fn restart(
        promises: Promises,
        records: Records,
        is_incomplete: bool,
        now: u64,
    ) -> ReplicaCore {
        ReplicaCore {
            promises,
            promising: 0,
            records,
            is_incomplete,
            arriving: None,
            heard_us: now,
            ended: 0,
            seen_term: 0,
            is_called: false,
            is_disowned: false,
        }
    }

    /// It has just led, so there was no leader whom it could have heard: it may vote at once, and stands after the others.
    pub(crate) fn has_led(&mut self, now: u64) {
        self.heard_us = now.saturating_sub(ELECTION_US);
    }

    pub(crate) fn id(&self) -> u64 {
        self.promises.id
    }

    pub(crate) fn term(&self) -> u64 {
        self.promises.term
    }

    /// Where its records end.
    pub(crate) fn last(&self) -> RecordPosition {
        self.records.last()
    }

    /// Up to which record it knows that all is chosen.
    pub(crate) fn chosen(&self) -> u64 {
        self.records.chosen.number
    }

    /// Whether it is a member, as the last record has it.
    pub(crate) fn is_member(&self) -> bool {
        is_in(self.records.members(), self.id())
    }

    /// Whether it is a member, as far as that cannot change back.
    pub(crate) fn is_surely_member(&self) -> bool {
        is_in(&self.records.chosen_members, self.id())
    }

    /// Whether a server is a member, or could be one by a record that is not chosen.
    pub(in crate::replicas) fn may_be_member(&self, id: u64) -> bool {
        self.is_incomplete || is_in(self.records.members(), id) || is_in(&self.records.chosen_members, id)
    }

    /// Whether the others have removed this server. After a start, the record that made it a member may be the last one, of which it
    /// does not know yet that it is chosen.
    pub(crate) fn is_removed(&self) -> bool {
        let is_member = self.is_surely_member() || self.is_member();
        (self.promises.was_member && !is_member && !self.is_incomplete) || self.is_disowned
    }

    /// What is to be written once a record is chosen that makes this server a member; `None` if that is known.
    pub(crate) fn notes_member(&self) -> Option<Promises> {
        let is_new = self.is_surely_member() && !self.promises.was_member;
        is_new.then_some(Promises { was_member: true, ..self.promises })
    }

    /// What is to be written for a promise. From now on a leader of an earlier term gets no sign, although the promise does not count
    /// yet.
    pub(crate) fn promise(&mut self, term: u64, vote: u64) -> Promises {
        self.promising = term;
        let was_member = self.promises.was_member || self.is_surely_member();
        Promises { term, vote, was_member, ..self.promises }
    }

    /// A promise is durable.
    pub(crate) fn promised(&mut self, promises: Promises) {
        self.promises = promises;
    }

    /// There was no room for a promise: it was not made.
    pub(crate) fn promise_failed(&mut self) {
        self.promising = self.term();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It ended for good once.
    #[test]
    fn a_server_that_starts_with_the_record_that_made_it_a_member_is_not_removed() {
        let members = |ids: &[u64]| -> Members {
            ids.iter().map(|id| MetaMember { id: *id, address: id.to_string() }).collect()
        };
        let mut records = Records::new(RecordPosition { number: 5, term: 1 }, members(&[1, 2]));
        records.replace_tail(1, Some(members(&[1, 2, 3])));
        let promises = Promises { id: 3, term: 1, vote: 0, was_member: true };
        let mut core = ReplicaCore::restart(promises, records, false, 0);
        assert!(!core.is_removed());
        core.records.replace_tail(1, Some(members(&[1, 2])));
        core.records.tail_is_chosen();
        assert!(core.is_removed());
    }
}
