//! What a leader knows of the others: who has which records, and how long it may answer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use types::Refusal;
use types::messages::replica::*;
use world::{Identity, Notify, Peers, World};

use super::copy::{chosen_term_of, members_of};
use super::election::majority;
use super::history::History;
use super::thrifty::Thrifty;
use super::{ELECTION_US, LEASE_US};
use crate::kv::{EncodedRecord, Engine, Store};

/// What the leader knows of another server.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// Where its records end, as far as they are those of the leader.
    pub(super) last: u64,
    /// When the newest call was begun that it has answered in this term; `None` if it has not answered.
    pub(super) heard_us: Option<u64>,
}

/// A term of a leader.
pub(crate) struct Leading {
    pub(super) world: World,
    pub(super) peers: Peers,
    /// Connections for signs of life: one that is late on these breaks none with a record.
    pub(super) signs: Peers,
    pub(super) engine: Engine,
    pub(super) me: MetaMember,
    pub(super) term: u64,
    pub(super) members: RefCell<Vec<MetaMember>>,
    /// Those that get everything to become members.
    pub(super) others: RefCell<Vec<MetaMember>>,
    /// Those that have just been removed, and should hear of it.
    pub(super) parting: RefCell<Vec<MetaMember>>,
    /// The last record that was chosen when the term began: those who have it need no older one.
    pub(super) base: RecordPosition,
    pub(super) history: RefCell<History>,
    pub(super) progress: RefCell<BTreeMap<u64, Progress>>,
    pub(super) thrifty: RefCell<Thrifty>,
    /// Up to which record this server's own journal is durable, and up to which all is chosen.
    own: Cell<u64>,
    chosen: Cell<u64>,
    /// Members do not change twice at the same time.
    pub(super) is_changing: Cell<bool>,
    /// The record without this server among the members, once there is one.
    leaves_with: Cell<Option<u64>>,
    /// That record is chosen.
    is_removed: Cell<bool>,
    is_over: Cell<bool>,
    /// No record is begun any more: another server is to lead.
    pub(super) is_ending: Cell<bool>,
    /// Notified when there is a record to send.
    pub(super) news: Notify,
    /// Notified when a server has answered, and when the term is over.
    pub(super) heard: Notify,
}

impl Leading {
    /// Of a server that has asked for votes at `asked_us`, and got these.
    #[expect(clippy::too_many_arguments, reason = "all that a term begins with")]
    pub(crate) fn new(
        world: &World,
        identity: &Identity,
        engine: Engine,
        me: MetaMember,
        store: &Store,
        term: u64,
        history: History,
        voters: &[u64],
        asked_us: u64,
    ) -> Rc<Leading> {
        let mut history = history;
        // The last record gets this term, and is sent then.
        history.truncate(store.chosen());
        let heard = |id: &u64| (*id, Progress { last: 0, heard_us: Some(asked_us) });
        let (chosen, members) = (store.chosen(), members_of(store));
        // The last record may remove this server, which leads until that record is chosen.
        let is_member = members.iter().any(|member| member.id == me.id);
        Rc::new(Leading {
            world: world.clone(),
            peers: Peers::new(world.clone(), identity.clone()),
            signs: Peers::new(world.clone(), identity.clone()),
            engine,
            me,
            term,
            members: RefCell::new(members),
            others: RefCell::default(),
            parting: RefCell::default(),
            base: RecordPosition { number: chosen, term: chosen_term_of(store) },
            history: RefCell::new(history),
            progress: RefCell::new(voters.iter().map(heard).collect()),
            thrifty: RefCell::default(),
            own: Cell::new(chosen),
            chosen: Cell::new(chosen),
            is_changing: Cell::new(false),
            leaves_with: Cell::new((!is_member).then_some(chosen + 1)),
            is_removed: Cell::new(false),
            is_over: Cell::new(false),
            is_ending: Cell::new(false),
            news: Notify::new(),
            heard: Notify::new(),
        })
    }

    /// The order of what a majority has reached, or more: of each member one number.
    fn majority_of(&self, number: impl Fn(u64) -> u64) -> u64 {
        let members = self.members.borrow();
        let mut numbers: Vec<u64> = members.iter().map(|member| number(member.id)).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.get(majority(&members) - 1).copied().unwrap_or(0)
    }

    /// The ids of the other members.
    pub(super) fn other_members(&self) -> impl Iterator<Item = u64> {
        let ids: Vec<u64> = self.members.borrow().iter().map(|member| member.id).collect();
        ids.into_iter().filter(|id| *id != self.me.id)
    }

    /// Addresses of the members.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.members.borrow().iter().map(|member| member.address.clone()).collect()
    }

    /// Until when this server may answer.
    fn lease_until(&self) -> u64 {
        let now = self.world.now();
        let progress = self.progress.borrow();
        let heard = |id| match id == self.me.id {
            true => now,
            false => progress.get(&id).and_then(|progress| progress.heard_us).unwrap_or(0),
        };
        self.majority_of(heard) + LEASE_US
    }

    /// Whether a server has answered as one that runs would.
    pub(super) fn was_heard_lately(&self, id: u64) -> bool {
        let heard = self.progress.borrow().get(&id).and_then(|progress| progress.heard_us);
        heard.is_some_and(|heard| self.world.now() < heard + ELECTION_US)
    }

    /// Whether this server may answer now.
    pub(crate) fn may_answer(&self) -> bool {
        !self.is_over.get() && self.world.now() < self.lease_until()
    }

    /// Waits until this server may answer.
    ///
    /// # Errors
    /// It does not lead any more.
    pub(crate) async fn until_it_may_answer(&self) -> Result<(), Refusal> {
        loop {
            let heard = self.heard.wait();
            if self.is_over.get() {
                return Err(Refusal::NotLeader);
            }
            if self.may_answer() {
                return Ok(());
            }
            heard.await;
        }
    }

    /// Ends the term.
    pub(crate) fn depose(&self, why: &str) {
        if !self.is_over.replace(true) {
            tracing::warn!(term = self.term, "leads no more: {why}");
            self.heard.notify();
            self.news.notify();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// This server is no member from this record on.
    pub(super) fn leaves_with(&self, record: u64) {
        self.leaves_with.set(Some(record));
    }

    /// Whether the record is chosen that removes this server.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.get()
    }

    /// Whether no record is begun any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Waits until the term is over.
    pub(crate) async fn over(&self) {
        loop {
            let heard = self.heard.wait();
            if self.is_over.get() {
                return;
            }
            heard.await;
        }
    }

    /// Ends the term when no majority has been heard for too long.
    pub(crate) async fn watch(&self) {
        while !self.is_over.get() {
            let (now, until) = (self.world.now(), self.lease_until());
            if now >= until {
                self.depose("it does not hear a majority of the members");
                return;
            }
            self.world.sleep(until - now).await;
        }
    }

    /// Sends a record to the others.
    pub(crate) fn propose(&self, record: &EncodedRecord) {
        let position = RecordPosition { number: record.number, term: self.term };
        let writes = record.writes();
        self.line_up(record.number, writes.len());
        self.history.borrow_mut().push(position, writes);
        self.news.notify();
    }

    /// This server has a record.
    pub(crate) fn has_own(&self, number: u64) {
        self.own.set(number);
        self.count();
    }

    /// Waits until a record is chosen.
    ///
    /// # Errors
    /// The term is over: nobody knows whether it will be.
    pub(crate) async fn chosen(&self, number: u64) -> Result<(), Refusal> {
        loop {
            let heard = self.heard.wait();
            if self.chosen.get() >= number {
                return Ok(());
            }
            if self.is_over.get() {
                return Err(Refusal::NotLeader);
            }
            heard.await;
        }
    }

    /// Up to which record all is chosen.
    pub(super) fn chosen_up_to(&self) -> u64 {
        self.chosen.get()
    }

    pub(super) fn count(&self) {
        let progress = self.progress.borrow();
        let last = |id| match id == self.me.id {
            true => self.own.get(),
            false => progress.get(&id).map_or(0, |progress| progress.last),
        };
        let chosen = self.majority_of(last);
        drop(progress);
        if chosen > self.chosen.replace(self.chosen.get().max(chosen)) {
            self.end_race(chosen);
        }
        // Before anybody hears that it is chosen: one that is the only member then may answer at once.
        if self.leaves_with.get().is_some_and(|record| self.chosen.get() >= record) {
            self.is_removed.set(true);
            self.depose("it is not a member any more");
        }
        self.heard.notify();
    }

    /// A call to a server, begun at `begun_us`, was answered.
    pub(super) fn answered(&self, id: u64, begun_us: u64, last: Option<u64>, answer: &Appended) {
        if answer.term > self.term {
            self.depose("there is a newer term");
            return;
        }
        let mut progress = self.progress.borrow_mut();
        let known = progress.entry(id).or_default();
        known.heard_us = known.heard_us.max(Some(begun_us));
        // What it knows to be chosen is what this server has, even if this one does not know it yet.
        known.last = known.last.max(last.unwrap_or(0)).max(answer.chosen);
        drop(progress);
        self.count();
    }

    fn is_meant(&self, id: u64) -> Result<(), Refusal> {
        if id == self.me.id { Ok(()) } else { Err(Refusal::Unknown) }
    }

    /// The answer to a server that wants to lead.
    pub(crate) fn vote(&self, vote: &Vote) -> Result<Voted, Refusal> {
        self.is_meant(vote.to)?;
        // It has asked a majority before, which has not heard this server.
        if !vote.is_poll && vote.term > self.term {
            self.depose("another server stands for election");
        }
        // A change that is not chosen may come to nothing.
        let is_member = self.is_changing.get()
            || self.leaves_with.get().is_some()
            || self.members.borrow().iter().any(|member| member.id == vote.candidate);
        Ok(Voted { term: self.term, is_granted: false, is_member })
    }

    /// The answer to a server that leads.
    pub(crate) fn append(&self, append: &Append) -> Result<Appended, Refusal> {
        self.is_meant(append.to)?;
        if append.term > self.term {
            self.depose("another server leads in a newer term");
            return Err(Refusal::NotLeader);
        }
        let last = RecordPosition { number: self.own.get(), term: self.term };
        Ok(Appended { term: self.term, chosen: self.chosen.get(), last, is_incomplete: false })
    }

    pub(crate) fn report(&self) -> MetaReport {
        let (now, progress) = (self.world.now(), self.progress.borrow());
        let report = |member: &MetaMember, is_joining| {
            let known = progress.get(&member.id).copied().unwrap_or_default();
            let (last, heard_us) = match member.id == self.me.id {
                true => (self.own.get(), Some(0)),
                false => (known.last, known.heard_us.map(|heard| now.saturating_sub(heard))),
            };
            MemberReport { member: member.clone(), last, heard_us, is_joining }
        };
        let members = self.members.borrow();
        let others = self.others.borrow();
        MetaReport {
            id: self.me.id,
            term: self.term,
            last: RecordPosition { number: self.own.get(), term: self.term },
            chosen: self.chosen.get(),
            leader: self.me.id,
            members: members
                .iter()
                .map(|member| report(member, false))
                .chain(others.iter().map(|other| report(other, true)))
                .collect(),
            is_incomplete: false,
        }
    }
}
