//! Liveness: from every state, once nothing fails any more, a majority elects a leader, what that one begins is chosen, and a server
//! without a store gets one and becomes a member.
//!
//! The check tries only the obvious path: writes end, all servers become free to vote, a server with the most records stands, and
//! every message arrives.

use std::sync::Arc;

use super::scope::Scope;
use super::state::*;

/// Leaders after which the path counts as endless: one may have to lead only to have its own removal chosen.
const LEADERS_MAX: u8 = 3;
/// Rounds in which all that is sent arrives, after which a record counts as lost.
const ROUNDS_MAX: u8 = 8;

impl Scope {
    pub(super) fn recovers(&self, state: &State) -> Result<(), String> {
        let mut state = state.clone();
        for _ in 0..LEADERS_MAX {
            let at = self.elect(&mut state).ok_or("nobody is elected")?;
            for _ in 0..ROUNDS_MAX {
                self.all_arrives(&mut state, at);
                let Some(leads) = state.servers[at].leader() else { break };
                let core = &leads.core;
                if core.chosen == core.begun && core.own == core.begun {
                    if core.chosen > core.base.number + 1 {
                        self.lets_join(&mut state, at)?;
                        return state.wrong.map_or(Ok(()), Err);
                    }
                    self.propose(&mut state, at);
                }
            }
            if state.servers[at].leader().is_some() {
                return Err(format!("what server {at} begins is not chosen"));
            }
        }
        Err("no leader stays".to_owned())
    }

    /// Servers that ask become members, one after the other.
    fn lets_join(&self, state: &mut State, at: usize) -> Result<(), String> {
        for to in 0..state.servers.len() {
            let id = state.servers[to].id();
            let is_member = mask(&state.leads(at).core.members) & mask_of(id) != 0;
            let asks = state.servers[to].follower().is_some_and(|core| !core.promises.was_member);
            if is_member || !asks || self.transfers == 0 {
                continue;
            }
            let chosen = state.leads(at).core.chosen;
            state.server(at).now.engine = chosen;
            self.sign(state, at, to);
            self.finish(state, to);
            (0..2).for_each(|part| self.part(state, at, to, part));
            // The one that was there has lost its store.
            let members = mask(&state.leads(at).core.members);
            let old = (mask_of(id_at(to, 0)) | mask_of(id_at(to, 1))) & members;
            if old != 0 {
                self.change_to(state, at, members & !old)?;
            }
            self.change_to(state, at, members & !old | mask_of(id))?;
        }
        Ok(())
    }

    fn change_to(&self, state: &mut State, at: usize, members: Ids) -> Result<(), String> {
        self.change(state, at, members);
        self.propose(state, at);
        for _ in 0..ROUNDS_MAX {
            self.all_arrives(state, at);
        }
        let core = &state.leads(at).core;
        match core.chosen == core.begun && mask(&core.members) == members && !core.is_changing {
            true => Ok(()),
            false => Err(format!("{members:b} do not become the members")),
        }
    }

    fn elect(&self, state: &mut State) -> Option<usize> {
        let all = 0..state.servers.len();
        for at in all.clone() {
            while state.servers[at].writing.is_some() {
                self.reach_cache(state, at);
                self.reach_disk(state, at);
            }
            if state.servers[at].leader().is_some() {
                self.depose(state, at);
            }
        }
        let newest = state.servers.iter().map(|server| server.now.promises.term).max().unwrap_or(0);
        for at in all.clone() {
            if state.servers[at].follower().is_some() {
                self.become_free(state, at);
                // As polls tell.
                state.core(at).seen_term = newest;
            }
        }
        let last = |at: &usize| {
            let core = state.servers[*at].follower().filter(|core| core.may_stand())?;
            Some((core.last(), *at))
        };
        let (_, at) = all.clone().filter_map(|at| last(&at)).max()?;
        self.stand(state, at);
        self.finish(state, at);
        let term = newest + 1;
        let is_new = |message: &Message| matches!(message, Message::Vote { term: of, .. } if *of == term);
        let votes: Vec<Arc<Message>> = state.net.iter().filter(|message| is_new(message)).cloned().collect();
        for vote in &votes {
            for to in all.clone() {
                if to == at || !self.is_of_use(state, vote, to) {
                    continue;
                }
                self.deliver(state, vote, to);
                self.finish(state, to);
            }
        }
        let is_elected = match &state.servers[at].role {
            Role::Follows(core, Some(asks)) => core.may_lead(asks.term, &asks.election),
            _ => false,
        };
        is_elected.then(|| self.lead(state, at))?;
        Some(at)
    }

    fn finish(&self, state: &mut State, at: usize) {
        while state.servers[at].writing.is_some() {
            self.reach_cache(state, at);
            self.reach_disk(state, at);
        }
    }

    fn all_arrives(&self, state: &mut State, at: usize) {
        self.finish(state, at);
        for to in (0..state.servers.len()).filter(|to| *to != at) {
            if state.servers[to].follower().is_none() || state.servers[at].leader().is_none() {
                continue;
            }
            self.sign(state, at, to);
            self.finish(state, to);
            let (id, term, chosen) = {
                let core = &state.leads(at).core;
                (core.id, core.term, core.chosen)
            };
            if self.next_for(&state.servers[to], term) <= chosen {
                self.catch_up(state, at, to, 1);
                self.finish(state, to);
            }
            let is_new = |message: &Message| matches!(message, Message::Append { from, term: of, .. } if (*from, *of) == (id, term));
            let sent: Vec<_> = state.net.iter().filter(|message| is_new(message)).cloned().collect();
            for message in &sent {
                if !self.is_of_use(state, message, to) {
                    continue;
                }
                self.deliver(state, message, to);
                self.finish(state, to);
            }
        }
        if state.servers[at].leader().is_some() {
            self.count(state, at);
        }
    }
}
