//! Servers become members, and stop being members, one at a time.

use std::rc::Rc;

use types::Refusal;
use types::messages::replica::{MetaJoined, MetaMember, MetaRemoved, MetaReport};

use super::copy::{last_of, members_of, members_value, renewed_ballot};
use super::leader::Leading;
use crate::cluster::is_any;
use crate::keys;
use crate::kv::Writes;
use crate::service::{Ended, Shared};

/// Most members. More would make every change slower and nothing safer.
const MEMBERS_MAX: usize = 7;
/// How long a removed server still gets records, in microseconds: it should hear that it was removed.
const PARTING_US: u64 = 2_000_000;

impl Shared {
    /// What a server that is alone says of itself.
    pub(crate) fn report_alone(&self) -> MetaReport {
        let (last, chosen) = {
            let state = self.state.borrow();
            (last_of(&state.store), state.store.chosen())
        };
        MetaReport { id: 0, term: 0, last, chosen, leader: 0, members: Vec::new(), is_incomplete: false }
    }

    /// Another server wants to join this one, which is alone: it becomes the first member. The other one asks again.
    pub(crate) async fn stop_being_alone(&self) -> Result<MetaJoined, Refusal> {
        let Some(address) = self.alone.clone() else { return Err(Refusal::Unsupported) };
        if is_any(&address) {
            tracing::warn!(
                "another metadata server wants to join, and would not reach this one at {address}: --advertise"
            );
            return Err(Refusal::Invalid);
        }
        let _one = self.ends_alone.lock().await;
        if !members_of(&self.state.borrow().store).is_empty() {
            return Ok(MetaJoined { is_member: false });
        }
        let engine = self.state.borrow().store.engine().clone();
        let ballot = renewed_ballot(&self.world, &engine).await.map_err(|error| {
            tracing::error!(%error, "no other metadata server can be beside this one");
            Refusal::MetaFailed
        })?;
        let me = MetaMember { id: ballot.promises.id, address };
        drop(ballot);
        tracing::info!(address = me.address, "is to have other metadata servers beside it");
        let writes = Writes::from([(keys::members(), Some(members_value(&[me])))]);
        if !self.state.borrow_mut().commit(writes) {
            return Err(Refusal::MetaFailed);
        }
        self.all_durable().await?;
        self.end(Ended::Deposed);
        Ok(MetaJoined { is_member: false })
    }

    /// A server wants to become a member. It asks again until it is one.
    pub(crate) async fn meta_join(
        &self,
        leading: &Rc<Leading>,
        member: MetaMember,
    ) -> Result<MetaJoined, Refusal> {
        let members = leading.members().to_vec();
        if members.contains(&member) {
            return Ok(MetaJoined { is_member: true });
        }
        if leading.parting.borrow().contains(&member) {
            return Err(Refusal::Invalid);
        }
        if member.id == 0 || !member.address.contains(':') || member.address == leading.me.address {
            return Err(Refusal::Invalid);
        }
        // The server that was there has lost its store, and with it what it had promised.
        if let Some(old) = members.iter().find(|other| other.address == member.address) {
            // Or its address was given by mistake.
            if leading.was_heard_lately(old.id) {
                return Err(Refusal::Exists);
            }
            let rest = members.into_iter().filter(|other| other.address != member.address).collect();
            self.change_members(leading, rest).await?;
            return Ok(MetaJoined { is_member: false });
        }
        if members.len() >= MEMBERS_MAX {
            return Err(Refusal::TooMany);
        }
        if !leading.others.borrow().contains(&member) {
            let mut others = leading.others.borrow_mut();
            others.retain(|other| other.address != member.address && other.id != member.id);
            if others.len() >= MEMBERS_MAX {
                return Err(Refusal::TooMany);
            }
            others.push(member.clone());
            drop(others);
            leading.feed_one(member);
            return Ok(MetaJoined { is_member: false });
        }
        let has = leading.core.borrow().last_of(member.id);
        // Records go on while it is asked, so it may lack the newest.
        if has == 0 || has + 1 < leading.chosen_up_to() {
            return Ok(MetaJoined { is_member: false });
        }
        let all = members.into_iter().chain([member.clone()]).collect();
        self.change_members(leading, all).await?;
        leading.others.borrow_mut().retain(|other| other.id != member.id);
        Ok(MetaJoined { is_member: true })
    }

    /// A member is to be one no more.
    pub(crate) async fn meta_remove(
        &self,
        leading: &Rc<Leading>,
        address: &str,
    ) -> Result<MetaRemoved, Refusal> {
        let refused = |error: String| Ok(MetaRemoved { error: Some(error) });
        let members = leading.members().to_vec();
        let (gone, rest): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|member| member.address == address);
        let [gone] = gone.as_slice() else {
            let known: Vec<_> = rest.iter().map(|member| member.address.as_str()).collect();
            return refused(format!("{address} is not a member; these are: {}", known.join(", ")));
        };
        if rest.is_empty() {
            return refused(format!("{address} is the only member: the cluster needs it"));
        }
        let silent = leading.core.borrow().silent_among(&rest, self.world.now());
        if let Some(silent) = silent {
            let silent = silent.join(", ");
            return refused(format!(
                "without {address} too few members answer: first start, or remove, {silent}"
            ));
        }
        if gone.id != leading.me.id {
            leading.parting.borrow_mut().push(gone.clone());
        }
        let changed = self.change_members(leading, rest).await;
        if gone.id != leading.me.id {
            let (leading, id) = (Rc::clone(leading), gone.id);
            self.world.clone().spawn("a parting", async move {
                leading.world.sleep(PARTING_US).await;
                leading.parting.borrow_mut().retain(|other| other.id != id);
            });
        }
        changed.map(|()| MetaRemoved { error: None })
    }

    /// Makes these the members, by a record that a majority of them has.
    async fn change_members(&self, leading: &Leading, members: Vec<MetaMember>) -> Result<(), Refusal> {
        if !leading.core.borrow_mut().begin_change() {
            return Err(Refusal::Busy);
        }
        let changed = async {
            // The change before must be chosen, and so must something of this term.
            self.all_durable().await?;
            let writes = Writes::from([(keys::members(), Some(members_value(&members)))]);
            let known: Vec<_> = members.iter().map(|member| member.address.clone()).collect();
            tracing::info!(members = known.join(", "), "the members of the metadata servers change");
            if !leading.core.borrow_mut().change(members.into()) {
                return Err(Refusal::Busy);
            }
            leading.line_up_anew();
            if !self.state.borrow_mut().commit(writes) {
                return Err(Refusal::MetaFailed);
            }
            leading.core.borrow_mut().changes_with(self.state.borrow().store.last());
            self.all_durable().await
        };
        let changed = changed.await;
        leading.core.borrow_mut().end_change();
        changed
    }
}
