//! What must hold in every state.

use super::mutants::Mutant;
use super::scope::Scope;
use super::state::*;

impl Scope {
    pub(super) fn check(&self, state: &mut State) {
        if state.wrong.is_none()
            && let Some(wrong) = self.wrong(state)
        {
            state.wrong = Some(wrong);
        }
    }

    fn wrong(&self, state: &State) -> Option<String> {
        let leaders: Vec<(usize, &Leads)> = state
            .servers
            .iter()
            .enumerate()
            .filter_map(|(at, server)| Some((at, server.leader()?)))
            .collect();
        let answering = leaders.iter().filter(|(_, leads)| leads.core.may_answer(NOW) && self.leases);
        if answering.count() > 1 {
            return Some("two servers may answer".to_owned());
        }
        for (index, (at, leads)) in leaders.iter().enumerate() {
            if leaders[..index].iter().any(|(_, other)| other.core.term == leads.core.term) {
                return Some(format!("two servers lead in term {}", leads.core.term));
            }
            if let Some(wrong) = self.wrong_of_leader(state, *at, leads) {
                return Some(wrong);
            }
        }
        (0..state.servers.len()).find_map(|at| self.wrong_of(state, at))
    }

    fn wrong_of_leader(&self, state: &State, at: usize, leads: &Leads) -> Option<String> {
        let server = &state.servers[at];
        let core = &leads.core;
        let members = server.now.record(core.chosen).map_or(0, |record| record.members);
        // With a change too many, a leader forgets that it leaves; what matters is that other members decide.
        let forgets = self.is(Mutant::TwoChanges) || self.is(Mutant::EarlyChange);
        if core.own >= core.chosen && members & mask_of(core.id) == 0 && !forgets {
            return Some(format!("server {at} leads, and is no member by a record that is chosen"));
        }
        if !self.leases || !core.may_answer(NOW) {
            return None;
        }
        for (number, chosen) in (1..).zip(&state.oracle.chosen) {
            let record = match &leads.sent {
                Some(sent) if number == core.begun => Some(*sent),
                _ => server.now.record(number),
            };
            if record.map(Rec::contents) != Some(*chosen) {
                return Some(format!(
                    "server {at} may answer, and does not have record {number}, {chosen:?}"
                ));
            }
        }
        None
    }

    fn wrong_of(&self, state: &State, at: usize) -> Option<String> {
        let server = &state.servers[at];
        let (core, id) = (server.follower()?, server.id());
        let chosen = core.chosen();
        if chosen > state.oracle.chosen.len() as u64 {
            return Some(format!("server {at} takes record {chosen} for chosen, and it is not"));
        }
        for (number, record) in (1..=chosen).zip(&server.now.log) {
            if record.contents() != state.oracle.chosen[number as usize - 1] {
                return Some(format!(
                    "record {number} of server {at} is {record:?}, and another one is chosen"
                ));
            }
        }
        let promised = core.promises.term;
        if server.now.log.iter().any(|record| record.term > promised) {
            return Some(format!("server {at} has a record of a later term than it knows"));
        }
        let differ = |pair: &[Rec]| (pair[0].members ^ pair[1].members).count_ones() > 1;
        if server.now.log.windows(2).any(differ) && !self.is(Mutant::TwoChanges) {
            return Some(format!("members of server {at} differ by more than one between two records"));
        }
        let said = state.oracle.said.get(&id).copied().unwrap_or(0);
        if core.last().number < said {
            return Some(format!("server {at} has said that it has record {said}, and does not have it"));
        }
        if server.told > 0 && server.told >= promised && core.heard_us == NOW {
            return Some(format!("server {at} hears a leader that has said that its term is over"));
        }
        if core.is_removed() && state.oracle.chosen.last().is_some_and(|(_, ids)| ids & mask_of(id) != 0) {
            return Some(format!("server {at} takes itself for removed, and is a member"));
        }
        None
    }
}
