//! Members change, and whole stores are sent.

use types::messages::replica::Install;

use super::super::agreement::Heeds;
use super::mutants::Mutant;
use super::scope::{Action, Scope};
use super::state::*;

impl Scope {
    /// `Shared::meta_join`, `Shared::meta_remove`.
    pub(super) fn changes(&self, state: &State, at: usize, leads: &Leads, actions: &mut Vec<Action>) {
        let core = &leads.core;
        let is_early = core.chosen <= core.base.number && !self.is(Mutant::EarlyChange);
        let is_second = core.is_changing && !self.is(Mutant::TwoChanges);
        if state.spent.changes >= self.changes || is_early || is_second {
            return;
        }
        let members = mask(&core.members);
        let is_enough = |ids: Ids| core.silent_among(&self.members[ids as usize], NOW).is_none();
        let mut change = |ids: Ids| {
            if is_enough(ids) {
                actions.push(Action::Change(at, ids));
            }
        };
        for (place, server) in state.servers.iter().enumerate() {
            let here: Vec<u64> = [id_at(place, 0), id_at(place, 1)]
                .into_iter()
                .filter(|id| members & mask_of(*id) != 0)
                .collect();
            match here.as_slice() {
                [] => {
                    let last = core.last_of(server.id());
                    // One that was a member does not ask again.
                    let asks = server.follower().is_some_and(|core| !core.promises.was_member);
                    if last > 0 && last + 1 >= core.chosen && asks {
                        change(members | mask_of(server.id()));
                    }
                }
                [id] if core.members.len() > 1 => change(members & !mask_of(*id)),
                _ => {}
            }
        }
    }

    /// `Shared::change_members`.
    pub(super) fn change(&self, state: &mut State, at: usize, members: Ids) {
        state.spent.changes += 1;
        let members = self.members[members as usize].clone();
        let leads = state.leads(at);
        leads.core.begin_change();
        if !leads.core.change(members.clone()) {
            // Only a mutant comes here.
            leads.core.members = members;
        }
        leads.changes_with = leads.core.begun + 1;
        leads.core.changes_with(leads.changes_with);
        leads.queued = true;
    }

    /// Which part of its store a leader may send to a server.
    pub(super) fn parts(&self, state: &State, at: usize, to: usize, actions: &mut Vec<Action>) {
        let (Some(leads), Some(core)) = (state.servers[at].leader(), state.servers[to].follower()) else {
            return;
        };
        if state.servers[to].writing.is_some() || core.heeds(leads.core.term) != Heeds::Yes {
            return;
        }
        if state.spent.transfers < self.transfers {
            actions.push(Action::Part(at, to, 0));
        }
        let is_next = core
            .arriving
            .as_ref()
            .is_some_and(|arriving| arriving.term == leads.core.term && arriving.next_part == 1);
        if is_next {
            actions.push(Action::Part(at, to, 1));
        }
    }

    /// `Follower::install`: a store comes in two parts.
    pub(super) fn part(&self, state: &mut State, at: usize, to: usize, part: u64) {
        let core = &state.leads(at).core;
        let (from, term) = (core.id, core.term);
        let engine = state.servers[at].now.engine;
        let own = state.servers[at].now.log.clone();
        self.hear(state, to, term);
        let core = state.core(to);
        let arriving = core.arriving.as_ref().map_or(0, |arriving| arriving.number);
        let number = if part == 0 { engine } else { arriving };
        let install =
            Install { to: core.id(), term, leader: member(from), number, part, is_last: part == 1, sum: 0 };
        let is_next = core.is_next_part(&install) || self.is(Mutant::OlderStore);
        if part == 0 {
            state.spent.transfers += 1;
        }
        if is_next {
            state.core(to).takes_part(&install, true);
            if part == 0 {
                state.server(to).staged = own[..number as usize].to_vec();
            } else if let Some((last, _)) = state.core(to).has_arrived() {
                self.swap(state, to, last);
            }
        }
        let chosen = number;
        let sign = Message::Append {
            from,
            term,
            first: 0,
            records: Vec::new(),
            previous: Default::default(),
            chosen,
        };
        self.answer(state, to, &sign);
    }

    /// `Follower::replace_store`: one commit.
    fn swap(&self, state: &mut State, at: usize, last: u64) {
        let mut log = std::mem::take(&mut state.server(at).staged);
        let old = state.servers[at].now.clone();
        let members = log.last().map_or(0, |record| record.members);
        let term = log.last().map_or(0, |record| record.term);
        let core = state.core(at);
        let chosen = types::messages::replica::RecordPosition { number: last, term };
        core.installed(chosen, self.members[members as usize].clone());
        if self.is(Mutant::TailLost) && core.records.has_tail() {
            core.records.tail_is_chosen();
            core.records.replace_chosen(chosen, self.members[members as usize].clone());
        }
        if core.records.has_tail() {
            log.extend(old.record(last + 1));
        }
        let server = state.server(at);
        for files in [&mut server.now, &mut server.safe] {
            (files.engine, files.is_incomplete, files.other) = (last, false, None);
            files.log.clone_from(&log);
        }
    }
}
