//! What a primary knows of the sizes that clients have noted.

use types::messages::notes::LostNote;
use types::{ClientId, Epoch, GroupId};

use super::PrimaryCore;

impl PrimaryCore {
    /// What these clients have noted in a group, if this brick serves it in this epoch. All live slots have told what they
    /// know when the epoch began, and the primary takes part in every operation since: so it knows all that is decided.
    pub(crate) fn notes_of(&self, id: GroupId, epoch: Epoch, clients: &[ClientId]) -> Vec<LostNote> {
        let Some(group) = self.serving(id, epoch) else { return Vec::new() };
        let known = clients.iter().filter_map(|client| Some((*client, group.clients.0.get(client)?)));
        let notes = known.flat_map(|(client, window)| {
            window.notes.values().map(move |kept| LostNote { client, note: kept.note.clone() })
        });
        notes.collect()
    }
}
