//! A leader lets another server lead: on request, or because its process is to end. Without this, the others would wait until they
//! have not heard it for [`ELECTION_US`](super::ELECTION_US).
//!
//! ```text
//! leader                                       successor                other followers
//!   | begins no record; the last is chosen        |                          |
//!   |--- Append: the successor has it too ------->|                          |
//!   | answers nobody any more                     |                          |
//!   |--- TermEnded ------------------------------>|------------------------->| would vote now
//!   |                                             |--- Vote, in a new term ->|
//! ```

use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::RECORDS_MAX;
use types::messages::replica::{MetaLed, MetaMember, TermEnded};
use types::{Buf, Epoch};

use super::leader::Leading;
use super::{BEAT_US, RETRY_US};
use crate::service::Shared;

/// How long the successor may take to get what it lacks, in microseconds. Nobody can change anything meanwhile.
const LEVEL_US: u64 = 1_000_000;
/// How long the others may take to hear of it, in microseconds.
const TELL_US: u64 = 300_000;
/// Time for the answer to leave before the term ends, in microseconds.
const ANSWER_US: u64 = 20_000;
/// Pause before a successor asks for votes again, in microseconds.
pub(super) const AGAIN_US: u64 = RETRY_US / 2;
/// How often it asks before it waits like any other.
pub(super) const TIMES: u32 = 6;

impl Shared {
    /// The member at `address` is to lead. The answer comes before it does: this server could not give it afterwards.
    pub(crate) fn lead(&self, leading: &Rc<Leading>, address: &str) -> MetaLed {
        match leading.successor(address) {
            Err(error) => MetaLed { error: Some(error) },
            Ok(None) => MetaLed { error: None },
            Ok(Some(successor)) => {
                let leading = Rc::clone(leading);
                self.world.clone().spawn("hand over", async move {
                    leading.world.sleep(ANSWER_US).await;
                    if let Err(error) = leading.end_with(&successor).await {
                        tracing::warn!(error, "goes on leading");
                    }
                });
                MetaLed { error: None }
            }
        }
    }
}

impl Leading {
    /// Lets any other member lead.
    ///
    /// # Errors
    /// Why none can. Then the term goes on.
    pub(crate) async fn hand_over(&self) -> Result<(), String> {
        match self.successor("")? {
            Some(successor) => self.end_with(&successor).await,
            None => Ok(()),
        }
    }

    /// Addresses of the servers that could lead now. One that is far behind could not: changes would wait for it in vain.
    pub(crate) fn successors(&self) -> Vec<String> {
        let core = self.core.borrow();
        if core.is_changing {
            return Vec::new();
        }
        let is_level = |id| core.last_of(id) + RECORDS_MAX as u64 >= core.chosen;
        let could = |id| id != self.me.id && self.was_heard_lately(id) && is_level(id);
        let others = core.members.iter().filter(|member| could(member.id));
        others.map(|member| member.address.clone()).collect()
    }

    /// The member at `address`, or the one that has most if it is empty; `None` if that one leads.
    fn successor(&self, address: &str) -> Result<Option<MetaMember>, String> {
        let core = self.core.borrow();
        if core.is_changing && !core.is_over {
            return Err("the members are changing: again, later".to_owned());
        }
        if address == self.me.address {
            return Ok(None);
        }
        let members = &core.members;
        let is_wanted = |member: &&MetaMember| match address {
            "" => member.id != self.me.id,
            address => member.address == address,
        };
        let candidates: Vec<&MetaMember> = members.iter().filter(is_wanted).collect();
        if candidates.is_empty() {
            let known: Vec<_> = members.iter().map(|member| member.address.as_str()).collect();
            return Err(format!("{address} is not a member; these are: {}", known.join(", ")));
        }
        let heard = |member: &&MetaMember| self.was_heard_lately(member.id);
        let most = candidates.into_iter().filter(heard).max_by_key(|member| core.last_of(member.id));
        match (most, address) {
            (Some(successor), _) => Ok(Some(successor.clone())),
            (None, "") => Err("no other member answers the leader".to_owned()),
            (None, address) => Err(format!("{address} does not answer the leader")),
        }
    }

    /// Ends the term, once the successor has all records.
    ///
    /// # Errors
    /// It does not get them soon enough. Then the term goes on.
    async fn end_with(&self, successor: &MetaMember) -> Result<(), String> {
        let since = self.world.now();
        let until = since + LEVEL_US;
        self.core.borrow_mut().is_ending = true;
        while !self.is_over() {
            let heard = self.heard.wait();
            if self.core.borrow().is_level(successor.id, since) {
                break;
            }
            let left = until.saturating_sub(self.world.now());
            if left == 0 {
                self.core.borrow_mut().is_ending = false;
                return Err(format!("{} does not have all records yet", successor.address));
            }
            self.world.timeout(left.min(BEAT_US), heard).await;
        }
        if self.is_over() {
            return Ok(());
        }
        self.depose(&format!("{} is to lead", successor.address));
        self.tell_that_it_is_over(successor.id).await;
        Ok(())
    }

    /// The term is over because this server is no member any more: another one should lead at once.
    pub(crate) async fn leave(&self) {
        let successor = self.successor("").ok().flatten();
        self.tell_that_it_is_over(successor.map_or(0, |successor| successor.id)).await;
    }

    /// The successor is told with the others: it asks for votes again if one of them has not heard yet.
    async fn tell_that_it_is_over(&self, successor: u64) {
        let members = self.members();
        let tells = members.iter().filter(|member| member.id != self.me.id).map(async |member| {
            let ended = TermEnded { to: member.id, term: self.term(), successor };
            let call = self.signs.call_within(TELL_US, &member.address, Epoch(0), &ended, Buf::empty());
            if let Err(error) = call.await {
                tracing::debug!(server = member.address, %error, "does not hear that the term is over");
            }
        });
        join_all(tells).await;
    }
}
