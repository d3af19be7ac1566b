//! Clients come, come back, go and are lost.

use types::limits::{LEASE_MARGIN_US, LEASE_US, MOUNTS_MAX, OPEN_FILES_MAX, PLACE_MAX};
use types::messages::Done;
use types::messages::cluster::{ClientJoin, ClientJoined, OpenInode};
use types::{ClientId, InodeId, Refusal, VolumeId};

use crate::keys;
use crate::ops;
use crate::records::ClientRecord;
use crate::sessions::Session;
use crate::state::{Change, State};
use crate::volatile::VolumeInode;

/// Files, or answers, that are dealt with in one turn: a transaction is held in memory, and one record holds it.
pub(crate) const TURN: usize = 1024;

impl State {
    /// A mount begins, or comes back to a service that has restarted; `wall` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// `Unknown`: there is no such volume. `Fenced`: the client's lease has run out; its id is worth nothing any more.
    /// `MountedExclusively`, `Mounted`: it may not be beside the volume's other mounts. `Invalid`: it comes back with
    /// another claim than it was let in with, or describes its place at too great length. `TooMany`: no further mounts.
    pub(crate) fn client_join(
        &mut self,
        request: &ClientJoin,
        now: u64,
        wall: i64,
    ) -> Result<ClientJoined, Refusal> {
        let volume = self.cluster.map().volume_named(&request.volume).ok_or(Refusal::Unknown)?.id;
        if request.opens.len() > OPEN_FILES_MAX {
            return Err(Refusal::Malformed);
        }
        let client = match request.client {
            Some(client) => self.client_back(client, volume, request, now)?,
            None => self.client_new(volume, request, now, wall)?,
        };
        Ok(ClientJoined { client, volume, root: InodeId::ROOT })
    }

    fn client_new(
        &mut self,
        volume: VolumeId,
        request: &ClientJoin,
        now: u64,
        wall: i64,
    ) -> Result<ClientId, Refusal> {
        if request.place.len() > PLACE_MAX {
            return Err(Refusal::Invalid);
        }
        if self.sessions.count() >= MOUNTS_MAX {
            return Err(Refusal::TooMany);
        }
        self.sessions.check_exclusive(volume, request.exclusive)?;
        let (exclusive, place) = (request.exclusive, request.place.clone());
        let record = ClientRecord { volume, exclusive, place, since: wall, lost: false };
        let kept = record.clone();
        let change = Change::idempotent(move |txn| {
            let client = ClientId(txn.new_id()?);
            txn.put(keys::client(client), &kept);
            Ok(client)
        });
        let answer = self.run_batch(vec![change]).pop().expect("a batch of one has one answer")?;
        self.decided = self.store.last();
        let client: ClientId = types::wire::from_bytes(&answer).map_err(|_| Refusal::MetaFailed)?;
        self.sessions.insert(client, Session::new(record, now, true));
        Ok(client)
    }

    fn client_back(
        &mut self,
        client: ClientId,
        volume: VolumeId,
        request: &ClientJoin,
        now: u64,
    ) -> Result<ClientId, Refusal> {
        let session = self.sessions.known(client, volume)?;
        if session.record.exclusive != request.exclusive {
            return Err(Refusal::Invalid);
        }
        session.heard = now;
        if session.reclaim_complete {
            return Ok(client);
        }
        self.reclaim(client, volume, &request.opens)?;
        self.sessions.known(client, volume)?.reclaim_complete = true;
        Ok(client)
    }

    /// Part of what a client that comes back has open. Nothing is opened by anybody before all clients are back.
    ///
    /// # Errors
    /// `Fenced`: its lease has run out.
    fn reclaim(&mut self, client: ClientId, volume: VolumeId, opens: &[OpenInode]) -> Result<(), Refusal> {
        if self.sessions.known(client, volume)?.reclaim_complete {
            return Ok(());
        }
        for open in opens {
            // What is gone stays gone: the client will be told that it is stale.
            if self.store.get(&keys::inode(volume, open.inode), |_| ()).is_ok_and(|found| found.0.is_some()) {
                let place = (volume, open.inode);
                self.volatile.opens.reclaim(place, client, open.readers, open.writers);
                open.zeroing.map(|number| self.volatile.truncations.may_zero(place, client, number));
            }
        }
        Ok(())
    }

    /// Takes what a client that comes back has open, but for a bounded rest that [`State::client_join`] takes. False when
    /// nothing but that is left: called again and again, each is a turn.
    pub(crate) fn reclaim_opens(&mut self, request: &mut ClientJoin, now: u64) -> Result<bool, Refusal> {
        let (Some(client), true) = (request.client, request.opens.len() > TURN) else { return Ok(false) };
        let volume = self.cluster.map().volume_named(&request.volume).ok_or(Refusal::Unknown)?.id;
        let session = self.sessions.known(client, volume)?;
        if session.reclaim_complete {
            return Ok(false);
        }
        session.heard = now;
        let part = request.opens.split_off(request.opens.len() - TURN);
        self.reclaim(client, volume, &part)?;
        Ok(true)
    }

    /// Once every client is back or lost, it is known what is open. Returns what nobody can reach any more then.
    pub(crate) fn end_grace(&mut self) -> Vec<VolumeInode> {
        if !self.volatile.in_grace || !self.sessions.all_reclaimed() {
            return Vec::new();
        }
        self.volatile.in_grace = false;
        self.volatile.orphans.iter().copied().collect()
    }

    /// A client renews its lease.
    ///
    /// # Errors
    /// `Unknown`: join again.
    pub(crate) fn renew_client_lease(&mut self, client: ClientId, now: u64) -> Result<(), Refusal> {
        let session = self.sessions.get_mut(client).filter(|session| session.reclaim_complete);
        session.ok_or(Refusal::Unknown)?.heard = now;
        Ok(())
    }

    /// A mount has ended, or is lost and no brick accepts its writes: what it had open is closed, what it told of that is
    /// not stable is stale. That is done by [`State::continue_teardown`]. `None` if it is gone already.
    pub(crate) fn begin_client_teardown(&mut self, client: ClientId) -> Option<ClientTeardown> {
        let session = self.sessions.remove(client)?;
        let growth = self.volatile.growth.iter().filter(|(_, growth)| growth.client == client);
        Some(ClientTeardown {
            client,
            growth: growth.map(|(place, _)| *place).collect(),
            answers: session.stored_up_to(u64::MAX).collect(),
            is_closed: false,
            orphans: Vec::new(),
        })
    }

    /// Does the next part of what a client's going brings with it, a turn. False when all is done.
    pub(crate) fn continue_teardown(&mut self, teardown: &mut ClientTeardown) -> bool {
        let client = teardown.client;
        let growth = some_of(&mut teardown.growth);
        let answers = some_of(&mut teardown.answers);
        if !growth.is_empty() || !answers.is_empty() {
            self.run_batch(vec![Change::idempotent(move |txn| {
                ops::settle_growth(txn, client, &growth)?;
                answers.iter().for_each(|op| txn.remove(keys::done(client, *op)));
                Ok(Done {})
            })]);
        } else if !teardown.is_closed {
            self.close_all(teardown);
        } else if !teardown.orphans.is_empty() {
            let orphans = some_of(&mut teardown.orphans);
            self.drop_orphans(&orphans);
        } else {
            return false;
        }
        self.decided = self.store.last();
        true
    }

    /// Closes everything that a client had open, and forgets it.
    fn close_all(&mut self, teardown: &mut ClientTeardown) {
        let client = teardown.client;
        let closed = self.volatile.opens.drop_client(client);
        closed.iter().for_each(|place| self.volatile.truncations.closed(*place, client));
        self.run_batch(vec![Change::idempotent(move |txn| {
            txn.remove(keys::client(client));
            Ok(Done {})
        })]);
        teardown.is_closed = true;
        teardown.orphans = closed.into_iter().filter(|place| self.volatile.orphans.contains(place)).collect();
        teardown.orphans.extend(self.end_grace());
    }

    /// As [`State::begin_client_teardown`] and all that it brings with it, in one turn.
    #[cfg(test)]
    pub(crate) fn tear_down_client(&mut self, client: ClientId) {
        let Some(mut teardown) = self.begin_client_teardown(client) else { return };
        while self.continue_teardown(&mut teardown) {}
    }

    /// Fences the clients whose leases have run out. Returns how many. They go, by [`State::begin_client_teardown`], when the bricks
    /// have fenced them too.
    pub(crate) fn expire_clients(&mut self, now: u64) -> usize {
        let silent = self.sessions.silent_since(now.saturating_sub(LEASE_US + LEASE_MARGIN_US));
        for client in &silent {
            tracing::info!(%client, "the client's lease has run out");
            let Some(record) = self.sessions.lose(*client) else { continue };
            let key = keys::client(*client);
            let change = Change::idempotent(move |txn| {
                txn.put(key, &record);
                Ok(Done {})
            });
            self.run_batch(vec![change]);
        }
        if !silent.is_empty() {
            self.decided = self.store.last();
        }
        silent.len()
    }

    /// Removes those of `places`, a bounded number, that have no names and that nobody has open.
    pub(crate) fn drop_orphans(&mut self, places: &[VolumeInode]) {
        let places: Vec<VolumeInode> =
            places.iter().copied().filter(|place| self.volatile.orphans.contains(place)).collect();
        if !places.is_empty() {
            self.run_batch(vec![Change::idempotent(move |txn| ops::drop_orphans(txn, &places))]);
        }
    }
}

/// A client that goes, and what is left to do about it.
pub(crate) struct ClientTeardown {
    client: ClientId,
    /// Files that have grown, and whose new bytes are not stable.
    growth: Vec<VolumeInode>,
    /// Answers in the store that it could have asked for again.
    answers: Vec<u64>,
    /// What it had open is closed.
    is_closed: bool,
    /// Files without names that nobody has open any more.
    orphans: Vec<VolumeInode>,
}

/// Takes as many out as are dealt with in one turn.
pub(crate) fn some_of<T>(items: &mut Vec<T>) -> Vec<T> {
    items.split_off(items.len().saturating_sub(TURN))
}
