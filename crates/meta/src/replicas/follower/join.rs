//! A server that is to become a member asks for it.

use super::*;

impl Follower {
    /// Asks the servers of `--join` to make this server a member, until it is one.
    pub(in crate::replicas) async fn join(&self) {
        let Some(servers) = self.options.join.clone() else { return std::future::pending().await };
        let me = MetaMember { id: self.id, address: self.options.advertise.clone() };
        let mut said = None;
        loop {
            // One that was removed does not ask again.
            let is_done = {
                let core = self.core.borrow();
                core.promises.was_member || (core.is_surely_member() && !core.is_incomplete)
            };
            if is_done {
                self.world.sleep(crate::replicas::BEAT_US).await;
                continue;
            }
            let leader = self.leader.borrow().as_ref().map(|leader| leader.address.clone());
            for server in servers.split(',').map(str::to_owned).chain(leader) {
                let join = MetaJoin { member: me.clone() };
                let asked = self.peers.call_within(APPEND_US, &server, types::Epoch(0), &join, Buf::empty());
                match asked.await {
                    Ok((MetaJoined { is_member: true }, _)) => break,
                    Ok(_) => said = None,
                    // One of several is the leader, and between two leaders there is none.
                    Err(error @ (CallError::Unreachable | CallError::Refused(Refusal::NotLeader))) => {
                        tracing::debug!(server, %error, "cannot ask to become a member");
                    }
                    Err(error) if said == Some(error) => {}
                    Err(error) => {
                        tracing::warn!(server, %error, "does not make this server a member");
                        said = Some(error);
                    }
                }
            }
            self.world.sleep(5 * crate::replicas::RETRY_US).await;
        }
    }
}
