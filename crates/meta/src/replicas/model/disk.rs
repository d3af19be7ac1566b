//! Writes, processes that end, power cuts.

use std::sync::Arc;

use super::super::agreement::{Promises, ReplicaCore};
use super::mutants::Mutant;
use super::scope::Scope;
use super::state::*;

impl Scope {
    /// What a follower notes when it hears somebody.
    pub(super) fn heard(&self) -> u64 {
        if self.leases { NOW } else { 0 }
    }

    fn apply(&self, files: &mut Files, write: &Write) {
        match write {
            Write::Promise(promises, _) => files.promises = *promises,
            Write::Own(number, record) => files.put(*number, *record, self.keeps_other),
            Write::Records(first, records, ..) => {
                for (number, record) in (*first..).zip(records) {
                    files.put(number, *record, self.keeps_other);
                }
            }
        }
    }

    /// `Ballot::write`, `Journal::append`.
    pub(super) fn begin_write(&self, state: &mut State, at: usize, write: Write) {
        if let Write::Promise(promises, Then::Voted(to)) = &write
            && self.is(Mutant::VoteNotDurable)
        {
            self.give_vote(state, *promises, *to);
        }
        let is_slow = match write {
            Write::Promise(..) => self.slow_promises,
            Write::Records(..) | Write::Own(..) => self.slow_records,
        };
        state.server(at).writing = Some((write, false));
        if !is_slow {
            self.reach_cache(state, at);
            self.reach_disk(state, at);
        }
    }

    pub(super) fn reach_cache(&self, state: &mut State, at: usize) {
        let server = state.server(at);
        if let Some((write, is_cached)) = &mut server.writing {
            *is_cached = true;
            let write = write.clone();
            self.apply(&mut server.now, &write);
        }
    }

    pub(super) fn reach_disk(&self, state: &mut State, at: usize) {
        let server = state.server(at);
        let Some((write, _)) = server.writing.take() else { return };
        // Ballot and journal are two files.
        match &write {
            Write::Promise(..) => server.safe.promises = server.now.promises,
            _ => {
                server.safe.log.clone_from(&server.now.log);
                server.safe.other = server.now.other;
            }
        }
        match write {
            Write::Promise(promises, then) => self.promised(state, at, promises, then),
            Write::Own(number, _) => self.has_own(state, at, number),
            Write::Records(first, records, is_chosen, message) => {
                self.taken(state, at, first, &records, is_chosen, &message);
            }
        }
    }

    /// `Copied::new`, `open_store`: a process starts, or a term is over.
    pub(super) fn restart(&self, state: &mut State, at: usize, has_led: bool) {
        let server = state.server(at);
        // `Journal::find`: the one with the higher term.
        if let (Some(other), Some(last)) = (server.now.other.take(), server.now.log.last_mut()) {
            let is_later = other.term > last.term;
            if is_later != self.is(Mutant::RankIgnored) {
                *last = other;
            }
        }
        let promises = server.safe.promises;
        server.safe = server.now.clone();
        if self.is(Mutant::BallotNotSynced) {
            server.safe.promises = promises;
        }
        let heard = if self.is(Mutant::StartsFree) { 0 } else { self.heard() };
        let files = &server.now;
        let records = files.records(&self.members);
        let mut core = ReplicaCore::restart(files.promises, records, files.is_incomplete, heard);
        if has_led {
            core.has_led(NOW);
        }
        server.role = Role::Follows(core, None);
        (server.writing, server.told) = (None, 0);
        server.staged.clear();
    }

    pub(super) fn power_cut(&self, state: &mut State, at: usize) {
        let server = state.server(at);
        let torn = match &server.writing {
            Some((Write::Records(first, records, ..), true)) if records.len() > 1 => {
                Some((*first, records.clone()))
            }
            _ => None,
        };
        server.now = server.safe.clone();
        if let Some((first, records)) = torn.filter(|_| self.is(Mutant::TornBatch)) {
            // The first record did not reach the disk, and those after it did.
            let hole = Rec { value: u8::MAX, ..records[0] };
            let found = std::iter::once(&hole).chain(&records[1..]);
            for (number, record) in (first..).zip(found) {
                server.now.put(number, *record, false);
            }
        }
        self.restart(state, at, false);
    }

    /// `Server::cluster`: a server that has lost its store begins with another id.
    pub(super) fn lose(&self, state: &mut State, at: usize) {
        state.spent.losses += 1;
        let server = state.server(at);
        let keeps_id = self.is(Mutant::SameId);
        let generation = u8::from(server.id() > 4) + 1;
        let fresh = Promises { id: id_at(at, generation), term: 0, vote: 0, was_member: false };
        let promises = if keeps_id { server.safe.promises } else { fresh };
        let files = Files { promises, is_incomplete: true, engine: 0, log: Vec::new(), other: None };
        (server.now, server.safe) = (files.clone(), files);
        self.restart(state, at, false);
        if !keeps_id {
            let oracle = Arc::make_mut(&mut state.oracle);
            oracle.said.retain(|id, _| place_of(*id) != at || *id == promises.id);
        }
    }
}
