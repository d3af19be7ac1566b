//! Which records a server has, and which it takes.

use types::messages::replica::{RecordPosition, SentRecord};

use super::Members;

/// The one record that may follow the chosen ones. Another record may replace it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Tail {
    term: u64,
    members: Members,
}

/// Where a server's records end, and whom they make members.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Records {
    /// The last record that this server knows to be chosen; number 0 before all.
    pub(crate) chosen: RecordPosition,
    /// The members, as that record has them.
    pub(crate) chosen_members: Members,
    tail: Option<Tail>,
}

/// Which of the records that have come a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// The last record that is here is chosen; that counts before the others are taken.
    pub(crate) tail_is_chosen: bool,
    /// All from this one on are to be written; it is the next record, or replaces the last one.
    pub(crate) from: Option<usize>,
    /// The records that are written are chosen, too. If none is written, the last record here is.
    pub(crate) is_chosen: bool,
}

impl Records {
    /// Of a server whose records are all chosen.
    pub(crate) fn new(chosen: RecordPosition, chosen_members: Members) -> Records {
        Records { chosen, chosen_members, tail: None }
    }

    /// Where they end.
    pub(crate) fn last(&self) -> RecordPosition {
        match &self.tail {
            Some(tail) => RecordPosition { number: self.chosen.number + 1, term: tail.term },
            None => self.chosen,
        }
    }

    /// The members, as the last record has them.
    pub(crate) fn members(&self) -> &Members {
        self.tail.as_ref().map_or(&self.chosen_members, |tail| &tail.members)
    }

    /// Whether the last record may be replaced.
    pub(crate) fn has_tail(&self) -> bool {
        self.tail.is_some()
    }

    /// Puts a record after the chosen ones, perhaps instead of another. It makes `members` the members.
    pub(crate) fn replace_tail(&mut self, term: u64, members: Option<Members>) {
        let members = members.unwrap_or_else(|| self.chosen_members.clone());
        self.tail = Some(Tail { term, members });
    }

    /// The last record is chosen.
    pub(crate) fn tail_is_chosen(&mut self) {
        self.chosen = self.last();
        if let Some(tail) = self.tail.take() {
            self.chosen_members = tail.members;
        }
    }

    /// There is a whole store in place of the records up to this one. The record after it stays, if there was one.
    pub(crate) fn replace_chosen(&mut self, chosen: RecordPosition, members: Members) {
        let keeps_tail = self.has_tail() && self.last().number == chosen.number + 1;
        self.tail = self.tail.take().filter(|_| keeps_tail);
        (self.chosen, self.chosen_members) = (chosen, members);
    }

    /// What to do with one record that has come, after `previous`. All up to `chosen` are chosen.
    pub(crate) fn take_one(&self, record: RecordPosition, previous: RecordPosition, chosen: u64) -> Taken {
        let (here, last) = (self.chosen.number, self.last());
        let nothing = Taken { tail_is_chosen: false, from: None, is_chosen: false };
        if record.number <= here {
            return nothing;
        }
        if last == record {
            return Taken { is_chosen: record.number <= chosen, ..nothing };
        }
        if record.number == last.number && record.term < last.term && record.number > chosen {
            return nothing;
        }
        // A record that is followed by another one is chosen, if it is the same here.
        let goes_on = last == previous && record.number == last.number + 1;
        let tail_is_chosen = goes_on && self.has_tail();
        if record.number != here + u64::from(tail_is_chosen) + 1 {
            return Taken { tail_is_chosen, ..nothing };
        }
        Taken { tail_is_chosen, from: Some(0), is_chosen: record.number <= chosen }
    }

    /// Decides which of several new records this server takes. All of them are chosen, without a gap. A record counts only if it
    /// follows what is here.
    pub(crate) fn take_chosen(&self, sent: &[SentRecord], previous: RecordPosition) -> Taken {
        let (here, last) = (self.chosen.number, self.last());
        let number_of = |at: usize| sent[at].position.number;
        let nothing = Taken { tail_is_chosen: false, from: None, is_chosen: false };
        let Some(first) = (0..sent.len()).find(|at| number_of(*at) > here) else { return nothing };
        let before = if first == 0 { previous } else { sent[first - 1].position };
        // The last record that is here is chosen, if it is one of these, or the one before.
        let is_first = last == sent[first].position;
        let goes_on = last == before && number_of(first) == last.number + 1;
        let tail_is_chosen = self.has_tail() && (is_first || goes_on);
        let next = here + u64::from(tail_is_chosen) + 1;
        match (first..sent.len()).find(|at| number_of(*at) >= next) {
            Some(from) if number_of(from) == next => {
                Taken { tail_is_chosen, from: Some(from), is_chosen: true }
            }
            _ => Taken { tail_is_chosen, ..nothing },
        }
    }
}
