//! A follower becomes the leader.

use std::rc::Rc;

use futures_util::future::select_all;
use types::messages::replica::{MetaMember, Vote, Voted};
use types::{Buf, Epoch};
use world::Notify;

use super::copy::Files;
use super::follower::Follower;
use super::hand_over::{AGAIN_US, TIMES};
use super::history::History;
use super::{BEAT_US, CALL_US, ELECTION_SPREAD_US, ELECTION_US};
use crate::MetaError;
use crate::kv::Store;

/// What a server has when it begins to lead.
pub(crate) struct Elected {
    pub(crate) id: u64,
    pub(crate) term: u64,
    pub(crate) store: Store,
    pub(crate) history: History,
    pub(crate) files: Files,
    pub(crate) work: Notify,
    /// Who has voted for it, and when it had asked.
    pub(crate) voters: Vec<u64>,
    pub(crate) asked_us: u64,
}

/// How many are a majority.
pub(super) fn majority(members: &[MetaMember]) -> usize {
    members.len() / 2 + 1
}

impl Follower {
    /// Returns when this server is to lead.
    pub(super) async fn elected(self: &Rc<Follower>) -> Result<Elected, MetaError> {
        loop {
            if !self.may_stand() {
                self.world.sleep(BEAT_US).await;
                continue;
            }
            // Those who do not know yet that the last leader has gone hear of it soon.
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
            self.heard_us.set(self.heard_us.get().max(self.world.now().saturating_sub(ELECTION_US)));
            self.world.sleep(self.world.random() % ELECTION_SPREAD_US).await;
        }
    }

    /// Whether it may become a candidate. One that a record removes may have to lead until that record is chosen.
    fn may_stand(&self) -> bool {
        !self.is_incomplete.get() && (self.is_member(self.id) || self.is_surely_member())
    }

    /// Whether there is nobody else who could lead. A record that makes it so counts once it is chosen: until then the leader that
    /// has sent it may still answer.
    fn is_only_member(&self) -> bool {
        let is_me = |members: &[MetaMember]| matches!(members, [only] if only.id == self.id);
        is_me(&self.members()) && is_me(&self.chosen_members())
    }

    /// Waits until no leader has been heard for long enough, or until one has called this server: then it returns true.
    async fn silence(&self) -> bool {
        // There is nobody to wait for.
        if self.is_only_member() {
            return false;
        }
        let patience = ELECTION_US + self.world.random() % ELECTION_SPREAD_US;
        loop {
            let called = self.called.wait();
            if self.is_called.replace(false) {
                return true;
            }
            let until = self.heard_us.get() + patience;
            let now = self.world.now();
            if now >= until {
                return false;
            }
            self.world.timeout(until - now, called).await;
        }
    }

    /// Stands for election once.
    async fn stand(self: &Rc<Follower>) -> Option<Elected> {
        let term = self.term.get().max(self.seen_term.get()) + 1;
        self.votes(term, true).await?;
        {
            let mut files = self.files.lock().await;
            // Much may have happened while the others were asked.
            let hears_a_leader =
                self.world.now() < self.heard_us.get() + ELECTION_US && !self.is_only_member();
            if self.term.get() >= term || hears_a_leader || !self.may_stand() {
                return None;
            }
            self.promise(files.as_mut()?, term, self.id).await.ok()?;
            *self.leader.borrow_mut() = None;
        }
        let asked_us = self.world.now();
        let voters = self.votes(term, false).await?;
        // A record of a later leader may be on its way to the disk.
        let mut files = self.files.lock().await;
        if self.term.get() != term || !self.may_stand() {
            return None;
        }
        let history = std::mem::replace(&mut *self.history.borrow_mut(), History::new(0));
        let store = self.store.borrow_mut().take()?;
        let (files, work) = (files.take()?, self.work.clone());
        tracing::info!(term, "leads the metadata servers");
        Some(Elected { id: self.id, term, store, history, files, work, voters, asked_us })
    }

    /// Asks all members. Returns who grants the vote, if they are a majority.
    async fn votes(&self, term: u64, is_poll: bool) -> Option<Vec<u64>> {
        let members = self.members();
        let last = self.last();
        let asked = members.iter().filter(|member| member.id != self.id).map(async |member| {
            let vote = Vote { to: member.id, term, candidate: self.id, last, is_poll };
            let call = self.peers.call_within(CALL_US, &member.address, Epoch(0), &vote, Buf::empty());
            (member, call.await)
        });
        let mut asked: Vec<_> = asked.map(Box::pin).collect();
        let mut voters: Vec<u64> =
            members.iter().map(|member| member.id).filter(|id| *id == self.id).collect();
        let mut strangers = 0;
        // The last answer is that of a server that is away, and comes late.
        while voters.len() < majority(&members) && !asked.is_empty() {
            let ((member, answer), _, others) = select_all(asked).await;
            asked = others;
            match answer {
                Ok((Voted { is_granted: true, .. }, _)) => voters.push(member.id),
                Ok((Voted { term, is_member, .. }, _)) => {
                    self.seen_term.set(self.seen_term.get().max(term));
                    if !is_member {
                        tracing::warn!(server = member.address, "says that this server is not a member");
                        strangers += 1;
                    }
                }
                Err(error) => tracing::debug!(server = member.address, %error, "no vote"),
            }
        }
        // One of them has the record that made this server a member, and so has one that removed it.
        if strangers >= majority(&members) && self.was_member.get() {
            self.is_disowned.set(true);
        }
        (voters.len() >= majority(&members)).then_some(voters)
    }
}
