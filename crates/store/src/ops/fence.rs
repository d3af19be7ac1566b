//! Fences: bricks refuse the writes of lost clients.
//!
//! Fences are not on disk: a brick that starts, or that was Out, gets them when it joins, before it serves anybody.

use types::limits::{GROUPS_MAX, MOUNTS_MAX};
use types::messages::Done;
use types::messages::brick::Fence;
use types::messages::cluster::Fences;
use types::messages::notes::{Notes, NotesGet};
use types::{ClientId, GroupId, Refusal};

use crate::server::Server;

/// How long a request waits for accepted writes before the sender must ask again, in microseconds.
const WAIT_US: u64 = 500_000;
/// Most times that an answer looks for a client in a group: bounds its turn and its length.
const NOTES_LOOKS: usize = 16 << 10;

impl Server {
    /// Refuses if the client is lost.
    pub(crate) fn check_fence(&self, client: ClientId) -> Result<(), Refusal> {
        let shard = self.shards.get(client.shard());
        if shard.is_some_and(|shard| shard.fences.borrow().is_fenced(client)) {
            return Err(Refusal::Fenced);
        }
        Ok(())
    }

    /// Refuses if the client is lost, or if another shard has given it its id: then nobody would fence it here.
    pub(crate) fn check_writer(&self, client: ClientId, group: GroupId) -> Result<(), Refusal> {
        if client.shard() != group.volume.shard() {
            return Err(Refusal::CrossVolume);
        }
        self.check_fence(client)
    }

    /// Learns which clients are lost. Their accepted writes go on.
    pub(crate) fn learn_fences(&self, fences: &Fences) {
        // A shard that this brick does not know grants it no lease, and tells the fences with the first one.
        if let Some(shard) = self.shards.get(fences.shard()) {
            shard.fences.borrow_mut().merge(fences);
        }
        // Wakes those who wait until a write of such a client is stable: they need not wait any more.
        self.progress.notify();
    }

    /// Fences clients. The answer comes when this brick, as a primary, has no accepted write of theirs left. From
    /// then on no write of theirs can appear.
    ///
    /// Groups of an older epoch need no wait: a take-over settles their open operations before it serves the next
    /// epoch.
    pub(crate) async fn fence(&self, fence: Fence) -> Result<Done, Refusal> {
        self.learn_fences(&fence.fences);
        let give_up = self.world.now() + WAIT_US;
        loop {
            let progress = self.progress.wait();
            let shard = self.shards.get(fence.fences.shard());
            let fences = shard.map_or_else(|| fence.fences.clone(), |shard| shard.fences.borrow().clone());
            if !self.primary.borrow().has_accepted_of(|client| fences.is_fenced(client)) {
                break;
            }
            let left = give_up.saturating_sub(self.world.now());
            if left == 0 {
                return Err(Refusal::Busy);
            }
            self.world.timeout(left, progress).await;
        }
        if fence.everywhere {
            self.forget_clients(&fence.fences);
        }
        Ok(Done {})
    }

    /// What lost clients have noted about the sizes of their files. Their writes are fenced, and a take-over that was still
    /// undecided has ended before an epoch is served: so nothing is added any more.
    pub(crate) fn notes(&self, asked: &NotesGet) -> Result<Notes, Refusal> {
        if asked.groups.len() > GROUPS_MAX as usize || asked.clients.len() > MOUNTS_MAX {
            return Err(Refusal::Malformed);
        }
        if asked.clients.iter().any(|client| self.check_fence(*client).is_ok()) {
            return Err(Refusal::Invalid);
        }
        if self.primary.borrow().has_accepted_of(|client| asked.clients.binary_search(&client).is_ok()) {
            return Err(Refusal::Busy);
        }
        let (mut notes, mut groups) = (Vec::new(), 0);
        for (id, epoch) in &asked.groups {
            self.check_primary(*id, *epoch)?;
            notes.extend(self.primary.borrow().notes_of(*id, *epoch, &asked.clients));
            groups += 1;
            if groups as usize * asked.clients.len() >= NOTES_LOOKS {
                break;
            }
        }
        Ok(Notes { groups, notes })
    }

    /// Forgets the seen writes of fenced clients. No primary accepts a write of theirs again, so no repetition has to
    /// be recognised.
    fn forget_clients(&self, fences: &Fences) {
        self.slot.borrow_mut().forget_clients(|client| fences.is_fenced(client));
        self.primary.borrow_mut().forget_clients(|client| fences.is_fenced(client));
        self.urgent.borrow_mut().retain(|client, _| !fences.is_fenced(*client));
    }
}
