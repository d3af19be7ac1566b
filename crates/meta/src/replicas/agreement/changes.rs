//! A leader changes the members, one at a time.

use types::messages::replica::MetaMember;

use super::{Members, TermCore, is_in, majority};

impl TermCore {
    /// A change of the members begins. Returns whether it may: the change before must have ended.
    pub(crate) fn begin_change(&mut self) -> bool {
        !std::mem::replace(&mut self.is_changing, true)
    }

    /// Which of these servers do not answer; `None` if a majority does.
    ///
    /// A record that makes these the members is chosen only if a majority of them takes it. Without that majority no server could ever
    /// lead again: a server that has the record needs a server that is away, and does not vote for a server without the record.
    pub(crate) fn silent_among(&self, members: &[MetaMember], now: u64) -> Option<Vec<String>> {
        let answers = |member: &MetaMember| member.id == self.id || self.was_heard_lately(member.id, now);
        let silent: Vec<_> = members.iter().filter(|member| !answers(member)).collect();
        let is_enough = members.len() - silent.len() >= majority(members);
        (!is_enough).then(|| silent.into_iter().map(|member| member.address.clone()).collect())
    }

    /// The members are these from now on, and the next record that is sealed says so. Returns whether they may be: something of this
    /// term must be chosen before, or another leader's change could be chosen as well.
    pub(crate) fn change(&mut self, members: Members) -> bool {
        let may_change = self.is_changing && self.chosen > self.base.number;
        if may_change {
            self.members = members;
        }
        may_change
    }

    /// This record has the change.
    pub(crate) fn changes_with(&mut self, record: u64) {
        if !is_in(&self.members, self.id) {
            self.leaves_with = Some(record);
        }
    }

    /// The change is chosen, or the term is over.
    pub(crate) fn end_change(&mut self) {
        self.is_changing = false;
    }
}
