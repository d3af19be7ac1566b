//! The state of the whole model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::messages::replica::{MetaMember, RecordPosition};

use super::super::ELECTION_US;
use super::super::agreement::{Election, Members, Promises, Records, ReplicaCore, TermCore};

/// The only moment: what was heard then counts, and what was heard at 0 does not any more.
pub(super) const NOW: u64 = ELECTION_US;

/// Ids as a mask: the server at place p has the ids p + 1, and, after it has lost its store, p + 5.
pub(super) type Ids = u8;

pub(super) fn id_at(place: usize, generation: u8) -> u64 {
    place as u64 + 1 + 4 * u64::from(generation)
}

pub(super) fn place_of(id: u64) -> usize {
    (id as usize - 1) % 4
}

pub(super) fn mask_of(id: u64) -> Ids {
    1 << (id - 1)
}

pub(super) fn member(id: u64) -> MetaMember {
    MetaMember { id, address: String::new() }
}

/// All lists of members, by their masks.
pub(super) fn all_members() -> Arc<[Members]> {
    let list = |mask: u8| (1..=8).filter(|id| mask & mask_of(*id) != 0).map(member).collect();
    (0..=u8::MAX).map(list).collect()
}

pub(super) fn mask(members: &[MetaMember]) -> Ids {
    members.iter().fold(0, |mask, member| mask | mask_of(member.id))
}

/// A record: its term, its contents, and the members that it leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Rec {
    pub(super) term: u64,
    pub(super) value: u8,
    pub(super) members: Ids,
}

impl Rec {
    /// What two servers must agree on.
    pub(super) fn contents(self) -> (u8, Ids) {
        (self.value, self.members)
    }
}

/// What a server has on its disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Files {
    pub(super) promises: Promises,
    pub(super) is_incomplete: bool,
    /// The engine has the records up to this one.
    pub(super) engine: u64,
    /// The records from number 1 on.
    pub(super) log: Vec<Rec>,
    /// Another record with the number of the last one, which may lie in the journal, too.
    pub(super) other: Option<Rec>,
}

impl Files {
    pub(super) fn position(&self, number: u64) -> RecordPosition {
        let term = self.record(number).map_or(0, |record| record.term);
        RecordPosition { number, term }
    }

    pub(super) fn record(&self, number: u64) -> Option<Rec> {
        self.log.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
    }

    /// The record gets this number, and none comes after it.
    pub(super) fn put(&mut self, number: u64, record: Rec, keeps_other: bool) {
        let before = self.record(number);
        self.log.truncate(number as usize - 1);
        self.log.push(record);
        self.other = before.filter(|before| keeps_other && *before != record);
    }

    /// What a server finds that starts.
    pub(super) fn records(&self, members: &[Members]) -> Records {
        let last = self.log.len() as u64;
        let chosen = self.engine.max(last.saturating_sub(1));
        let members_at = |number| self.record(number).map_or(0, |record| record.members);
        let mut records = Records::new(self.position(chosen), members[members_at(chosen) as usize].clone());
        if last > chosen {
            records.replace_tail(self.position(last).term, Some(members[members_at(last) as usize].clone()));
        }
        records
    }
}

/// What is being written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Write {
    Promise(Promises, Then),
    /// Records from this number on, and whether they are chosen. They are answered to the leader of the message.
    Records(u64, Vec<Rec>, bool, Message),
    /// A leader's own record.
    Own(u64, Rec),
}

/// What follows a promise.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Then {
    /// The vote is given.
    Voted(u64),
    /// The votes are asked for.
    Ask,
    /// The message of the leader of a new term is heeded.
    Heed(Message),
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Message {
    Vote {
        from: u64,
        term: u64,
        last: RecordPosition,
    },
    /// Records from this number on.
    Append {
        from: u64,
        term: u64,
        first: u64,
        records: Vec<Rec>,
        previous: RecordPosition,
        chosen: u64,
    },
    /// `has`: the record that is acknowledged; `is_late`: what was heard is too long ago.
    Appended {
        from: u64,
        to: u64,
        term: u64,
        chosen: u64,
        has: Option<u64>,
        is_incomplete: bool,
        is_late: bool,
    },
    TermEnded {
        from: u64,
        term: u64,
        successor: u64,
    },
}

/// A candidate.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Asks {
    pub(super) term: u64,
    pub(super) election: Election,
    pub(super) asked_us: u64,
}

/// A leader.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leads {
    pub(super) core: TermCore,
    /// The record that is on its way.
    pub(super) sent: Option<Rec>,
    /// A change of the members waits for its record, or for being chosen.
    pub(super) queued: bool,
    pub(super) changes_with: u64,
    /// To whom it hands over.
    pub(super) successor: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Role {
    Follows(ReplicaCore, Option<Asks>),
    Leads(Leads),
    /// It has ended for good: it was removed.
    Gone,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Server {
    /// As a process reads its files, and as they are after a power cut.
    pub(super) now: Files,
    pub(super) safe: Files,
    /// What is being written, and whether it is in the page cache.
    pub(super) writing: Option<(Write, bool)>,
    pub(super) role: Role,
    /// Parts of a whole store.
    pub(super) staged: Vec<Rec>,
    /// It has heard that the term of a leader is over.
    pub(super) told: u64,
}

impl Server {
    pub(super) fn id(&self) -> u64 {
        self.now.promises.id
    }

    pub(super) fn follower(&self) -> Option<&ReplicaCore> {
        match &self.role {
            Role::Follows(core, _) => Some(core),
            _ => None,
        }
    }

    pub(super) fn leader(&self) -> Option<&Leads> {
        match &self.role {
            Role::Leads(leads) => Some(leads),
            _ => None,
        }
    }
}

/// What the outside knows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Oracle {
    /// What is chosen, from record 1 on.
    pub(super) chosen: Vec<(u8, Ids)>,
    /// For whom each id has voted in each term, as far as it could vote again.
    pub(super) votes: BTreeMap<(u64, u64), u64>,
    /// Up to which record each id has said that it has all.
    pub(super) said: BTreeMap<u64, u64>,
}

/// How much of the bounds is used up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Spent {
    pub(super) values: u8,
    pub(super) restarts: u8,
    pub(super) cuts: u8,
    pub(super) losses: u8,
    pub(super) changes: u8,
    pub(super) transfers: u8,
    pub(super) hand_overs: u8,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) net: BTreeSet<Arc<Message>>,
    pub(super) oracle: Arc<Oracle>,
    pub(super) spent: Spent,
    /// The first violation that was found.
    pub(super) wrong: Option<String>,
}

impl State {
    pub(super) fn server(&mut self, at: usize) -> &mut Server {
        Arc::make_mut(&mut self.servers[at])
    }

    /// The follower at a place. It is known to be one.
    pub(super) fn core(&mut self, at: usize) -> &mut ReplicaCore {
        match &mut self.server(at).role {
            Role::Follows(core, _) => core,
            _ => unreachable!("it follows"),
        }
    }

    /// The leader at a place. It is known to be one.
    pub(super) fn leads(&mut self, at: usize) -> &mut Leads {
        match &mut self.server(at).role {
            Role::Leads(leads) => leads,
            _ => unreachable!("it leads"),
        }
    }

    pub(super) fn send(&mut self, message: Message) {
        self.net.insert(Arc::new(message));
    }

    pub(super) fn fail(&mut self, wrong: impl Into<String>) {
        self.wrong.get_or_insert(wrong.into());
    }

    /// The place of the server that leads in a term.
    pub(super) fn leader_of(&self, id: u64, term: u64) -> Option<usize> {
        let at = place_of(id);
        let leads = self.servers[at].leader()?;
        (leads.core.id == id && leads.core.term == term).then_some(at)
    }
}
