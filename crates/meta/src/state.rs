//! Everything that the service knows, and the one way to change it: changes, each in a transaction of its own.
//!
//! ```text
//! Change, Change, ... -> run_batch: each over the writes of those before it -> the store gathers
//!                     -> one record, durable -> every answer
//! ```
//!
//! What a change did is seen by the next one at once, but nobody may be told of it before its record is durable: a
//! client that was shown a file, which is gone after a crash, would hold an id that is given to another file then. So
//! whatever is read comes with the number of the record that must be durable first ([`State::read_with_record`]).

use types::messages::names::Caller;
use types::wire::{Codec, Record, to_bytes};
use types::{ClientId, Refusal, VolumeId};

use crate::cluster::Cluster;
use crate::kv::{Engine, EngineError, KeyValue, Store, Txn, Writes};
use crate::records::{VERSION, from_value};
use crate::sessions::{Session, Sessions};
use crate::volatile::{Effect, VolatileState};
use crate::{MetaError, keys};

/// The answer of a change: the record's bytes.
pub(crate) type Outcome = Result<Vec<u8>, Refusal>;

/// What was read or done, and the record that must be durable before anybody is told.
pub(crate) type DurableAfter<R> = (Result<R, Refusal>, u64);

type Apply = Box<dyn FnOnce(&mut Txn<'_>) -> Outcome>;

/// A change that waits for its batch.
pub(crate) struct Change {
    /// Who asks: it is done once. `None` for the service's own, and for what may be done twice.
    caller: Option<(Caller, VolumeId)>,
    apply: Apply,
}

impl Change {
    /// A change that is done once for its caller.
    pub(crate) fn once<R: Record>(
        caller: &Caller,
        volume: VolumeId,
        apply: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Change {
        Change { caller: Some((caller.clone(), volume)), ..Change::idempotent(apply) }
    }

    /// A change that may be done again.
    pub(crate) fn idempotent<R: Codec>(
        apply: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Change {
        Change { caller: None, apply: Box::new(|txn| apply(txn).map(|reply| to_bytes(&reply))) }
    }
}

/// See the module.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) volatile: VolatileState,
    pub(crate) sessions: Sessions,
    pub(crate) cluster: Cluster,
    /// The last record that holds a decision of the arbiter, or the coming or going of a client: these are seen beside
    /// the store.
    pub(crate) decided: u64,
    /// A commit failed: what is in memory may be ahead of the store, so nothing is answered any more.
    failed: bool,
    /// Batches committed and changes kept, for measurements.
    pub(crate) batches: u64,
    pub(crate) changes: u64,
}

impl State {
    /// Reads what the store holds. Every lease counts from `now`.
    pub(crate) fn load(engine: Engine, now: u64) -> Result<State, MetaError> {
        // Before anything else is read: a store of another version is not damaged.
        cluster_of(&engine)?;
        let store = Store::open(engine)?;
        let cluster = Cluster::load(&store, now)?;
        let mut state = State {
            store,
            volatile: VolatileState::default(),
            sessions: Sessions::default(),
            cluster,
            decided: 0,
            failed: false,
            batches: 0,
            changes: 0,
        };
        state.volumes_changed();
        state.load_clients(now)?;
        state.load_orphans_and_purges()?;
        state.volatile.in_grace = !state.sessions.all_reclaimed();
        Ok(state)
    }

    fn load_clients(&mut self, now: u64) -> Result<(), MetaError> {
        let last = self.store.get(&keys::id_counter(), from_value::<u64>)?.0;
        let last = last.transpose().map_err(|_| MetaError::Damaged)?;
        self.sessions.count_up_to(ClientId(last.unwrap_or(0)));
        for (key, value) in self.pairs(&keys::all::clients())? {
            let client = ClientId(keys::last_u64(&key).ok_or(MetaError::Damaged)?);
            let record = from_value(&value).map_err(|_| MetaError::Damaged)?;
            let mut session = Session::new(record, now, false);
            for (key, answer) in self.pairs(&keys::all::done(client))? {
                session.cache_reply(keys::last_u64(&key).ok_or(MetaError::Damaged)?, answer, true);
            }
            self.sessions.insert(client, session);
        }
        Ok(())
    }

    fn load_orphans_and_purges(&mut self) -> Result<(), MetaError> {
        let prefix = keys::all::orphans();
        let orphans = &mut self.volatile.orphans;
        self.store.range(&prefix, &keys::after_all(&prefix), &Writes::new(), &mut |key, _| {
            orphans
                .extend(keys::volume_and_number(key).map(|(volume, inode)| (volume, types::InodeId(inode))));
            true
        })?;
        let prefix = keys::all::purges();
        let purges = &mut self.volatile.purges;
        self.store.range(&prefix, &keys::after_all(&prefix), &Writes::new(), &mut |_, _| {
            *purges += 1;
            true
        })?;
        Ok(())
    }

    fn pairs(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, EngineError> {
        let mut pairs = Vec::new();
        self.store.range(prefix, &keys::after_all(prefix), &Writes::new(), &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(pairs)
    }

    /// Whether a commit has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What a read makes of the state, for the service's own use.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Txn<'_>) -> Result<R, Refusal>) -> Result<R, Refusal> {
        self.read_with_record(f).0
    }

    /// What a read makes of the state, and the record that must be durable before anybody is told.
    pub(crate) fn read_with_record<R>(
        &self,
        f: impl FnOnce(&Txn<'_>) -> Result<R, Refusal>,
    ) -> DurableAfter<R> {
        if self.failed {
            return (Err(Refusal::MetaFailed), 0);
        }
        let txn = Txn::new(&self.store, &self.volatile);
        let result = f(&txn);
        (result, txn.seen().max(self.decided))
    }

    /// Does a change that touches nothing in the store, at once.
    pub(crate) fn effect_only<R>(
        &mut self,
        f: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal>,
    ) -> DurableAfter<R> {
        let mut txn = Txn::new(&self.store, &self.volatile);
        let result = f(&mut txn);
        let seen = txn.seen().max(self.decided);
        if result.is_ok() {
            let (writes, effects) = txn.keep();
            assert!(writes.is_empty(), "what touches the store goes through a batch");
            effects.into_iter().for_each(|effect| self.volatile.apply(effect));
        }
        (result, seen)
    }

    /// Does changes in order, each alone. Answers in the same order; nobody may learn of one before the store's last
    /// record is durable.
    pub(crate) fn run_batch(&mut self, changes: Vec<Change>) -> Vec<Outcome> {
        let before = self.changes;
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(changes.len());
        for change in changes {
            outcomes.push(if self.failed { Err(Refusal::MetaFailed) } else { self.run(change).0 });
        }
        if self.changes > before {
            self.batches += 1;
        }
        if !self.end_batch() {
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(Refusal::MetaFailed));
        }
        outcomes
    }

    /// Does one change. Its answer, or that it is refused, may be told when the record is durable.
    pub(crate) fn run_one(&mut self, change: Change) -> DurableAfter<Vec<u8>> {
        if self.failed {
            return (Err(Refusal::MetaFailed), 0);
        }
        let (outcome, seen) = self.run(change);
        if self.end_batch() { (outcome, seen) } else { (Err(Refusal::MetaFailed), 0) }
    }

    fn run(&mut self, change: Change) -> DurableAfter<Vec<u8>> {
        if let Some((caller, volume)) = &change.caller {
            match self.sessions.cached_reply(caller, *volume) {
                Ok(None) => {}
                Ok(Some(answer)) => return (Ok(answer), self.store.last()),
                Err(refusal) => return (Err(refusal), self.decided),
            }
        }
        let mut txn = Txn::new(&self.store, &self.volatile);
        let answer = match (change.apply)(&mut txn) {
            Ok(answer) => answer,
            Err(refusal) => return (Err(refusal), txn.seen().max(self.decided)),
        };
        if let Some((caller, _)) = &change.caller {
            txn.put_bytes(keys::done(caller.client, caller.op), answer.clone());
            let known = self.sessions.get(caller.client).map(|session| session.stored_up_to(caller.acked));
            known.into_iter().flatten().for_each(|op| txn.remove(keys::done(caller.client, op)));
        }
        let (writes, effects) = txn.keep();
        self.store.gather(writes);
        self.changes += 1;
        self.keep_answer(&change.caller, &answer, &effects);
        effects.into_iter().for_each(|effect| self.volatile.apply(effect));
        (Ok(answer), self.store.last())
    }

    fn keep_answer(&mut self, caller: &Option<(Caller, VolumeId)>, answer: &[u8], effects: &[Effect]) {
        let Some((caller, _)) = caller else { return };
        let Some(session) = self.sessions.get_mut(caller.client) else { return };
        session.trim(caller.acked);
        session.forget_stored(caller.acked);
        session.cache_reply(caller.op, answer.to_vec(), true);
        if effects.iter().any(|effect| matches!(effect, Effect::Opened(..))) {
            session.count_open(caller.op);
        }
    }

    /// Makes durable, or has it made durable, what was gathered. False if the service has failed, now or before.
    fn end_batch(&mut self) -> bool {
        if !self.failed
            && let Err(error) = self.store.end_batch()
        {
            self.fail(&error);
        }
        !self.failed
    }

    /// From now on nothing is answered.
    pub(crate) fn fail(&mut self, error: &EngineError) {
        tracing::error!(%error, "the metadata service stops: its store could not be made durable");
        self.failed = true;
    }

    /// Commits writes made beside a batch: the arbiter's. False if the service has failed, now or before.
    pub(crate) fn commit(&mut self, writes: Writes) -> bool {
        if self.failed {
            return false;
        }
        self.store.gather(writes);
        let durable = self.end_batch();
        self.decided = self.store.last();
        durable
    }
}

/// Makes an empty cluster in an engine.
///
/// # Errors
/// [`MetaError::Exists`] if there is one.
pub fn create_cluster(engine: &Engine, cluster: types::ClusterId) -> Result<(), MetaError> {
    if cluster_of(engine)?.is_some() {
        return Err(MetaError::Exists);
    }
    let version = crate::records::to_value(&types::MapVersion(1));
    let pairs = [(keys::cluster(), crate::records::to_value(&cluster)), (keys::map_version(), version)];
    Ok(engine.commit(pairs.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))?)
}

/// The cluster that an engine holds, if any.
///
/// # Errors
/// [`MetaError::Version`] if it was written by a build whose values this one cannot read.
pub fn cluster_of(engine: &Engine) -> Result<Option<types::ClusterId>, MetaError> {
    let read = |value: &[u8]| match value.first() {
        Some(&found) if found != VERSION => Err(MetaError::Version { found }),
        _ => from_value(value).map_err(|_| MetaError::Damaged),
    };
    engine.reader()?.get(&keys::cluster(), read)?.transpose()
}
