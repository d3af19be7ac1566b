//! A leader changes the members, one at a time.

use super::{Members, TermCore, is_in};

impl TermCore {
    /// A change of the members begins. Returns whether it may: the change before must have ended.
    pub(crate) fn begin_change(&mut self) -> bool {
        !std::mem::replace(&mut self.is_changing, true)
    }

    /// The members are these from now on, and the next record that is sealed says so. Returns whether they may be: something of this
    /// term must be chosen before, or another leader's change could be chosen beside this one.
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
