//! Clients come, come back, go and are lost.

use types::limits::{LEASE_MARGIN_US, LEASE_US, PLACE_MAX};
use types::messages::Done;
use types::messages::cluster::{ClientJoin, ClientJoined};
use types::{ClientId, InodeId, Refusal, VolumeId};

use crate::keys;
use crate::live::Place;
use crate::ops;
use crate::records::ClientRecord;
use crate::sessions::Session;
use crate::state::{Change, State};

impl State {
    /// A mount begins, or comes back to a service that has restarted; `wall` is in nanoseconds since 1970.
    ///
    /// # Errors
    /// `Unknown`: there is no such volume. `Fenced`: the client's lease has run out; its id is worth nothing any more.
    /// `MountedExclusively`, `Mounted`: it may not be beside the volume's other mounts. `Invalid`: it comes back with
    /// another claim than it was let in with, or describes its place at too great length.
    pub(crate) fn client_join(
        &mut self,
        request: &ClientJoin,
        now: u64,
        wall: u64,
    ) -> Result<ClientJoined, Refusal> {
        let volume = self.cluster.map().volume_named(&request.volume).ok_or(Refusal::Unknown)?.id;
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
        wall: u64,
    ) -> Result<ClientId, Refusal> {
        if request.place.len() > PLACE_MAX {
            return Err(Refusal::Invalid);
        }
        self.sessions.check_exclusive(volume, request.exclusive)?;
        let (exclusive, place) = (request.exclusive, request.place.clone());
        let record = ClientRecord { volume, exclusive, place, since: wall, lost: false };
        let kept = record.clone();
        let change = Change::again(move |txn| {
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
        if session.announced {
            return Ok(client);
        }
        session.announced = true;
        for open in &request.opens {
            // What is gone stays gone: the client will be told that it is stale.
            if self.store.get(&keys::inode(volume, open.inode), |_| ()).is_ok_and(|found| found.0.is_some()) {
                let place = (volume, open.inode);
                self.live.opens.announce(place, client, open.readers, open.writers);
                open.zeroing.map(|number| self.live.cuts.may_zero(place, client, number));
            }
        }
        self.opens_settled();
        Ok(client)
    }

    /// Once every client is back or lost, it is known what is open.
    fn opens_settled(&mut self) {
        if self.live.unsure && self.sessions.all_announced() {
            self.live.unsure = false;
            let orphans: Vec<Place> = self.live.orphans.iter().copied().collect();
            self.drop_orphans(orphans);
        }
    }

    /// A client renews its lease.
    ///
    /// # Errors
    /// `Unknown`: join again.
    pub(crate) fn client_heard(&mut self, client: ClientId, now: u64) -> Result<(), Refusal> {
        let session = self.sessions.get_mut(client).filter(|session| session.announced);
        session.ok_or(Refusal::Unknown)?.heard = now;
        Ok(())
    }

    /// A mount has ended, or is lost and no brick accepts its writes: what it had open is closed, what it told of that is
    /// not stable is stale.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        let Some(session) = self.sessions.remove(client) else { return };
        let stored: Vec<u64> = session.stored_up_to(u64::MAX).collect();
        let closed = self.live.opens.drop_client(client);
        closed.iter().for_each(|place| self.live.cuts.closed(*place, client));
        let change = Change::again(move |txn| {
            ops::settle_growth(txn, client)?;
            stored.iter().for_each(|op| txn.remove(keys::done(client, *op)));
            txn.remove(keys::client(client));
            Ok(Done {})
        });
        self.run_batch(vec![change]);
        self.decided = self.store.last();
        self.drop_orphans(closed);
        self.opens_settled();
    }

    /// Fences the clients whose leases have run out. Returns how many. They are gone, by [`State::client_gone`], when the
    /// bricks have fenced them too.
    pub(crate) fn expire_clients(&mut self, now: u64) -> usize {
        let silent = self.sessions.silent_since(now.saturating_sub(LEASE_US + LEASE_MARGIN_US));
        for client in &silent {
            tracing::info!(%client, "the client's lease has run out");
            let Some(record) = self.sessions.lose(*client) else { continue };
            let key = keys::client(*client);
            let change = Change::again(move |txn| {
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

    /// Removes those of `places` that have no names and that nobody has open.
    pub(crate) fn drop_orphans(&mut self, places: Vec<Place>) {
        let places: Vec<Place> =
            places.into_iter().filter(|place| self.live.orphans.contains(place)).collect();
        // A bounded number at a time: a transaction is held in memory.
        for part in places.chunks(1024) {
            let part = part.to_vec();
            self.run_batch(vec![Change::again(move |txn| ops::drop_orphans(txn, &part))]);
        }
    }
}
