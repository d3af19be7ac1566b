//! The clients: their leases, and the answers that they may ask for again.
//!
//! A client whose lease has run out is *lost*: nothing of it is accepted any more, but what it has open stays so until
//! the bricks refuse its writes as well.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::cluster::{Fences, MountInfo};
use types::messages::names::Caller;
use types::{ClientId, Refusal, VolumeId};

use crate::records::ClientRecord;

/// One mount.
#[derive(Debug)]
pub(crate) struct Session {
    /// What the store has of it.
    pub(crate) record: ClientRecord,
    /// When its lease was last renewed.
    pub(crate) heard: u64,
    /// It has joined in this life of the service; before, what it has open is not known.
    pub(crate) reclaim_complete: bool,
    /// Answers that it may ask for again, by its number for the change.
    answers: BTreeMap<u64, Vec<u8>>,
    /// Those of them that are in the store.
    stored: BTreeSet<u64>,
    /// Changes whose open has been counted.
    opened: BTreeSet<u64>,
    /// Opens and closes that are under way.
    running: BTreeSet<u64>,
    /// The client knows the answers of all changes up to here.
    acked: u64,
}

impl Session {
    pub(crate) fn new(record: ClientRecord, heard: u64, reclaim_complete: bool) -> Session {
        Session {
            record,
            heard,
            reclaim_complete,
            answers: BTreeMap::new(),
            stored: BTreeSet::new(),
            opened: BTreeSet::new(),
            running: BTreeSet::new(),
            acked: 0,
        }
    }

    /// Refuses a copy of a change that comes after its client has had the answer: on a connection that ended before, and
    /// late. Done once more it would undo what came after it.
    pub(crate) fn check_wanted(&self, op: u64) -> Result<(), Refusal> {
        if op > self.acked { Ok(()) } else { Err(Refusal::Stale) }
    }

    /// The answer of a change that has been done.
    pub(crate) fn cached_reply(&self, op: u64) -> Option<&Vec<u8>> {
        self.answers.get(&op)
    }

    /// Keeps an answer until the client knows it.
    pub(crate) fn cache_reply(&mut self, op: u64, answer: Vec<u8>, stored: bool) {
        self.answers.insert(op, answer);
        if stored {
            self.stored.insert(op);
        }
    }

    /// Forgets the answers up to `acked`.
    pub(crate) fn trim(&mut self, acked: u64) {
        self.acked = self.acked.max(acked);
        if self.answers.first_key_value().is_some_and(|(op, _)| *op <= acked) {
            self.answers = self.answers.split_off(&acked.saturating_add(1));
        }
        if self.opened.first().is_some_and(|op| *op <= acked) {
            self.opened = self.opened.split_off(&acked.saturating_add(1));
        }
    }

    /// Stored answers up to `acked`, which can be removed from the store.
    pub(crate) fn stored_up_to(&self, acked: u64) -> impl Iterator<Item = u64> {
        self.stored.range(..=acked).copied()
    }

    /// They have been removed from the store.
    pub(crate) fn forget_stored(&mut self, acked: u64) {
        if self.stored.first().is_some_and(|op| *op <= acked) {
            self.stored = self.stored.split_off(&acked.saturating_add(1));
        }
    }

    /// Whether the open that is part of a change still has to be counted; it counts as such from now on.
    pub(crate) fn count_open(&mut self, op: u64) -> bool {
        self.opened.insert(op)
    }

    /// Takes a change in hand, unless it is already.
    pub(crate) fn begin(&mut self, op: u64) -> bool {
        self.running.insert(op)
    }

    pub(crate) fn end(&mut self, op: u64) {
        self.running.remove(&op);
    }
}

/// All clients that have a lease, and those that were lost since the bricks were last told.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_client: BTreeMap<ClientId, Session>,
    lost: BTreeMap<ClientId, Session>,
    /// The last client that there has been, or a later id that is no client's.
    last: ClientId,
}

impl Sessions {
    pub(crate) fn insert(&mut self, client: ClientId, session: Session) {
        self.count_up_to(client);
        let sessions = if session.record.lost { &mut self.lost } else { &mut self.by_client };
        sessions.insert(client, session);
    }

    /// No later client is known.
    pub(crate) fn count_up_to(&mut self, client: ClientId) {
        self.last = self.last.max(client);
    }

    /// Forgets a client, lost or not.
    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Session> {
        self.by_client.remove(&client).or_else(|| self.lost.remove(&client))
    }

    /// A client's lease has run out. What the store is to have of it.
    pub(crate) fn lose(&mut self, client: ClientId) -> Option<ClientRecord> {
        let mut session = self.by_client.remove(&client)?;
        session.record.lost = true;
        let record = session.record.clone();
        self.lost.insert(client, session);
        Some(record)
    }

    /// Clients that are lost and whose writes some brick may still accept.
    pub(crate) fn lost(&self) -> Vec<ClientId> {
        self.lost.keys().copied().collect()
    }

    /// Who may write, and who no longer may.
    pub(crate) fn fences(&self) -> Fences {
        Fences { upto: self.last, mounted: self.by_client.keys().copied().collect() }
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Session> {
        self.by_client.get(&client)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.by_client.get_mut(&client)
    }

    /// The session of a client that speaks, which must have a lease on the volume.
    pub(crate) fn known(&mut self, client: ClientId, volume: VolumeId) -> Result<&mut Session, Refusal> {
        let session = self.by_client.get_mut(&client).ok_or(Refusal::Fenced)?;
        if session.record.volume != volume {
            return Err(Refusal::CrossVolume);
        }
        Ok(session)
    }

    /// The answer that a caller has already been given.
    pub(crate) fn cached_reply(
        &mut self,
        caller: &Caller,
        volume: VolumeId,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let session = self.known(caller.client, volume)?;
        session.check_wanted(caller.op)?;
        Ok(session.cached_reply(caller.op).cloned())
    }

    /// Mounts, and lost ones that the bricks may not refuse yet.
    pub(crate) fn count(&self) -> usize {
        self.by_client.len() + self.lost.len()
    }

    /// Whether a volume is mounted, or bytes of a lost mount may still come to it.
    pub(crate) fn mounted(&self, volume: VolumeId) -> bool {
        self.of_volume(volume).next().is_some()
    }

    fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = &Session> {
        self.by_client
            .values()
            .chain(self.lost.values())
            .filter(move |session| session.record.volume == volume)
    }

    /// Refuses a new mount of a volume that has an exclusive one, and an exclusive one of a volume that has any.
    pub(crate) fn check_exclusive(&self, volume: VolumeId, exclusive: bool) -> Result<(), Refusal> {
        if self.of_volume(volume).any(|session| session.record.exclusive) {
            return Err(Refusal::MountedExclusively);
        }
        if exclusive && self.mounted(volume) {
            return Err(Refusal::Mounted);
        }
        Ok(())
    }

    /// An account of all mounts, at the time `now` (`wall` in nanoseconds since 1970).
    pub(crate) fn mounts(&self, now: u64, wall: i64) -> Vec<MountInfo> {
        let info = |(client, session): (&ClientId, &Session)| MountInfo {
            client: *client,
            volume: session.record.volume,
            exclusive: session.record.exclusive,
            place: session.record.place.clone(),
            age: u64::try_from(wall.saturating_sub(session.record.since) / 1000).unwrap_or(0),
            silent: now.saturating_sub(session.heard),
        };
        types::cost::walked(&self.by_client).map(info).collect()
    }

    /// Whether every client has joined in this life of the service, so that what is open is known, and the bricks refuse
    /// those that will not.
    pub(crate) fn all_reclaimed(&self) -> bool {
        self.lost.values().chain(self.by_client.values()).all(|session| session.reclaim_complete)
    }

    /// Counts every lease from `us` later than it was heard.
    pub(crate) fn extend_leases(&mut self, us: u64) {
        self.by_client.values_mut().for_each(|session| session.heard += us);
    }

    /// Clients not heard since `then`.
    pub(crate) fn silent_since(&self, then: u64) -> Vec<ClientId> {
        let silent = types::cost::walked(&self.by_client).filter(|(_, session)| session.heard < then);
        silent.map(|(client, _)| *client).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is cut, and written longer again; then a late copy of the cut arrives.
    #[test]
    fn a_copy_of_a_change_that_comes_after_its_answer_is_known_is_refused() {
        let (client, volume) = (ClientId(5), VolumeId(1));
        let record = ClientRecord { volume, exclusive: false, place: String::new(), since: 0, lost: false };
        let mut sessions = Sessions::default();
        sessions.insert(client, Session::new(record, 0, true));
        let copy = |op| Caller { client, op, acked: 0 };
        assert_eq!(sessions.cached_reply(&copy(1), volume), Ok(None));
        let session = sessions.known(client, volume).expect("it has a lease");
        session.cache_reply(1, vec![7], true);
        assert_eq!(sessions.cached_reply(&copy(1), volume), Ok(Some(vec![7])), "its answer was lost");
        sessions.known(client, volume).expect("it has a lease").trim(1);
        assert_eq!(sessions.cached_reply(&copy(1), volume), Err(Refusal::Stale));
        assert_eq!(sessions.cached_reply(&copy(2), volume), Ok(None));
    }
}
