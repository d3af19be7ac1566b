//! A server that follows: takes records and votes.

mod transfer;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::lock::Mutex;
use types::checksum::crc;
use types::limits::RECORDS_MAX;
use types::messages::Done;
use types::messages::replica::*;
use types::wire::{Record, Request};
use types::{Buf, ClusterId, Refusal};
use world::{Answer, Call, CallError, Handler, Notify, Peers, World};

use super::copy::{Copied, Files, chosen_members_of, last_of, members_of, members_value, term_of};
use super::history::History;
use super::{APPEND_US, ELECTION_US, ServerOptions};
use crate::kv::{Engine, EngineError, Store, Writes, is_no_space, unpacked, writes_of};
use crate::records::to_value;
use crate::{MetaError, keys};

/// Records that have come while a store comes.
#[derive(Default)]
struct Kept {
    /// The last one; if there is none, that with which the store ends.
    last: u64,
    /// The last key of the parts so far.
    upto: Vec<u8>,
    /// What the engine does not have yet.
    writes: Writes,
    bytes: usize,
}

/// At about this many bytes the engine gets what was kept.
const KEPT_BYTES: usize = 4 << 20;

/// See the module.
pub(super) struct Follower {
    pub(super) world: World,
    pub(super) peers: Peers,
    pub(super) options: ServerOptions,
    pub(super) id: u64,
    cluster: ClusterId,
    engine: Engine,
    /// No borrow lasts over an await. `None` once this server leads.
    pub(super) store: RefCell<Option<Store>>,
    pub(super) history: RefCell<History>,
    /// Whoever writes has them. `None` once this server leads.
    pub(super) files: Mutex<Option<Files>>,
    /// The newest term that this server knows; durable in the ballot.
    pub(super) term: Cell<u64>,
    /// The term of the newest promise, which may be on its way to the disk.
    promising: Cell<u64>,
    /// The newest term of which others have told.
    pub(super) seen_term: Cell<u64>,
    /// When a leader was heard, or a vote given.
    pub(super) heard_us: Cell<u64>,
    pub(super) leader: RefCell<Option<MetaMember>>,
    /// The newest term of which its leader has said that it is over.
    ended: Cell<u64>,
    /// It is to stand for election at once.
    pub(super) is_called: Cell<bool>,
    pub(super) called: Notify,
    pub(super) is_incomplete: Cell<bool>,
    /// It was a member once, as its ballot has noted.
    pub(super) was_member: Cell<bool>,
    /// The others say that it is no member any more.
    pub(super) is_disowned: Cell<bool>,
    /// The next part of the whole store, and which store it is: the term, and the record with which it ends.
    next_part: Cell<u64>,
    installing: Cell<Option<(u64, u64)>>,
    /// Whether a part had the members.
    has_members: Cell<bool>,
    /// What was written to that store since.
    kept: RefCell<Kept>,
    pub(super) work: Notify,
    flush_wanted: Notify,
    flush_done: Notify,
    /// The engine waits for room on its disk.
    is_full: Cell<bool>,
    /// Why this server cannot go on.
    failure: RefCell<Option<MetaError>>,
    failed: Notify,
}

impl Follower {
    pub(super) fn new(
        world: World,
        peers: Peers,
        options: ServerOptions,
        cluster: ClusterId,
        engine: Engine,
        copied: Copied,
    ) -> Rc<Follower> {
        let Copied { store, history, files, is_incomplete, work } = copied;
        let was_member = files.ballot.was_member;
        Rc::new(Follower {
            peers,
            options,
            id: files.ballot.id,
            cluster,
            engine,
            term: Cell::new(files.ballot.term),
            store: RefCell::new(Some(store)),
            history: RefCell::new(history),
            files: Mutex::new(Some(files)),
            promising: Cell::new(0),
            seen_term: Cell::new(0),
            // It may have heard a leader just before it was started.
            heard_us: Cell::new(world.now()),
            leader: RefCell::default(),
            ended: Cell::new(0),
            is_called: Cell::new(false),
            called: Notify::new(),
            is_incomplete: Cell::new(is_incomplete),
            was_member: Cell::new(was_member),
            is_disowned: Cell::new(false),
            next_part: Cell::new(0),
            installing: Cell::default(),
            has_members: Cell::new(false),
            kept: RefCell::default(),
            work,
            flush_wanted: Notify::new(),
            flush_done: Notify::new(),
            is_full: Cell::new(false),
            failure: RefCell::default(),
            failed: Notify::new(),
            world,
        })
    }

    pub(super) fn handler(self: &Rc<Follower>) -> Handler {
        let follower = Rc::clone(self);
        Rc::new(move |call| {
            let follower = Rc::clone(&follower);
            Box::pin(async move { follower.answer(call).await })
        })
    }

    async fn answer(&self, call: Call) -> Result<Answer, Refusal> {
        match call.kind {
            Vote::KIND => {
                let vote: Vote = call.parse()?;
                self.is_meant(vote.to)?;
                reply::<Vote>(self.vote(&vote).await?)
            }
            Append::KIND => {
                let append: Append = call.parse()?;
                self.is_meant(append.to)?;
                whole(append.sum, &call.payload)?;
                reply::<Append>(self.append(&append, call.payload).await?)
            }
            Install::KIND => {
                let install: Install = call.parse()?;
                self.is_meant(install.to)?;
                whole(install.sum, &call.payload)?;
                reply::<Install>(self.install(&install, &call.payload).await?)
            }
            MetaStatus::KIND => reply::<MetaStatus>(self.report()),
            TermEnded::KIND => {
                let ended: TermEnded = call.parse()?;
                self.is_meant(ended.to)?;
                reply::<TermEnded>(self.term_ended(&ended))
            }
            _ => Err(Refusal::NotLeader),
        }
    }

    /// A server that lost its disk has another id, and has promised nothing of what its old self has.
    fn is_meant(&self, id: u64) -> Result<(), Refusal> {
        if id == self.id { Ok(()) } else { Err(Refusal::Unknown) }
    }

    /// Where its records end.
    pub(super) fn last(&self) -> RecordPosition {
        self.store.borrow().as_ref().map(last_of).unwrap_or_default()
    }

    fn chosen(&self) -> u64 {
        self.store.borrow().as_ref().map_or(0, Store::chosen)
    }

    /// The members, as far as it knows.
    pub(super) fn members(&self) -> Vec<MetaMember> {
        self.store.borrow().as_ref().map(members_of).unwrap_or_default()
    }

    pub(super) fn is_member(&self, id: u64) -> bool {
        self.members().iter().any(|member| member.id == id)
    }

    /// The members, as the last record has them that this server knows to be chosen.
    pub(super) fn chosen_members(&self) -> Vec<MetaMember> {
        self.store.borrow().as_ref().map(chosen_members_of).unwrap_or_default()
    }

    /// Whether it is a member, as far as that cannot change back.
    pub(super) fn is_surely_member(&self) -> bool {
        self.chosen_members().iter().any(|member| member.id == self.id)
    }

    /// Whether a server is a member, or could be one by a record that is not chosen.
    fn may_be_member(&self, id: u64) -> bool {
        let has = |members: Vec<MetaMember>| members.iter().any(|member| member.id == id);
        self.is_incomplete.get() || has(self.members()) || has(self.chosen_members())
    }

    fn report(&self) -> MetaReport {
        let silent = |member| MemberReport { member, last: 0, heard_us: None, is_joining: false };
        MetaReport {
            id: self.id,
            term: self.term.get(),
            last: self.last(),
            chosen: self.chosen(),
            leader: self.leader.borrow().as_ref().map_or(0, |leader| leader.id),
            members: self.members().into_iter().map(silent).collect(),
            is_incomplete: self.is_incomplete.get(),
        }
    }

    async fn vote(&self, ask: &Vote) -> Result<Voted, Refusal> {
        // While a record or a vote is being written, what counts is not known.
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        let voted = |is_granted| Voted {
            term: self.term.get(),
            is_granted,
            is_member: self.may_be_member(ask.candidate),
        };
        let hears_a_leader = self.world.now() < self.heard_us.get() + ELECTION_US;
        if hears_a_leader || self.is_incomplete.get() || ask.last < self.last() || ask.term < self.term.get()
        {
            return Ok(voted(false));
        }
        let has_promised = ask.term == self.term.get() && ![0, ask.candidate].contains(&files.ballot.vote);
        if has_promised || ask.is_poll {
            return Ok(voted(!has_promised));
        }
        self.promise(files, ask.term, ask.candidate).await?;
        self.heard_us.set(self.world.now());
        *self.leader.borrow_mut() = None;
        Ok(voted(true))
    }

    /// Makes a promise durable.
    pub(super) async fn promise(&self, files: &mut Files, term: u64, vote: u64) -> Result<(), Refusal> {
        // From now on a leader of an earlier term gets no sign, although the promise does not count yet.
        self.promising.set(term);
        files.ballot.was_member |= self.is_surely_member();
        files.ballot.promise(term, vote).await.map_err(|error| match &error {
            // The promise was not made.
            MetaError::Ballot { error, .. } if is_no_space(error) => {
                self.promising.set(self.term.get());
                self.disk_is_full();
                Refusal::NoSpace
            }
            _ => self.fail(error),
        })?;
        self.term.set(term);
        Ok(())
    }

    pub(super) fn fail(&self, error: MetaError) -> Refusal {
        self.failure.borrow_mut().get_or_insert(error);
        self.failed.notify();
        Refusal::MetaFailed
    }

    /// Waits until something has failed.
    pub(super) async fn failure(&self) -> MetaError {
        loop {
            let failed = self.failed.wait();
            if let Some(error) = self.failure.borrow_mut().take() {
                return error;
            }
            failed.await;
        }
    }

    fn appended(&self) -> Appended {
        Appended {
            term: self.term.get(),
            chosen: self.chosen(),
            last: self.last(),
            is_incomplete: self.is_incomplete.get(),
        }
    }

    /// The leader that this server has heard answers nobody any more.
    fn term_ended(&self, ended: &TermEnded) -> Done {
        if ended.term >= self.term.get() && ended.term >= self.promising.get() {
            self.ended.set(ended.term);
            self.heard_us.set(0);
            *self.leader.borrow_mut() = None;
            if ended.successor == self.id {
                self.is_called.set(true);
                self.called.notify();
            }
        }
        Done {}
    }

    fn hear(&self, term: u64, leader: &MetaMember) {
        // A late sign of a leader that has said since that its term is over.
        if term <= self.ended.get() {
            return;
        }
        self.heard_us.set(self.world.now());
        if self.leader.borrow().as_ref() != Some(leader) {
            tracing::info!(leader = leader.address, "follows a metadata server");
            *self.leader.borrow_mut() = Some(leader.clone());
        }
    }

    /// Whether a leader of this term leads, as far as this server knows. If it is a newer one, it is promised to.
    async fn heeds(&self, files: &mut Files, term: u64, leader: &MetaMember) -> Result<bool, Refusal> {
        if term < self.term.get() {
            return Ok(false);
        }
        if term > self.term.get() {
            self.promise(files, term, 0).await?;
        }
        self.hear(term, leader);
        Ok(true)
    }

    async fn append(&self, append: &Append, payload: Buf) -> Result<Appended, Refusal> {
        let has_less = || append.has > self.last().number;
        let is_sign = append.records.is_empty() && !has_less();
        if is_sign && append.term == self.term.get() && append.term >= self.promising.get() {
            // A sign of life does not wait for a record that is being written.
            self.hear(append.term, &append.leader);
            if let Some(mut files) = self.files.try_lock() {
                self.learn_chosen(append, files.as_mut());
            }
            return Ok(self.appended());
        }
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        if !self.heeds(files, append.term, &append.leader).await? {
            return Ok(self.appended());
        }
        // The leader has counted what this server had. Its directory is that of an earlier time.
        if has_less() {
            let noted = files.ballot.set_back().await;
            return Err(self.fail(noted.err().unwrap_or(MetaError::SetBack)));
        }
        let is_installing = self.installing.get().is_some_and(|(term, _)| term == append.term);
        if is_installing && append.previous.number == self.kept.borrow().last && !append.records.is_empty() {
            self.keep(append, &payload).await.map_err(|error| self.fail(error))?;
        } else if !self.is_incomplete.get() {
            let taken = match append.records.as_slice() {
                [] => Ok(()),
                [one] => self.take(files, one.position, append, payload).await,
                several => self.take_chosen(files, several, append, &payload).await,
            };
            taken.map_err(|error| self.fail(error))?;
        }
        Ok(self.appended())
    }

    /// Takes several records that are all chosen, with one sync, as far as they go on from those that are here.
    async fn take_chosen(
        &self,
        files: &mut Files,
        sent: &[SentRecord],
        append: &Append,
        payload: &Buf,
    ) -> Result<(), MetaError> {
        if sent.len() > RECORDS_MAX {
            return Err(MetaError::Damaged);
        }
        let (mut records, mut from, mut before) = (Vec::new(), 0, append.previous);
        for SentRecord { position, len } in sent {
            let upto = from + *len as usize;
            let is_next = records.is_empty() || position.number == before.number + 1;
            if upto > payload.len() || !is_next || position.number > append.chosen {
                return Err(MetaError::Damaged);
            }
            if position.number > self.chosen() {
                records.push((*position, before, payload.slice(from..upto)));
            }
            (from, before) = (upto, *position);
        }
        let last = self.last();
        let Some((first, previous, _)) = records.first().cloned() else { return Ok(()) };
        // The last record that is here is chosen, if it is one of these, or the one before.
        if last.number > self.chosen()
            && (last == first || last == previous && first.number == last.number + 1)
        {
            self.first_is_chosen();
        }
        records.retain(|(position, ..)| position.number > self.chosen());
        if records.first().is_none_or(|(first, ..)| first.number != self.chosen() + 1) {
            return Ok(());
        }
        let mut all = Vec::with_capacity(records.len());
        for (position, _, payload) in records {
            let writes = unpacked(&payload).ok_or(MetaError::Damaged)?;
            if term_of(&writes) != position.term {
                return Err(MetaError::Damaged);
            }
            all.push((position, payload, writes));
        }
        let payloads: Vec<&Buf> = all.iter().map(|(_, payload, _)| payload).collect();
        let batch = self.with_store(|store| store.batch(&payloads))?;
        self.make_room(files, batch.len()).await;
        let full = || self.disk_is_full();
        let appended = files.journal.append_patiently(&self.world, &batch, full).await;
        appended.map_err(EngineError::Journal)?;
        for (position, payload, writes) in all {
            self.with_store(|store| store.replace_unchosen(writes))?;
            self.first_is_chosen();
            self.history.borrow_mut().push(position, payload);
        }
        Ok(())
    }

    /// Takes a record, if it is the next one. It may replace one that is not chosen.
    async fn take(
        &self,
        files: &mut Files,
        record: RecordPosition,
        append: &Append,
        payload: Buf,
    ) -> Result<(), MetaError> {
        let last = self.last();
        if record.number <= self.chosen() {
            return Ok(());
        }
        if last != record {
            if record.number == last.number && record.term < last.term && record.number > append.chosen {
                return Ok(());
            }
            // A record that is followed by another one is chosen, if it is the same here.
            let goes_on = last == append.previous && record.number == last.number + 1;
            if goes_on && last.number > self.chosen() {
                self.first_is_chosen();
            }
            if record.number != self.chosen() + 1 {
                return Ok(());
            }
            let writes = unpacked(&payload).ok_or(MetaError::Damaged)?;
            if term_of(&writes) != record.term {
                return Err(MetaError::Damaged);
            }
            let encoded = self.with_store(|store| store.replace_unchosen(writes))?;
            self.make_room(files, encoded.bytes.len()).await;
            let full = || self.disk_is_full();
            let appended = files.journal.append_patiently(&self.world, &encoded.bytes, full).await;
            appended.map_err(EngineError::Journal)?;
            self.history.borrow_mut().push(record, payload);
        }
        if record.number <= append.chosen {
            self.first_is_chosen();
        }
        Ok(())
    }

    fn with_store<T>(&self, f: impl FnOnce(&mut Store) -> Result<T, EngineError>) -> Result<T, EngineError> {
        f(self.store.borrow_mut().as_mut().expect("whoever has the files has the store"))
    }

    fn first_is_chosen(&self) {
        self.store.borrow_mut().iter_mut().for_each(Store::first_is_chosen);
    }

    /// Switches to the other half of the journal if this one is full.
    async fn make_room(&self, files: &mut Files, len: usize) {
        if files.journal.fits(len) {
            return;
        }
        self.flushed().await;
        self.store.borrow_mut().iter_mut().for_each(Store::freeze);
        self.flush_wanted.notify();
        files.journal.switch_half();
    }

    /// Waits until the engine has what was on its way there.
    async fn flushed(&self) {
        loop {
            let flush_done = self.flush_done.wait();
            if self.store.borrow().as_ref().is_none_or(|store| store.frozen().is_none()) {
                return;
            }
            flush_done.await;
        }
    }

    /// The leader says up to which record all is chosen. It has this server's last one, if that is of its term.
    fn learn_chosen(&self, append: &Append, files: Option<&mut Files>) {
        let last = self.last();
        if files.is_some()
            && last.term == append.term
            && (self.chosen() + 1..=append.chosen).contains(&last.number)
        {
            self.first_is_chosen();
        }
    }

    /// Commits full halves of the journal to the engine.
    pub(super) async fn flush(&self) -> MetaError {
        loop {
            let flush_wanted = self.flush_wanted.wait();
            let frozen = self.store.borrow().as_ref().and_then(Store::frozen);
            let Some((table, last)) = frozen else {
                flush_wanted.await;
                continue;
            };
            let committed = Arc::clone(&table);
            let commit = move |engine: &Engine| engine.advance(&keys::applied(), last, writes_of(&table));
            let full = || self.disk_is_full();
            if let Err(error) = self.engine.patiently(&self.world, commit, full).await {
                return error.into();
            }
            if self.is_full.replace(false) {
                tracing::info!("there is room on the disk of the metadata store again");
            }
            let flushed = match self.store.borrow_mut().as_mut() {
                Some(store) => store.take_flushed(&committed),
                None => Ok(None),
            };
            self.flush_done.notify();
            match flushed {
                Ok(table) => self.world.off_thread(move || drop(table)).await,
                Err(error) => return error.into(),
            }
        }
    }

    fn disk_is_full(&self) {
        if !self.is_full.replace(true) {
            tracing::error!(
                "no space left on the disk of the metadata store: \
                 this server takes records only as long as its journal has room"
            );
        }
    }

    /// Asks those who are said to know to become a member, until it is one.
    pub(super) async fn join(&self) {
        let Some(servers) = self.options.join.clone() else { return std::future::pending().await };
        let me = MetaMember { id: self.id, address: self.options.advertise.clone() };
        let mut said = None;
        loop {
            // One that was removed does not ask again.
            if self.was_member.get() || (self.is_surely_member() && !self.is_incomplete.get()) {
                self.world.sleep(super::BEAT_US).await;
                continue;
            }
            let leader = self.leader.borrow().as_ref().map(|leader| leader.address.clone());
            for server in servers.split(',').map(str::to_owned).chain(leader) {
                let join = MetaJoin { member: me.clone() };
                let asked = self.peers.call_within(APPEND_US, &server, types::Epoch(0), &join, Buf::empty());
                match asked.await {
                    Ok((MetaJoined { is_member: true }, _)) => break,
                    Ok(_) => said = None,
                    // One of several is the leader, and between two leaders there is none.
                    Err(error @ (CallError::Unreachable | CallError::Refused(Refusal::NotLeader))) => {
                        tracing::debug!(server, %error, "cannot ask to become a member");
                    }
                    Err(error) if said == Some(error) => {}
                    Err(error) => {
                        tracing::warn!(server, %error, "does not make this server a member");
                        said = Some(error);
                    }
                }
            }
            self.world.sleep(5 * super::RETRY_US).await;
        }
    }
}

pub(super) fn reply<R: Request>(reply: R::Reply) -> Result<Answer, Refusal> {
    Ok(Answer::new(&reply, Buf::empty()))
}

/// Whether a payload has arrived whole.
fn whole(sum: u32, payload: &[u8]) -> Result<(), Refusal> {
    if crc(payload) == sum { Ok(()) } else { Err(Refusal::Malformed) }
}
