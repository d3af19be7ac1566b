//! A follower becomes the leader.

use std::rc::Rc;

use futures_util::future::select_all;
use types::messages::replica::Vote;
use types::{Buf, Epoch};
use world::Notify;

use super::agreement::{Election, TermCore};
use super::copy::Files;
use super::follower::Follower;
use super::hand_over::{AGAIN_US, TIMES};
use super::history::History;
use super::{BEAT_US, CALL_US, ELECTION_SPREAD_US, ELECTION_US};
use crate::MetaError;
use crate::kv::Store;

/// What a server has when it begins to lead.
pub(crate) struct Elected {
    pub(crate) core: TermCore,
    pub(crate) store: Store,
    pub(crate) history: History,
    pub(crate) files: Files,
    pub(crate) work: Notify,
}

impl Follower {
    /// Returns when this server is to lead.
    pub(super) async fn elected(self: &Rc<Follower>) -> Result<Elected, MetaError> {
        loop {
            if !self.core.borrow().may_stand() {
                self.world.sleep(BEAT_US).await;
                continue;
            }
            // A server that does not know yet that the last leader has gone hears of it soon.
            let times = if self.silence().await { TIMES } else { 1 };
            for time in 1..=times {
                if let Some(elected) = self.stand().await {
                    return Ok(elected);
                }
                if time < times {
                    self.world.sleep(AGAIN_US).await;
                }
            }
            // Who has lost waits as long as everybody else.
            self.core.borrow_mut().has_lost(self.world.now());
            self.world.sleep(self.world.random() % ELECTION_SPREAD_US).await;
        }
    }

    /// Waits until no leader has been heard for long enough, or until one has called this server: then it returns true.
    async fn silence(&self) -> bool {
        // There is nobody to wait for.
        if self.core.borrow().is_only_member() {
            return false;
        }
        let patience = ELECTION_US + self.world.random() % ELECTION_SPREAD_US;
        loop {
            let called = self.called.wait();
            if std::mem::take(&mut self.core.borrow_mut().is_called) {
                return true;
            }
            let until = self.core.borrow().heard_us + patience;
            let now = self.world.now();
            if now >= until {
                return false;
            }
            self.world.timeout(until - now, called).await;
        }
    }

    /// Stands for election once.
    async fn stand(self: &Rc<Follower>) -> Option<Elected> {
        let term = self.core.borrow().next_term();
        self.ask(term, true).await?;
        {
            let mut files = self.files.lock().await;
            let may_ask = self.core.borrow().may_ask(term, self.world.now());
            if !may_ask {
                return None;
            }
            self.promise(files.as_mut()?, term, self.id).await.ok()?;
            *self.leader.borrow_mut() = None;
        }
        let asked_us = self.world.now();
        let election = self.ask(term, false).await?;
        // A record of a later leader may be on its way to the disk.
        let mut files = self.files.lock().await;
        if !self.core.borrow().may_lead(term, &election) {
            return None;
        }
        let history = std::mem::replace(&mut *self.history.borrow_mut(), History::new(0));
        let store = self.store.borrow_mut().take()?;
        let (files, work) = (files.take()?, self.work.clone());
        tracing::info!(term, "leads the metadata servers");
        let core = TermCore::new(&self.core.borrow(), &election.voters, asked_us);
        Some(Elected { core, store, history, files, work })
    }

    /// Asks all members for their votes, or only whether they would give them, until they are enough. `None` if they are not.
    async fn ask(&self, term: u64, is_poll: bool) -> Option<Election> {
        let (members, last, mut election) = {
            let core = self.core.borrow();
            (core.records.members().clone(), core.last(), core.election())
        };
        let asked = members.iter().filter(|member| member.id != self.id).map(async |member| {
            let vote = Vote { to: member.id, term, candidate: self.id, last, is_poll };
            let call = self.peers.call_within(CALL_US, &member.address, Epoch(0), &vote, Buf::empty());
            (member, call.await)
        });
        let mut asked: Vec<_> = asked.map(Box::pin).collect();
        // The last answer is that of a server that is away, and comes late.
        while !election.is_won() && !asked.is_empty() {
            let ((member, answer), _, others) = select_all(asked).await;
            asked = others;
            match answer {
                Ok((voted, _)) => {
                    if !voted.is_granted && !voted.is_member {
                        tracing::warn!(server = member.address, "says that this server is not a member");
                    }
                    election.answered(member.id, &voted);
                }
                Err(error) => tracing::debug!(server = member.address, %error, "no vote"),
            }
        }
        self.core.borrow_mut().has_asked(&election);
        election.is_won().then_some(election)
    }
}
