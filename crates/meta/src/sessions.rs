//! The sessions of clients: their leases, and the answers that they may ask for again.
//!
//! A client whose lease has run out is *lost*: the service refuses all its requests, but its files stay open until
//! every brick that is Up has fenced it.

use std::collections::{BTreeMap, BTreeSet};

use types::messages::brick::AskedCounts;
use types::messages::cluster::{Fences, MountInfo};
use types::messages::names::Caller;
use types::{ClientId, Refusal, VolumeId};

use crate::records::ClientRecord;

/// One mount.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its record in the store.
    pub(crate) record: ClientRecord,
    /// When its lease was last renewed.
    pub(crate) heard: u64,
    /// What programs had asked it for by then.
    pub(crate) asked: AskedCounts,
    /// It has joined in this life of the service, so its open files are known.
    pub(crate) reclaim_complete: bool,
    /// Answers that it may ask for again, by the number of the change.
    answers: BTreeMap<u64, Vec<u8>>,
    /// The numbers of answers that are also in the store.
    stored: BTreeSet<u64>,
    /// Changes whose open has been counted.
    opened: BTreeSet<u64>,
    /// Opens and closes in progress.
    running: BTreeSet<u64>,
    /// The client knows the answers of all changes up to here.
    acked: u64,
}

impl Session {
    pub(crate) fn new(record: ClientRecord, heard: u64, reclaim_complete: bool) -> Session {
        Session {
            record,
            heard,
            asked: AskedCounts::default(),
            reclaim_complete,
            answers: BTreeMap::new(),
            stored: BTreeSet::new(),
            opened: BTreeSet::new(),
            running: BTreeSet::new(),
            acked: 0,
        }
    }

    /// Refuses a copy of a change that arrives after its client has had the answer, for example late from a connection
    /// that has ended. If it were done again, it would undo later changes.
    pub(crate) fn check_wanted(&self, op: u64) -> Result<(), Refusal> {
        if op > self.acked { Ok(()) } else { Err(Refusal::Stale) }
    }

    /// The answer to a change that has been made.
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

    /// The numbers of stored answers up to `acked`, which can be removed from the store.
    pub(crate) fn stored_up_to(&self, acked: u64) -> impl Iterator<Item = u64> {
        self.stored.range(..=acked).copied()
    }

    /// The stored answers up to `acked` have been removed from the store.
    pub(crate) fn forget_stored(&mut self, acked: u64) {
        if self.stored.first().is_some_and(|op| *op <= acked) {
            self.stored = self.stored.split_off(&acked.saturating_add(1));
        }
    }

    /// Marks the open of a change as counted. Returns whether it was not counted before.
    pub(crate) fn count_open(&mut self, op: u64) -> bool {
        self.opened.insert(op)
    }

    /// Whether the open of a change is counted.
    pub(crate) fn has_counted_open(&self, op: u64) -> bool {
        self.opened.contains(&op)
    }

    /// Begins a change; false if it is already in progress.
    pub(crate) fn begin(&mut self, op: u64) -> bool {
        self.running.insert(op)
    }

    pub(crate) fn end(&mut self, op: u64) {
        self.running.remove(&op);
    }
}

/// All clients with a lease, and lost ones that some brick may not have fenced yet.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_client: BTreeMap<ClientId, Session>,
    lost: BTreeMap<ClientId, Session>,
    /// All client ids so far are at most this one.
    last: ClientId,
}

impl Sessions {
    pub(crate) fn insert(&mut self, client: ClientId, session: Session) {
        self.count_up_to(client);
        let sessions = if session.record.lost { &mut self.lost } else { &mut self.by_client };
        sessions.insert(client, session);
    }

    /// Counts all ids up to this one as given.
    pub(crate) fn count_up_to(&mut self, client: ClientId) {
        self.last = self.last.max(client);
    }

    /// Forgets a client, lost or not.
    pub(crate) fn remove(&mut self, client: ClientId) -> Option<Session> {
        self.by_client.remove(&client).or_else(|| self.lost.remove(&client))
    }

    /// Marks a client as lost. Returns its new record for the store.
    pub(crate) fn lose(&mut self, client: ClientId) -> Option<ClientRecord> {
        let mut session = self.by_client.remove(&client)?;
        session.record.lost = true;
        let record = session.record.clone();
        self.lost.insert(client, session);
        Some(record)
    }

    /// Lost clients whose writes some brick may still accept.
    pub(crate) fn lost(&self) -> Vec<ClientId> {
        self.lost.keys().copied().collect()
    }

    /// The fences: which clients may write.
    pub(crate) fn fences(&self) -> Fences {
        Fences { upto: self.last, mounted: self.by_client.keys().copied().collect() }
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Session> {
        self.by_client.get(&client)
    }

    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.by_client.get_mut(&client)
    }

    /// Whether a client has a session, lost or not.
    pub(crate) fn has_any(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client) || self.lost.contains_key(&client)
    }

    /// A session, lost or not.
    pub(crate) fn get_any_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.by_client.get_mut(&client).or_else(|| self.lost.get_mut(&client))
    }

    /// All leases count from `now`.
    pub(crate) fn all_heard(&mut self, now: u64) {
        self.by_client.values_mut().chain(self.lost.values_mut()).for_each(|session| session.heard = now);
    }

    /// The session of a request's client, which must have a lease on the volume.
    pub(crate) fn known(&mut self, client: ClientId, volume: VolumeId) -> Result<&mut Session, Refusal> {
        let session = self.by_client.get_mut(&client).ok_or(Refusal::Fenced)?;
        if session.record.volume != volume {
            return Err(Refusal::CrossVolume);
        }
        Ok(session)
    }

    /// The answer to a change that the caller has asked for before.
    pub(crate) fn cached_reply(
        &mut self,
        caller: &Caller,
        volume: VolumeId,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let session = self.known(caller.client, volume)?;
        session.check_wanted(caller.op)?;
        Ok(session.cached_reply(caller.op).cloned())
    }

    /// The number of mounts, with lost ones that some brick may not have fenced yet.
    pub(crate) fn count(&self) -> usize {
        self.by_client.len() + self.lost.len()
    }

    /// Whether a volume is mounted, or may still get writes of a lost mount.
    pub(crate) fn mounted(&self, volume: VolumeId) -> bool {
        self.of_volume(volume).next().is_some()
    }

    fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = &Session> {
        self.by_client
            .values()
            .chain(self.lost.values())
            .filter(move |session| session.record.volume == volume)
    }

    /// Refuses any mount beside an exclusive one, and an exclusive mount beside any other.
    pub(crate) fn check_exclusive(&self, volume: VolumeId, exclusive: bool) -> Result<(), Refusal> {
        if self.of_volume(volume).any(|session| session.record.exclusive) {
            return Err(Refusal::MountedExclusively);
        }
        if exclusive && self.mounted(volume) {
            return Err(Refusal::Mounted);
        }
        Ok(())
    }

    /// Describes all mounts at the time `now` (`wall` in nanoseconds since 1970).
    pub(crate) fn mounts(&self, now: u64, wall: i64) -> Vec<MountInfo> {
        let info = |(client, session): (&ClientId, &Session)| MountInfo {
            client: *client,
            volume: session.record.volume,
            exclusive: session.record.exclusive,
            place: session.record.place.clone(),
            age: u64::try_from(wall.saturating_sub(session.record.since) / 1000).unwrap_or(0),
            silent: now.saturating_sub(session.heard),
            asked: session.asked,
        };
        types::cost::walked(&self.by_client).map(info).collect()
    }

    /// Whether all open files are known: every client has joined in this life of the service, or is lost and fenced by
    /// the bricks.
    pub(crate) fn all_reclaimed(&self) -> bool {
        self.lost.values().chain(self.by_client.values()).all(|session| session.reclaim_complete)
    }

    /// Extends every lease by `us`.
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

    /// A file is truncated, and made longer by writes; then a late copy of the truncation arrives.
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
