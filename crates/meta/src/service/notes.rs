//! Asks the bricks what a lost client has noted about the sizes of its files, and stores it.
//!
//! The client is fenced by every brick that is Up, and a primary that serves a group knows all that is decided there. So the
//! primaries of all groups of the volume are asked. Until all have answered, the client's files stay open, and nobody else
//! opens them: a group that cannot serve holds up those few files, and nothing else.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use types::limits::{HEARTBEAT_US, LEASE_US};
use types::messages::notes::{LostNote, NotesGet, SizeNote};
use types::{BrickId, Buf, ClientId, Epoch, GroupId, InodeId, Refusal, VolumeId};

use super::Shared;

/// Pause before primaries are asked again, in microseconds. A group that is not served now may be later.
const RETRY_US: u64 = HEARTBEAT_US / 2;
/// Clients that are asked about together.
const CLIENTS_AT_ONCE: usize = 64;

pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let more = shared.unsettled.wait();
        let unsettled = shared.state.borrow().unsettled_clients();
        if unsettled.is_empty() {
            more.await;
            continue;
        }
        join_all(unsettled.into_iter().map(|(volume, clients)| shared.settle_notes(volume, clients))).await;
        shared.world.timeout(RETRY_US, more).await;
    }
}

/// What clients have noted of each of their files.
type NotesByFile = BTreeMap<(ClientId, InodeId), SizeNote>;

impl Shared {
    /// Stores what lost clients of a volume have noted, and closes their files, where it can be learnt now.
    async fn settle_notes(&self, volume: VolumeId, clients: Vec<ClientId>) {
        for clients in clients.chunks(CLIENTS_AT_ONCE) {
            let Some(mut notes) = self.notes_of(volume, clients).await else {
                tracing::debug!(%volume, ?clients, "what lost clients have noted is not known yet");
                return;
            };
            for client in clients {
                let of_client: Vec<SizeNote> =
                    notes.extract_if(.., |(of, _), _| of == client).map(|(_, note)| note).collect();
                let orphans = self.state.borrow_mut().settle_notes(*client, of_client);
                self.state.borrow_mut().drop_orphans(&orphans);
                tracing::info!(%client, "what the lost client has noted with the bricks is stored");
                self.world.yield_now().await;
            }
            self.settled.notify();
            self.notify_tasks();
            // Bricks may forget them now.
            self.departed.notify();
        }
    }

    /// What these clients have noted in the groups of a volume, of each file the newest. `None` if a group is not served now.
    async fn notes_of(&self, volume: VolumeId, clients: &[ClientId]) -> Option<NotesByFile> {
        let mut by_primary: BTreeMap<BrickId, Vec<(GroupId, Epoch)>> = BTreeMap::new();
        {
            let state = self.state.borrow();
            // A volume that was deleted has no files.
            let Some(info) = state.cluster.map().volume(volume) else { return Some(NotesByFile::new()) };
            for (index, config) in (0..).zip(&info.groups) {
                let primary = config.slots[config.primary(info.code_of(index))?].brick;
                by_primary.entry(primary).or_default().push((GroupId { volume, index }, config.epoch));
            }
        }
        let notes = RefCell::new(NotesByFile::new());
        let asked =
            by_primary.into_iter().map(|(brick, groups)| self.notes_at(brick, groups, clients, &notes));
        let told: Result<Vec<()>, Refusal> = join_all(asked).await.into_iter().collect();
        told.ok().map(|_| notes.into_inner())
    }

    /// Adds what these clients have noted in the groups of a primary.
    async fn notes_at(
        &self,
        brick: BrickId,
        mut groups: Vec<(GroupId, Epoch)>,
        clients: &[ClientId],
        notes: &RefCell<NotesByFile>,
    ) -> Result<(), Refusal> {
        while let Some(&(GroupId { volume, .. }, _)) = groups.first() {
            let address = self.state.borrow().cluster.address_of(brick).map(str::to_owned);
            let address = address.ok_or(Refusal::NotUp)?;
            let ask = NotesGet { clients: clients.to_vec(), groups: groups.clone() };
            let call = self.peers.call_within(LEASE_US / 2, &address, Epoch(0), &ask, Buf::default());
            let (answer, _) = call.await.map_err(|error| {
                tracing::debug!(%brick, %error, "a primary does not tell what was noted");
                Refusal::NotServing
            })?;
            groups.drain(..(answer.groups as usize).clamp(1, groups.len()));
            let noting = &self.state.borrow().volatile.noting;
            for LostNote { client, note } in answer.notes {
                // Each group has a note of each file that had one there, and perhaps of files that were closed since.
                if noting.of((volume, note.inode)) == Some(client) {
                    add_note(&mut notes.borrow_mut(), client, note);
                }
            }
        }
        Ok(())
    }
}

/// All notes of a file after the same truncation are true: the longest counts, and the latest time.
fn add_note(notes: &mut NotesByFile, client: ClientId, note: SizeNote) {
    let known = notes.entry((client, note.inode)).or_insert_with(|| note.clone());
    if known.truncate_seq < note.truncate_seq {
        *known = note;
    } else if known.truncate_seq == note.truncate_seq {
        known.size = known.size.max(note.size);
        known.mtime = known.mtime.max(note.mtime);
    }
}

#[cfg(test)]
mod tests {
    use types::ClientSeq;

    use super::*;

    #[test]
    fn of_a_files_notes_the_longest_since_its_last_truncation_counts() {
        let note = |truncate_seq, size, mtime| SizeNote {
            inode: InodeId(5),
            truncate_seq,
            size,
            mtime,
            told: ClientSeq(0),
        };
        let all = [note(1, 900, 3), note(2, 100, 4), note(2, 70, 6), note(1, 950, 9)];
        for turn in 0..all.len() {
            let mut notes = NotesByFile::new();
            let mut in_turn = all.clone();
            in_turn.rotate_left(turn);
            in_turn.into_iter().for_each(|note| add_note(&mut notes, ClientId(1), note));
            let found: Vec<_> =
                notes.into_values().map(|note| (note.truncate_seq, note.size, note.mtime)).collect();
            assert_eq!(found, [(2, 100, 6)]);
        }
    }
}
