//! How clients join, rejoin after a restart of the service, leave, and are lost.

use std::collections::BTreeMap;

use types::limits::{FILE_SIZE_MAX, LEASE_MARGIN_US, LEASE_US, MOUNTS_MAX, OPEN_FILES_MAX, PLACE_MAX};
use types::messages::Done;
use types::messages::brick::AskedCounts;
use types::messages::cluster::{ClientJoin, ClientJoined, OpenInode};
use types::messages::notes::SizeNote;
use types::{ClientId, InodeId, Refusal, VolumeId};

use crate::keys;
use crate::kv::Txn;
use crate::ops;
use crate::records::{ClientRecord, Inode, from_value};
use crate::sessions::Session;
use crate::state::{Change, State};
use crate::volatile::{Effect, Growth, VolatileState};
use crate::volume_inode::VolumeInode;

/// Most files or answers in one turn: their transaction must fit into memory and into one record of the journal.
pub(crate) const TURN: usize = 1024;

impl State {
    /// Lets a new mount join, or an old one rejoin after the service has restarted; `wall` is in nanoseconds since
    /// 1970.
    ///
    /// # Errors
    /// `Unknown`: there is no such volume. `Fenced`: the client's lease has run out, and its id is no longer valid.
    /// `MountedExclusively`, `Mounted`: the volume's other mounts forbid this one. `Invalid`: a client rejoins with a
    /// different `exclusive` flag, or the text of its place is too long. `TooMany`: there are too many mounts.
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
        self.volatile.noting.has_told(client);
        // Those that it closed just before the service has restarted.
        let places: Vec<VolumeInode> = self.volatile.noting.places(client).collect();
        places.into_iter().for_each(|place| self.end_noting(place, client));
        Ok(client)
    }

    /// Records some of the files that a rejoining client has open. Nobody can open a file before all clients are back.
    ///
    /// # Errors
    /// `Fenced`: its lease has run out.
    fn reclaim(&mut self, client: ClientId, volume: VolumeId, opens: &[OpenInode]) -> Result<(), Refusal> {
        if self.sessions.known(client, volume)?.reclaim_complete {
            return Ok(());
        }
        for open in opens {
            // A removed file stays removed: the client's next request for it is refused as stale.
            if self.store.get(&keys::inode(volume, open.inode), |_| ()).is_ok_and(|found| found.0.is_some()) {
                let place = (volume, open.inode);
                self.volatile.opens.reclaim(place, client, open.readers, open.writers);
                open.zeroing.map(|number| self.volatile.truncations.may_zero(place, client, number));
                if let Some(note) = &open.note {
                    self.show_noted((volume, open.inode), client, note);
                }
            }
        }
        Ok(())
    }

    /// Records the next part of a rejoining client's open files, one turn per call. Returns false when the rest is
    /// small enough for [`State::client_join`].
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

    /// Ends the grace period if every client is back or lost, so that all open files are known. Returns the inodes
    /// without names; the caller removes those that nobody has open.
    pub(crate) fn end_grace(&mut self) -> Vec<VolumeInode> {
        if !self.volatile.in_grace || !self.sessions.all_reclaimed() {
            return Vec::new();
        }
        self.volatile.in_grace = false;
        self.volatile.orphans.iter().copied().collect()
    }

    /// Renews a client's lease.
    ///
    /// # Errors
    /// `Unknown`: the client must join again.
    pub(crate) fn renew_client_lease(
        &mut self,
        client: ClientId,
        asked: AskedCounts,
        now: u64,
    ) -> Result<(), Refusal> {
        let session = self.sessions.get_mut(client).filter(|session| session.reclaim_complete);
        let session = session.ok_or(Refusal::Unknown)?;
        (session.heard, session.asked) = (now, asked);
        Ok(())
    }

    /// Begins to remove a client that has left, or that is lost and fenced by every brick. [`State::continue_teardown`]
    /// then counts a change of what it had open for writing, marks its unstable growth as stale, and closes its files:
    /// in this order, so that nobody opens a file with a number of changes from before. `None` if the client is gone
    /// already.
    pub(crate) fn begin_client_teardown(&mut self, client: ClientId) -> Option<ClientTeardown> {
        let session = self.sessions.remove(client)?;
        self.volatile.noting.set_leaving(client, true);
        if !session.reclaim_complete {
            self.keep_noted_files(client);
        }
        // What it may have noted with the bricks is settled when they have told it.
        let is_noted = |place: &VolumeInode| self.volatile.noting.of(*place) == Some(client);
        let growth =
            self.volatile.growth.iter().filter(|(place, growth)| growth.client == client && !is_noted(place));
        Some(ClientTeardown {
            client,
            unknown: (!session.reclaim_complete).then_some(session.record.volume),
            written: self.volatile.opens.written_by(client),
            growth: growth.map(|(place, _)| *place).collect(),
            answers: session.stored_up_to(u64::MAX).collect(),
            is_closed: false,
            orphans: Vec::new(),
        })
    }

    /// Does the next part of a teardown, in one turn. Returns false when the teardown is complete.
    pub(crate) fn continue_teardown(&mut self, teardown: &mut ClientTeardown) -> bool {
        let client = teardown.client;
        if let Some(volume) = teardown.unknown.take() {
            self.run_for_teardown(move |txn| ops::count_change_of_all(txn, volume));
            return true;
        }
        let written = some_of(&mut teardown.written);
        if !written.is_empty() {
            // Whoever shares a file tells the end of each write before it is answered.
            let is_alone = |place: &VolumeInode| {
                let VolatileState { opens, noting, .. } = &self.volatile;
                opens.is_still_alone(*place, client) && noting.of(*place) != Some(client)
            };
            let alone: Vec<VolumeInode> = written.iter().copied().filter(is_alone).collect();
            self.run_for_teardown(move |txn| {
                ops::count_changes(txn, &written)?;
                ops::leave_unreported(txn, &alone)
            });
            return true;
        }
        let growth = some_of(&mut teardown.growth);
        let answers = some_of(&mut teardown.answers);
        if !growth.is_empty() || !answers.is_empty() {
            self.run_for_teardown(move |txn| {
                ops::settle_growth(txn, client, &growth)?;
                answers.iter().for_each(|op| txn.remove(keys::done(client, *op)));
                Ok(())
            });
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

    fn run_for_teardown(&mut self, apply: impl FnOnce(&mut Txn<'_>) -> Result<(), Refusal> + 'static) {
        self.run_batch(vec![Change::idempotent(move |txn| apply(txn).map(|()| Done {}))]);
        self.decided = self.store.last();
    }

    /// Closes all files of a client, and forgets the client.
    fn close_all(&mut self, teardown: &mut ClientTeardown) {
        let client = teardown.client;
        let VolatileState { opens, noting, truncations, .. } = &mut self.volatile;
        let closed = opens.drop_client(client, |place| noting.of(place) == Some(client));
        closed.iter().for_each(|place| truncations.closed(*place, client));
        self.run_batch(vec![Change::idempotent(move |txn| {
            txn.remove(keys::client(client));
            Ok(Done {})
        })]);
        teardown.is_closed = true;
        self.volatile.noting.set_leaving(client, false);
        teardown.orphans = closed.into_iter().filter(|place| self.volatile.orphans.contains(place)).collect();
        teardown.orphans.extend(self.end_grace());
    }

    /// Shows a size that a client had noted before the service has restarted.
    fn show_noted(&mut self, place: VolumeInode, client: ClientId, note: &SizeNote) {
        let found = self.store.get(&keys::inode(place.0, place.1), from_value::<Inode>);
        let Ok((Some(Ok(inode)), _)) = found else { return };
        let SizeNote { truncate_seq, size, mtime, .. } = *note;
        let fits = inode.is_file()
            && inode.truncate_seq == truncate_seq
            && size <= FILE_SIZE_MAX
            && !(self.volatile.disks.contains(&place.0) && size > inode.size);
        if fits && self.volatile.noting.of(place) == Some(client) {
            let growth = Growth { client, truncate_seq, size, mtime };
            self.volatile.apply(Effect::Grown(place, growth));
        }
    }

    /// A client is lost that has not come back since the service has restarted: the files of which it may have noted sizes stay
    /// its own.
    fn keep_noted_files(&mut self, client: ClientId) {
        let places: Vec<VolumeInode> = self.volatile.noting.places(client).collect();
        for place in places {
            // Who has it open was let in after this client had told everything.
            if self.volatile.opens.openers(place).any(|other| other != client) {
                self.run_for_teardown(move |txn| {
                    ops::end_noting(txn, client, &[place]);
                    Ok(())
                });
            } else if !self.volatile.opens.has(place, client) {
                self.volatile.opens.reclaim(place, client, 0, 1);
            }
        }
    }

    /// A client has closed a file: if that was its last handle, it leaves no sizes with the bricks any more. Whoever is let in
    /// now is answered when this is durable.
    pub(crate) fn end_noting(&mut self, place: VolumeInode, client: ClientId) {
        if self.volatile.noting.of(place) == Some(client) && !self.volatile.opens.has(place, client) {
            self.run_for_teardown(move |txn| {
                ops::end_noting(txn, client, &[place]);
                Ok(())
            });
        }
    }

    /// Whether a file is kept by a client that is gone, until it is known what it has noted.
    pub(crate) fn is_kept_by_unsettled(&self, place: VolumeInode) -> bool {
        self.volatile.noting.of(place).is_some_and(|client| !self.sessions.has_any(client))
    }

    /// Clients that are gone, and have files of which they may have noted sizes with the bricks; by volume.
    pub(crate) fn unsettled_clients(&self) -> BTreeMap<VolumeId, Vec<ClientId>> {
        let mut unsettled: BTreeMap<VolumeId, Vec<ClientId>> = BTreeMap::new();
        let noting = &self.volatile.noting;
        let is_gone = |client: &ClientId| !self.sessions.has_any(*client) && !noting.is_leaving(*client);
        for client in noting.clients().filter(is_gone) {
            if let Some((volume, _)) = self.volatile.noting.places(client).next() {
                unsettled.entry(volume).or_default().push(client);
            }
        }
        unsettled
    }

    /// Stores what a client that is gone has noted with the bricks, one note of each file, and closes these files. Returns
    /// those that may have no name. A client has at most [`NOTES_MAX`](types::limits::NOTES_MAX) such files.
    pub(crate) fn settle_notes(&mut self, client: ClientId, notes: Vec<SizeNote>) -> Vec<VolumeInode> {
        let places: Vec<VolumeInode> = self.volatile.noting.places(client).collect();
        let noted = places.clone();
        self.run_for_teardown(move |txn| {
            for place in &noted {
                if let Some(note) = notes.iter().find(|note| note.inode == place.1) {
                    ops::keep_note(txn, *place, note)?;
                }
            }
            ops::settle_growth(txn, client, &noted)?;
            ops::leave_unreported(txn, &noted)?;
            ops::end_noting(txn, client, &noted);
            Ok(())
        });
        self.volatile.opens.drop_client(client, |place| !places.contains(&place));
        places.iter().for_each(|place| self.volatile.truncations.closed(*place, client));
        places.into_iter().filter(|place| self.volatile.orphans.contains(place)).collect()
    }

    /// The whole teardown in one turn.
    #[cfg(test)]
    pub(crate) fn tear_down_client(&mut self, client: ClientId) {
        let Some(mut teardown) = self.begin_client_teardown(client) else { return };
        while self.continue_teardown(&mut teardown) {}
    }

    /// Marks the clients whose leases have run out as lost, and returns their number. Their teardown begins when the
    /// bricks have fenced them.
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

    /// Removes those of `places` (a bounded number) that have no name and that nobody has open.
    pub(crate) fn drop_orphans(&mut self, places: &[VolumeInode]) {
        let places: Vec<VolumeInode> =
            places.iter().copied().filter(|place| self.volatile.orphans.contains(place)).collect();
        if !places.is_empty() {
            self.run_batch(vec![Change::idempotent(move |txn| ops::drop_orphans(txn, &places))]);
        }
    }
}

/// A client that is being removed, and the work that is left.
pub(crate) struct ClientTeardown {
    client: ClientId,
    /// Its volume, if the client has not told since a restart of the service which files it has open.
    unknown: Option<VolumeId>,
    /// Files that it had open for writing.
    written: Vec<VolumeInode>,
    /// Files whose growth is not stable.
    growth: Vec<VolumeInode>,
    /// Answers that the store keeps for this client.
    answers: Vec<u64>,
    /// Its files are closed.
    is_closed: bool,
    /// Files without names that nobody has open any more.
    orphans: Vec<VolumeInode>,
}

/// Takes out the items for one turn.
pub(crate) fn some_of<T>(items: &mut Vec<T>) -> Vec<T> {
    items.split_off(items.len().saturating_sub(TURN))
}
