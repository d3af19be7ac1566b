//! Requests about open files, which may have to wait for other clients.

mod guards;

use std::rc::Rc;

use types::limits::{LEASE_US, NEAR_GROUPS_MAX, OPEN_NAMES_MAX};
use types::messages::Done;
use types::messages::cluster::Mode;
use types::messages::names::{
    Accessed, Attr, AttrReply, Caller, Create, CreateTemporary, Created, Open, Opened, Release, Retract,
    SetAttr, SwapObjects, UpdateSizes, UpdateSizesReply, ZeroBegin, ZeroBeginReply, Zeroed,
};
use types::wire::{Record, from_bytes, to_bytes};
use types::{ClientId, Refusal, VolumeId};

use self::guards::{Counted, Running, Truncation};
use super::Shared;
use crate::ops;
use crate::state::{Change, State};
use crate::volume_inode::VolumeInode;

/// How long a request waits for what lost clients have noted, in microseconds: until a client's lease has run out, bricks have
/// fenced it, and have told.
const NOTES_WAIT_US: u64 = 2 * LEASE_US;

/// How an open begins.
enum Begin {
    /// The open was done before, with this answer.
    Answered(Opened),
    /// The open must be done now, with or without the truncation.
    Now { truncate: bool },
}

impl Shared {
    /// Waits until `ready` returns a value.
    pub(super) async fn wait_until<T>(&self, mut ready: impl FnMut(&Shared) -> Option<T>) -> T {
        loop {
            let settled = self.settled.wait();
            if let Some(ready) = ready(self) {
                return ready;
            }
            settled.await;
        }
    }

    /// Waits for the end of the grace period after a restart, when all open files are known.
    async fn wait_for_grace(&self) {
        self.wait_until(|shared| (!shared.state.borrow().volatile.in_grace).then_some(())).await;
    }

    /// Waits until no other client has a recall in progress on the file, or is truncating it.
    ///
    /// # Errors
    /// `NotServing`: a lost client has the file, and some brick does not tell what it has noted. Ask again.
    async fn wait_for_recalls(&self, place: VolumeInode, client: ClientId) -> Result<(), Refusal> {
        let proceed = |shared: &Shared| {
            let volatile = &shared.state.borrow().volatile;
            volatile.opens.may_proceed(place, client) && !volatile.truncations.others_truncate(place, client)
        };
        if proceed(self) {
            return Ok(());
        }
        self.news.notify();
        let mut give_up = None;
        loop {
            let settled = self.settled.wait();
            if proceed(self) {
                return Ok(());
            }
            if !self.state.borrow().is_kept_by_unsettled(place) {
                settled.await;
                continue;
            }
            let now = self.world.now();
            let left = give_up.get_or_insert(now + NOTES_WAIT_US).saturating_sub(now);
            if left == 0 {
                return Err(Refusal::NotServing);
            }
            self.world.timeout(left, settled).await;
        }
    }

    /// Waits until the service can know the size of a file that a client may have noted before the last restart.
    ///
    /// # Errors
    /// `NotServing`: some brick does not tell it. Ask again.
    pub(super) async fn wait_for_size(&self, place: VolumeInode) -> Result<(), Refusal> {
        if !self.state.borrow().volatile.noting.is_unknown(place) {
            return Ok(());
        }
        let give_up = self.world.now() + NOTES_WAIT_US;
        loop {
            let settled = self.settled.wait();
            if !self.state.borrow().volatile.noting.is_unknown(place) {
                return Ok(());
            }
            let left = give_up.saturating_sub(self.world.now());
            if left == 0 {
                return Err(Refusal::NotServing);
            }
            self.world.timeout(left, settled).await;
        }
    }

    /// Waits for the sizes of all files of a volume, while the service has just begun. After that a listing shows what is stored
    /// rather than nothing.
    pub(super) async fn wait_for_sizes(&self, volume: VolumeId) {
        let is_known =
            |shared: &Shared| (!shared.state.borrow().volatile.noting.is_any_unknown(volume)).then_some(());
        let left = (self.began + NOTES_WAIT_US).saturating_sub(self.world.now());
        if left > 0 && is_known(self).is_none() {
            self.world.timeout(left, self.wait_until(is_known)).await;
        }
    }

    /// Opens a file.
    pub(super) async fn open(self: Rc<Shared>, request: Open) -> Result<Opened, Refusal> {
        if request.names.len() > OPEN_NAMES_MAX {
            return Err(Refusal::Malformed);
        }
        self.wait_for_grace().await;
        let Caller { client, op, .. } = request.caller;
        let place = (request.volume, request.inode);
        let begin = self.wait_until(|shared| shared.begin_open(&request).transpose()).await?;
        let truncate = match begin {
            Begin::Answered(answer) => return self.all_durable().await.map(|()| answer),
            Begin::Now { truncate } => truncate,
        };
        let _running = Running { shared: &self, client, op };
        // A truncation that was made before a restart was made of the file that had these names. They may be others since.
        let names = if truncate == request.truncate { request.names.as_slice() } else { &[] };
        let early = self.state.borrow().read_with_record(|txn| ops::openable_as(txn, place, names));
        if early.0.is_err() {
            return self.when_durable(early).await.map(|attr| Opened { attr, mode: Mode::Shared });
        }

        let mut counted = Counted::new(&self, place, client, request.write);
        let attr = match truncate {
            true => {
                let _cut = self.begin_truncate(place, client).await?;
                self.open_truncated(&request).await?
            }
            false => {
                self.wait_for_recalls(place, client).await?;
                self.attr_to_open(place, client).await?
            }
        };
        // The mode is decided at the moment of the answer: a client must learn of its mode before the mode is recalled.
        let answer = self.grant(&request.caller, place, |mode| Opened { attr, mode })?;
        counted.done = true;
        Ok(answer)
    }

    /// The attributes of a file on which no other client has a recall in progress. They are durable.
    async fn attr_to_open(&self, place: VolumeInode, client: ClientId) -> Result<Attr, Refusal> {
        loop {
            let (attr, record) = self.state.borrow().read_with_record(|txn| ops::openable(txn, place));
            if self.is_durable(record) {
                return attr;
            }
            self.durable(record).await?;
            self.wait_for_recalls(place, client).await?;
        }
    }

    /// Makes the answer of an open with the mode that is allowed now, and keeps it.
    fn grant<R: Record>(
        &self,
        caller: &Caller,
        place: VolumeInode,
        answer: impl FnOnce(Mode) -> R,
    ) -> Result<R, Refusal> {
        let Caller { client, op, .. } = *caller;
        let mut state = self.state.borrow_mut();
        // The client's lease may have run out while the request waited.
        state.sessions.known(client, place.0)?;
        let answer = answer(state.volatile.opens.granted(place, client));
        let session = state.sessions.known(client, place.0)?;
        session.cache_reply(op, to_bytes(&answer), false);
        session.count_open(op);
        Ok(answer)
    }

    /// Begins an open; `None` while an earlier copy of the request is in progress.
    fn begin_open(&self, request: &Open) -> Result<Option<Begin>, Refusal> {
        let mut state = self.state.borrow_mut();
        let session = state.sessions.known(request.caller.client, request.volume)?;
        session.trim(request.caller.acked);
        let op = request.caller.op;
        session.check_wanted(op)?;
        if !session.begin(op) {
            return Ok(None);
        }
        let Some(answer) = session.cached_reply(op).cloned() else {
            return Ok(Some(Begin::Now { truncate: request.truncate }));
        };
        // The truncation was made before the service restarted, but the open is not counted since. It is counted with its answer.
        if !session.has_counted_open(op) {
            return Ok(Some(Begin::Now { truncate: false }));
        }
        let answer = from_bytes(&answer).map_err(|_| Refusal::Malformed);
        session.end(op);
        answer.map(|answer| Some(Begin::Answered(answer)))
    }

    async fn open_truncated(&self, request: &Open) -> Result<Attr, Refusal> {
        let (place, now) = ((request.volume, request.inode), request.now);
        let opened = Change::once(&request.caller, request.volume, move |txn| {
            let attr = ops::open_truncated(txn, place, now)?;
            Ok(Opened { attr, mode: Mode::Shared })
        })
        .freeing();
        Ok(self.submit::<Opened>(opened).await?.attr)
    }

    /// Makes a file, and opens it if asked.
    pub(super) async fn create(self: Rc<Shared>, mut request: Create) -> Result<Created, Refusal> {
        if request.near.len() > NEAR_GROUPS_MAX {
            return Err(Refusal::Invalid);
        }
        if !request.near.is_empty() {
            request.near = self.state.borrow().cluster.with_room(request.volume, &request.near);
        }
        if !request.open {
            return self.change_once(request, ops::create).await;
        }
        let (caller, volume) = (request.caller.clone(), request.volume);
        let _running = self.begin_create(&caller, volume).await?;
        let created = self.change_once(request, ops::create).await?;
        if self.has_counted_open(&caller, volume)? {
            return Ok(created);
        }
        self.open_created(&caller, volume, created).await
    }

    /// Waits until no earlier copy of a create that opens is in progress.
    async fn begin_create(&self, caller: &Caller, volume: VolumeId) -> Result<Running<'_>, Refusal> {
        self.wait_for_grace().await;
        let begin = |shared: &Shared| {
            let mut state = shared.state.borrow_mut();
            let begun = state.sessions.known(caller.client, volume).map(|session| session.begin(caller.op));
            begun.map(|begun| begun.then_some(())).transpose()
        };
        self.wait_until(begin).await?;
        Ok(Running { shared: self, client: caller.client, op: caller.op })
    }

    fn has_counted_open(&self, caller: &Caller, volume: VolumeId) -> Result<bool, Refusal> {
        let mut state = self.state.borrow_mut();
        Ok(state.sessions.known(caller.client, volume)?.has_counted_open(caller.op))
    }

    /// Makes a file without a name, and opens it.
    pub(super) async fn create_temporary(
        self: Rc<Shared>,
        request: CreateTemporary,
    ) -> Result<Opened, Refusal> {
        let (caller, volume) = (request.caller.clone(), request.volume);
        let _running = self.begin_create(&caller, volume).await?;
        let made = self.change_once(request, ops::create_temporary).await?;
        if self.has_counted_open(&caller, volume)? {
            return Ok(made);
        }
        // The service has restarted since. The client did not report the file as open, so the file is gone or will be.
        Err(Refusal::Stale)
    }

    /// Two files swap their objects, while nobody reads or writes the one that has a name.
    pub(super) async fn swap_objects(self: Rc<Shared>, request: SwapObjects) -> Result<AttrReply, Refusal> {
        self.wait_for_grace().await;
        let (place, client) = ((request.volume, request.inode), request.caller.client);
        self.state.borrow_mut().sessions.known(client, request.volume)?;
        let quiet = self.begin_truncate(place, client).await?;
        let reply = self.change_once(request, ops::swap_objects).await;
        drop(quiet);
        // The last name may have been removed meanwhile, which kept the inode.
        if self.is_dead(place) {
            self.drop_orphan(place).await?;
        }
        reply
    }

    /// Opens a file that its client created before the service restarted. Others may have opened it, changed it or
    /// removed it since, so this is an open like any other.
    async fn open_created(
        &self,
        caller: &Caller,
        volume: VolumeId,
        created: Created,
    ) -> Result<Created, Refusal> {
        let place = (volume, created.attr.inode);
        let found = self.state.borrow().read_with_record(|txn| ops::openable(txn, place));
        self.when_durable(found).await?;
        let mut counted = Counted::new(self, place, caller.client, true);
        self.wait_for_recalls(place, caller.client).await?;
        let attr = self.attr_to_open(place, caller.client).await?;
        let answer = self.grant(caller, place, |mode| Created { attr, mode, ..created })?;
        counted.done = true;
        Ok(answer)
    }

    /// Closes a file once.
    pub(super) async fn release(self: Rc<Shared>, request: Release) -> Result<Done, Refusal> {
        self.wait_for_grace().await;
        let place = (request.volume, request.inode);
        let Caller { client, op, acked } = request.caller;
        {
            let mut state = self.state.borrow_mut();
            let session = state.sessions.known(client, request.volume)?;
            session.trim(acked);
            if session.check_wanted(op).is_err() || session.cached_reply(op).is_some() {
                return Ok(Done {});
            }
            session.cache_reply(op, to_bytes(&Done {}), false);
            state.volatile.opens.release(place, client, request.write);
            if !state.volatile.opens.has(place, client) {
                state.volatile.truncations.closed(place, client);
            }
            state.end_noting(place, client);
        }
        self.settled.notify();
        if self.is_dead(place) {
            self.drop_orphan(place).await?;
        }
        Ok(Done {})
    }

    /// Whether a file has no name and is not open.
    fn is_dead(&self, place: VolumeInode) -> bool {
        let volatile = &self.state.borrow().volatile;
        volatile.orphans.contains(&place) && !volatile.opens.is_open(place)
    }

    async fn drop_orphan(&self, place: VolumeInode) -> Result<u64, Refusal> {
        self.submit(Change::idempotent(move |txn| ops::drop_orphans(txn, &[place]))).await
    }

    /// Changes attributes. Before a new size, the other clients that have the file open quiesce it.
    pub(super) async fn setattr(self: Rc<Shared>, request: SetAttr) -> Result<AttrReply, Refusal> {
        self.wait_for_size((request.volume, request.inode)).await?;
        if request.size.is_none() {
            return self.change_once(request, ops::setattr).await;
        }
        self.wait_for_grace().await;
        let (place, client) = ((request.volume, request.inode), request.caller.client);
        self.state.borrow_mut().sessions.known(client, request.volume)?;
        let cut = self.begin_truncate(place, client).await?;
        let reply = self.change_once(request, ops::setattr).await;
        drop(cut);
        // The last name may have been removed during the truncation, which kept the inode.
        if self.is_dead(place) {
            self.drop_orphan(place).await?;
        }
        reply
    }

    /// Waits until no other client reads or writes the file or has a recall in progress. This stays so until the
    /// returned guard is dropped.
    async fn begin_truncate(&self, place: VolumeInode, client: ClientId) -> Result<Truncation<'_>, Refusal> {
        let mut cut = Truncation::new(self, place, client);
        self.wait_for_recalls(place, client).await?;
        let begin = |shared: &Shared| {
            let mut state = shared.state.borrow_mut();
            let State { volatile, sessions, .. } = &mut *state;
            // Who is gone is fenced everywhere.
            let is_other = |opener: &ClientId| *opener != client && sessions.has_any(*opener);
            let others = volatile.opens.openers(place).filter(is_other);
            volatile.truncations.begin(place, client, others)
        };
        self.wait_until(|shared| begin(shared).then_some(())).await;
        cut.begun = true;
        let is_quiesced = |shared: &Shared| {
            let State { volatile, sessions, .. } = &*shared.state.borrow();
            let has_open = |client: ClientId| volatile.opens.openers(place).any(|opener| opener == client);
            volatile.truncations.is_quiesced(place, |client| has_open(client) && sessions.has_any(client))
        };
        if !is_quiesced(self) {
            self.news.notify();
            self.wait_until(|shared| is_quiesced(shared).then_some(())).await;
        }
        Ok(cut)
    }

    /// Takes a report of sizes. Only stable growth has to wait for a commit.
    pub(super) async fn grow(&self, request: UpdateSizes) -> Result<UpdateSizesReply, Refusal> {
        self.state.borrow_mut().sessions.known(request.client, request.volume)?;
        if request.stable {
            return self.submit(Change::idempotent(move |txn| ops::grow(txn, &request))).await;
        }
        let seen = self.state.borrow_mut().effect_only(|txn| ops::grow(txn, &request));
        self.when_durable(seen).await
    }

    /// Takes the end of a file back whose last bytes its client has lost.
    pub(super) async fn retract(&self, request: Retract) -> Result<AttrReply, Refusal> {
        self.wait_for_grace().await;
        self.state.borrow_mut().sessions.known(request.client, request.volume)?;
        self.submit(Change::idempotent(move |txn| ops::retract(txn, &request))).await
    }

    /// Decides whether a client may zero the stale bytes of a truncation.
    pub(super) async fn zero(&self, request: ZeroBegin) -> Result<ZeroBeginReply, Refusal> {
        self.wait_for_grace().await;
        let place = (request.volume, request.inode);
        let Caller { client, op, acked } = request.caller;
        let mut state = self.state.borrow_mut();
        state.sessions.known(client, request.volume)?.trim(acked);
        if let Some(answer) = state.sessions.cached_reply(&request.caller, request.volume)? {
            return from_bytes(&answer).map_err(|_| Refusal::Malformed);
        }
        // Only a client that has the file open: its close ends the grant.
        let granted =
            state.volatile.opens.has(place, client) && state.volatile.truncations.may_zero(place, client, op);
        let answer = ZeroBeginReply { granted };
        state.sessions.known(client, request.volume)?.cache_reply(op, to_bytes(&answer), false);
        Ok(answer)
    }

    /// Takes a report of accesses.
    pub(super) async fn accessed(&self, request: Accessed) -> Result<Done, Refusal> {
        self.state.borrow_mut().sessions.known(request.client, request.volume)?;
        // Reads must not use up the room that is kept for leases.
        self.submit(Change::idempotent(move |txn| ops::accessed(txn, &request)).adding()).await
    }

    /// A client has zeroed the stale bytes, or has given up.
    pub(super) async fn zeroed(&self, request: Zeroed) -> Result<Done, Refusal> {
        let (client, place) = (request.client, (request.volume, request.inode));
        let number = request.number;
        self.state.borrow_mut().sessions.known(client, request.volume)?;
        let done = self.submit(Change::idempotent(move |txn| ops::zeroed(txn, &request))).await;
        if let Some(number) = number {
            self.state.borrow_mut().volatile.truncations.end_zeroing(place, client, number);
        }
        done
    }
}
