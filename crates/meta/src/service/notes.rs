//! Asks the bricks what a lost client has noted about the sizes of its files, and stores it.
//!
//! The client is fenced by every brick that is Up, and a primary that serves a group knows all that is decided there. So the
//! primaries of all groups of the volume are asked. Until all have answered, the client's files stay open, and nobody else
//! opens them: a group that cannot serve holds up those few files, and nothing else.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, LEASE_US, MOUNTS_MAX};
use types::messages::notes::{LostNote, NotesGet};
use types::{BrickId, Buf, ClientId, Epoch, GroupId, Refusal, VolumeId};

use super::Shared;
use crate::clients::some_of;

/// Pause before primaries are asked again, in microseconds. A group that is not served now may be later.
const RETRY_US: u64 = HEARTBEAT_US / 2;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let more = shared.ghosts.wait();
        let ghosts = shared.state.borrow().ghosts();
        if ghosts.is_empty() {
            more.await;
            continue;
        }
        join_all(ghosts.into_iter().map(|(volume, clients)| shared.settle_notes(volume, clients))).await;
        shared.world.timeout(RETRY_US, more).await;
    }
}

impl Shared {
    /// Stores what lost clients of a volume have noted, and closes their files, where it can be learnt now.
    async fn settle_notes(&self, volume: VolumeId, clients: Vec<ClientId>) {
        for clients in clients.chunks(MOUNTS_MAX) {
            let Some(notes) = self.notes_of(volume, clients).await else {
                tracing::debug!(%volume, ?clients, "what lost clients have noted is not known yet");
                return;
            };
            let purges = self.state.borrow().volatile.purges;
            for client in clients {
                let of_client = notes.iter().filter(|lost| lost.client == *client);
                let of_client = of_client.map(|lost| lost.note.clone()).collect();
                let mut orphans = self.state.borrow_mut().settle_notes(*client, of_client);
                while !orphans.is_empty() {
                    let some = some_of(&mut orphans);
                    self.state.borrow_mut().drop_orphans(&some);
                    self.world.yield_now().await;
                }
                tracing::info!(%client, "what the lost client has noted with the bricks is stored");
            }
            self.settled.notify();
            self.notify_tasks(purges);
            // Bricks may forget them now.
            self.departed.notify();
        }
    }

    /// What these clients have noted in the groups of a volume. `None` if a group is not served now.
    async fn notes_of(&self, volume: VolumeId, clients: &[ClientId]) -> Option<Vec<LostNote>> {
        let mut by_primary: BTreeMap<BrickId, Vec<(GroupId, Epoch)>> = BTreeMap::new();
        {
            let state = self.state.borrow();
            // A volume that was deleted has no files.
            let Some(info) = state.cluster.map().volume(volume) else { return Some(Vec::new()) };
            for (index, config) in (0..).zip(&info.groups) {
                let primary = config.slots[config.primary(info.code_of(index))?].brick;
                by_primary.entry(primary).or_default().push((GroupId { volume, index }, config.epoch));
            }
        }
        let asked = by_primary.into_iter().map(|(brick, groups)| self.notes_at(brick, groups, clients));
        let notes: Result<Vec<_>, Refusal> = join_all(asked).await.into_iter().collect();
        notes.ok().map(|notes| notes.into_iter().flatten().collect())
    }

    /// What these clients have noted in the groups of a primary.
    async fn notes_at(
        &self,
        brick: BrickId,
        mut groups: Vec<(GroupId, Epoch)>,
        clients: &[ClientId],
    ) -> Result<Vec<LostNote>, Refusal> {
        let mut notes = Vec::new();
        while !groups.is_empty() {
            let address = self.state.borrow().cluster.address_of(brick).map(str::to_owned);
            let address = address.ok_or(Refusal::NotUp)?;
            let ask = NotesGet { clients: clients.to_vec(), groups: groups.clone() };
            let call = self.peers.call_within(LEASE_US / 2, &address, Epoch(0), &ask, Buf::default());
            let (answer, _) = call.await.map_err(|error| {
                tracing::debug!(%brick, %error, "a primary does not tell what was noted");
                Refusal::NotServing
            })?;
            let told = (answer.groups as usize).clamp(1, groups.len());
            groups.drain(..told);
            notes.extend(answer.notes);
        }
        Ok(notes)
    }
}
