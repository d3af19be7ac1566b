//! A server that leads: who has which records, and how long it may answer. What it decides is in [`TermCore`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use types::Refusal;
use types::messages::replica::*;
use world::{Identity, Notify, Peers, World};

use super::agreement::{Counted, Members, TermCore};
use super::history::History;
use super::thrifty::Thrifty;
use crate::kv::{EncodedRecord, Engine};

/// A term of a leader.
pub(crate) struct Leading {
    pub(super) world: World,
    pub(super) peers: Peers,
    /// Connections for signs of life: one that is late on these breaks none with a record.
    pub(super) signs: Peers,
    pub(super) engine: Engine,
    pub(super) me: MetaMember,
    /// No borrow of it lasts over an await.
    pub(super) core: RefCell<TermCore>,
    /// The servers that get everything to become members.
    pub(super) others: RefCell<Vec<MetaMember>>,
    /// The servers that have just been removed, and should hear of it.
    pub(super) parting: RefCell<Vec<MetaMember>>,
    pub(super) history: RefCell<History>,
    pub(super) thrifty: RefCell<Thrifty>,
    /// Notified when there is a record to send.
    pub(super) news: Notify,
    /// Notified when a server has answered, and when the term is over.
    pub(super) heard: Notify,
}

impl Leading {
    /// Of a server that was elected.
    pub(crate) fn new(
        world: &World,
        identity: &Identity,
        engine: Engine,
        me: MetaMember,
        core: TermCore,
        history: History,
    ) -> Rc<Leading> {
        let mut history = history;
        // The last record gets this term, and is sent then.
        history.truncate(core.chosen);
        Rc::new(Leading {
            world: world.clone(),
            peers: Peers::new(world.clone(), identity.clone()),
            signs: Peers::new(world.clone(), identity.clone()),
            engine,
            me,
            core: RefCell::new(core),
            others: RefCell::default(),
            parting: RefCell::default(),
            history: RefCell::new(history),
            thrifty: RefCell::default(),
            news: Notify::new(),
            heard: Notify::new(),
        })
    }

    pub(super) fn term(&self) -> u64 {
        self.core.borrow().term
    }

    pub(super) fn members(&self) -> Members {
        Arc::clone(&self.core.borrow().members)
    }

    /// The ids of the other members.
    pub(super) fn other_members(&self) -> impl Iterator<Item = u64> {
        let ids: Vec<u64> = self.members().iter().map(|member| member.id).collect();
        ids.into_iter().filter(|id| *id != self.me.id)
    }

    /// Addresses of the members.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.members().iter().map(|member| member.address.clone()).collect()
    }

    /// Whether a server has answered as one that runs would.
    pub(super) fn was_heard_lately(&self, id: u64) -> bool {
        self.core.borrow().was_heard_lately(id, self.world.now())
    }

    /// Whether this server may answer now.
    pub(crate) fn may_answer(&self) -> bool {
        self.core.borrow().may_answer(self.world.now())
    }

    /// Waits until this server may answer.
    ///
    /// # Errors
    /// It does not lead any more.
    pub(crate) async fn until_it_may_answer(&self) -> Result<(), Refusal> {
        loop {
            let heard = self.heard.wait();
            if self.is_over() {
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
        let is_news = self.core.borrow_mut().depose();
        if is_news {
            tracing::warn!(term = self.term(), "leads no more: {why}");
            self.heard.notify();
            self.news.notify();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.core.borrow().is_over
    }

    /// Whether the record is chosen that removes this server.
    pub(crate) fn is_removed(&self) -> bool {
        self.core.borrow().is_removed
    }

    /// Whether a record may be begun.
    pub(crate) fn may_begin(&self) -> bool {
        self.core.borrow().may_begin()
    }

    /// Waits until the term is over.
    pub(crate) async fn over(&self) {
        loop {
            let heard = self.heard.wait();
            if self.is_over() {
                return;
            }
            heard.await;
        }
    }

    /// Ends the term when no majority has been heard for too long.
    pub(crate) async fn watch(&self) {
        while !self.is_over() {
            let now = self.world.now();
            let until = self.core.borrow().lease_until(now);
            if now >= until {
                self.depose("it does not hear a majority of the members");
                return;
            }
            self.world.sleep(until - now).await;
        }
    }

    /// Sends a record to the others.
    pub(crate) fn propose(&self, record: &EncodedRecord) {
        let position = self.core.borrow_mut().propose(record.number);
        let writes = record.writes();
        self.line_up(record.number, writes.len());
        self.history.borrow_mut().push(position, writes);
        self.news.notify();
    }

    /// This server has a record.
    pub(crate) fn has_own(&self, number: u64) {
        self.core.borrow_mut().own = number;
        self.count();
    }

    /// Waits until a record is chosen.
    ///
    /// # Errors
    /// The term is over: nobody knows whether it will be.
    pub(crate) async fn chosen(&self, number: u64) -> Result<(), Refusal> {
        loop {
            let heard = self.heard.wait();
            if self.chosen_up_to() >= number {
                return Ok(());
            }
            if self.is_over() {
                return Err(Refusal::NotLeader);
            }
            heard.await;
        }
    }

    /// Up to which record all is chosen.
    pub(super) fn chosen_up_to(&self) -> u64 {
        self.core.borrow().chosen
    }

    pub(super) fn count(&self) {
        let counted = self.core.borrow_mut().count();
        if let Counted::Chosen(chosen) = counted {
            self.end_race(chosen);
        }
        if self.is_removed() {
            self.depose("it is not a member any more");
        }
        self.heard.notify();
    }

    /// A call to a server, begun at `begun_us`, was answered; `last`: which records it has acknowledged.
    pub(super) fn answered(&self, id: u64, begun_us: u64, last: Option<u64>, answer: &Appended) {
        let goes_on = self.core.borrow_mut().answered(id, begun_us, last, answer);
        match goes_on {
            true => self.count(),
            false => self.depose("there is a newer term"),
        }
    }

    fn is_meant(&self, id: u64) -> Result<(), Refusal> {
        if id == self.me.id { Ok(()) } else { Err(Refusal::Unknown) }
    }

    /// The answer to a server that wants to lead.
    pub(crate) fn vote(&self, vote: &Vote) -> Result<Voted, Refusal> {
        self.is_meant(vote.to)?;
        let (voted, ends) = self.core.borrow().vote(vote);
        if ends {
            self.depose("another server stands for election");
        }
        Ok(voted)
    }

    /// The answer to a server that leads.
    pub(crate) fn append(&self, append: &Append) -> Result<Appended, Refusal> {
        self.is_meant(append.to)?;
        let answer = self.core.borrow().append(append);
        answer.ok_or_else(|| {
            self.depose("another server leads in a newer term");
            Refusal::NotLeader
        })
    }

    pub(crate) fn report(&self) -> MetaReport {
        let (now, core) = (self.world.now(), self.core.borrow());
        let report = |member: &MetaMember, is_joining| {
            let (last, heard_us) = match member.id == self.me.id {
                true => (core.own, Some(0)),
                false => {
                    let heard = core.heard_us(member.id);
                    (core.last_of(member.id), heard.map(|heard| now.saturating_sub(heard)))
                }
            };
            MemberReport { member: member.clone(), last, heard_us, is_joining }
        };
        let others = self.others.borrow();
        let members = core.members.iter().map(|member| report(member, false));
        MetaReport {
            id: self.me.id,
            term: core.term,
            last: RecordPosition { number: core.own, term: core.term },
            chosen: core.chosen,
            leader: self.me.id,
            members: members.chain(others.iter().map(|other| report(other, true))).collect(),
            is_incomplete: false,
        }
    }
}
