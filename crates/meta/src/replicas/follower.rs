//! A server that follows: takes records and votes. What it decides is in [`ReplicaCore`].

mod join;
mod records;
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

use super::agreement::{Heeds, Promises, ReplicaCore, Taken, Taking, Voting};
use super::copy::{Copied, Files, members_in, members_value, records_of, term_of};
use super::history::History;
use super::{APPEND_US, ServerOptions};
use crate::kv::{Engine, EngineError, Store, Writes, is_no_space, unpacked, writes_of};
use crate::records::to_value;
use crate::{MetaError, keys};

/// Records that have come while a store comes.
#[derive(Default)]
struct Kept {
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
    /// No borrow of it, or of the next two, lasts over an await.
    pub(super) core: RefCell<ReplicaCore>,
    /// It has the records of which the core knows. `None` once this server leads.
    pub(super) store: RefCell<Option<Store>>,
    pub(super) history: RefCell<History>,
    /// Whoever writes has them. `None` once this server leads.
    pub(super) files: Mutex<Option<Files>>,
    pub(super) leader: RefCell<Option<MetaMember>>,
    /// Notified when it is to stand for election at once.
    pub(super) called: Notify,
    /// What was written to the store that comes since it left.
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
        let promises = files.ballot.promises;
        let core = ReplicaCore::restart(promises, records_of(&store), is_incomplete, world.now());
        Rc::new(Follower {
            peers,
            options,
            id: promises.id,
            cluster,
            engine,
            core: RefCell::new(core),
            store: RefCell::new(Some(store)),
            history: RefCell::new(history),
            files: Mutex::new(Some(files)),
            leader: RefCell::default(),
            called: Notify::new(),
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

    fn report(&self) -> MetaReport {
        let core = self.core.borrow();
        let silent = |member: &MetaMember| MemberReport {
            member: member.clone(),
            last: 0,
            heard_us: None,
            is_joining: false,
        };
        MetaReport {
            id: self.id,
            term: core.term(),
            last: core.last(),
            chosen: core.chosen(),
            leader: self.leader.borrow().as_ref().map_or(0, |leader| leader.id),
            members: core.records.members().iter().map(silent).collect(),
            is_incomplete: core.is_incomplete,
        }
    }

    async fn vote(&self, ask: &Vote) -> Result<Voted, Refusal> {
        // While a record or a vote is being written, what counts is not known.
        let mut files = self.files.lock().await;
        let files = files.as_mut().ok_or(Refusal::NotLeader)?;
        let voting = self.core.borrow().vote(ask, self.world.now());
        let is_granted = match voting {
            Voting::Answer(is_granted) => is_granted,
            Voting::Promise => {
                self.promise(files, ask.term, ask.candidate).await?;
                self.core.borrow_mut().voted(self.world.now());
                *self.leader.borrow_mut() = None;
                true
            }
        };
        Ok(self.core.borrow().answer_to_vote(ask, is_granted))
    }

    /// Makes a promise durable.
    pub(super) async fn promise(&self, files: &mut Files, term: u64, vote: u64) -> Result<(), Refusal> {
        let promises = self.core.borrow_mut().promise(term, vote);
        self.make_durable(files, promises).await.map_err(|error| match &error {
            // The promise was not made.
            MetaError::Ballot { error, .. } if is_no_space(error) => {
                self.core.borrow_mut().promise_failed();
                self.disk_is_full();
                Refusal::NoSpace
            }
            _ => self.fail(error),
        })
    }

    pub(super) async fn make_durable(&self, files: &mut Files, promises: Promises) -> Result<(), MetaError> {
        files.ballot.promise(promises).await?;
        self.core.borrow_mut().promised(promises);
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

    /// The leader that this server has heard answers nobody any more.
    fn term_ended(&self, ended: &TermEnded) -> Done {
        let mut core = self.core.borrow_mut();
        if core.term_ended(ended) {
            *self.leader.borrow_mut() = None;
            if core.is_called {
                self.called.notify();
            }
        }
        Done {}
    }

    fn hear(&self, term: u64, leader: &MetaMember) {
        let is_heard = self.core.borrow_mut().hear(term, self.world.now());
        if is_heard && self.leader.borrow().as_ref() != Some(leader) {
            tracing::info!(leader = leader.address, "follows a metadata server");
            *self.leader.borrow_mut() = Some(leader.clone());
        }
    }

    /// Whether a leader of this term leads, as far as this server knows. If it is a newer one, it is promised to.
    async fn heeds(&self, files: &mut Files, term: u64, leader: &MetaMember) -> Result<bool, Refusal> {
        let heeds = self.core.borrow().heeds(term);
        match heeds {
            Heeds::No => return Ok(false),
            Heeds::Yes => {}
            Heeds::Promise => self.promise(files, term, 0).await?,
        }
        self.hear(term, leader);
        Ok(true)
    }

    fn with_store<T>(&self, f: impl FnOnce(&mut Store) -> Result<T, EngineError>) -> Result<T, EngineError> {
        f(self.store.borrow_mut().as_mut().expect("whoever has the files has the store"))
    }

    fn disk_is_full(&self) {
        if !self.is_full.replace(true) {
            tracing::error!(
                "no space left on the disk of the metadata store: \
                 this server takes records only as long as its journal has room"
            );
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
