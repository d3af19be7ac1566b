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
use types::messages::replica::{MetaLed, MetaMember, TermEnded};
use types::{Buf, Epoch};

use super::leader::Leading;
use super::{BEAT_US, RETRY_US};
use crate::service::{Ended, Shared};

/// How long the successor may take to get what it lacks, in microseconds. Nobody can change anything meanwhile.
const LEVEL_US: u64 = 500_000;
/// How long the others may take to hear of it, in microseconds.
const TELL_US: u64 = 300_000;

impl Shared {
    /// Lets the member at `address` lead, or any if it is empty.
    pub(crate) async fn hand_over(&self, leading: &Rc<Leading>, address: &str) -> MetaLed {
        let refused = |error: String| MetaLed { error: Some(error) };
        let members = leading.members.borrow().clone();
        if address == leading.me.address {
            return MetaLed { error: None };
        }
        let is_wanted = |member: &&MetaMember| match address {
            "" => member.id != leading.me.id,
            address => member.address == address,
        };
        let heard = |member: &&MetaMember| leading.was_heard_lately(member.id);
        let candidates: Vec<&MetaMember> = members.iter().filter(is_wanted).collect();
        if candidates.is_empty() {
            let known: Vec<_> = members.iter().map(|member| member.address.as_str()).collect();
            return refused(format!("{address} is not a member; these are: {}", known.join(", ")));
        }
        let Some(successor) =
            candidates.into_iter().filter(heard).max_by_key(|member| leading.last_of(member.id))
        else {
            return refused(format!("{address} does not answer the leader"));
        };
        if !leading.end_with(successor, LEVEL_US).await {
            return refused(format!("{} does not have all records yet: again, later", successor.address));
        }
        self.end(Ended::Deposed);
        MetaLed { error: None }
    }
}

impl Leading {
    /// Ends the term, for a successor that gets all records within `us` microseconds. If it does not, the term goes on, and this
    /// returns false.
    async fn end_with(&self, successor: &MetaMember, us: u64) -> bool {
        let until = self.world.now() + us;
        self.is_ending.set(true);
        while !self.is_over() && !self.is_level(successor.id) {
            let left = until.saturating_sub(self.world.now());
            if left == 0 {
                self.is_ending.set(false);
                self.news.notify();
                return false;
            }
            let heard = self.heard.wait();
            if !self.is_level(successor.id) {
                self.world.timeout(left.min(BEAT_US), heard).await;
            }
        }
        if self.is_over() {
            return true;
        }
        self.depose(&format!("{} is to lead", successor.address));
        let members = self.members.borrow().clone();
        let tells = members.iter().filter(|member| member.id != self.me.id).map(async |member| {
            let ended = TermEnded { to: member.id, term: self.term, successor: successor.id };
            let call = self.signs.call_within(TELL_US, &member.address, Epoch(0), &ended, Buf::empty());
            if let Err(error) = call.await {
                tracing::debug!(server = member.address, %error, "does not hear that the term is over");
            }
        });
        // The successor is told with the others: it asks for votes again if one of them has not heard yet.
        join_all(tells).await;
        true
    }

    /// Whether a server has every record.
    fn is_level(&self, id: u64) -> bool {
        let last = self.history.borrow().last().unwrap_or(0).max(self.chosen_up_to());
        self.chosen_up_to() >= last && self.last_of(id) >= last
    }

    /// Where the records of a server end, as far as it has told.
    fn last_of(&self, id: u64) -> u64 {
        self.progress.borrow().get(&id).map_or(0, |progress| progress.last)
    }
}

/// Pause before a successor asks for votes again, in microseconds.
pub(super) const AGAIN_US: u64 = RETRY_US / 2;
/// How often it asks before it waits like any other.
pub(super) const TIMES: u32 = 6;
