//! Everything that the service knows, and the one way to change it: a batch of changes, committed once.
//!
//! ```text
//! Change, Change, ... -> run_batch: each in a transaction of its own, over the writes of those before it
//!                     -> one commit, durable -> every answer
//! ```

use types::messages::names::Caller;
use types::wire::{Codec, Record, to_bytes};
use types::{ClientId, Refusal, VolumeId};

use crate::cluster::Cluster;
use crate::kv::{Engine, EngineError, Pair, Store, Txn, Writes};
use crate::live::{Effect, Live};
use crate::records::from_value;
use crate::sessions::{Session, Sessions};
use crate::{MetaError, keys};

/// The answer of a change: the record's bytes.
pub(crate) type Outcome = Result<Vec<u8>, Refusal>;

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
        Change { caller: Some((caller.clone(), volume)), ..Change::again(apply) }
    }

    /// A change that may be done again.
    pub(crate) fn again<R: Codec>(
        apply: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Change {
        Change { caller: None, apply: Box::new(|txn| apply(txn).map(|reply| to_bytes(&reply))) }
    }
}

/// See the module.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) live: Live,
    pub(crate) sessions: Sessions,
    pub(crate) cluster: Cluster,
    /// A commit failed: what is in memory may be ahead of the store, so nothing is answered any more.
    failed: bool,
    /// Batches committed and changes kept, for measurements.
    pub(crate) batches: u64,
    pub(crate) changes: u64,
}

impl State {
    /// Reads what the store holds. Every lease counts from `now`.
    pub(crate) fn load(engine: Engine, now: u64) -> Result<State, MetaError> {
        let store = Store::open(engine)?;
        let cluster = Cluster::load(&store, now)?;
        let mut state = State {
            store,
            live: Live::default(),
            sessions: Sessions::default(),
            cluster,
            failed: false,
            batches: 0,
            changes: 0,
        };
        state.live.volumes = state.cluster.geometries();
        state.load_clients(now)?;
        state.load_orphans_and_purges()?;
        state.live.unsure = !state.sessions.all_announced();
        Ok(state)
    }

    fn load_clients(&mut self, now: u64) -> Result<(), MetaError> {
        for (key, value) in self.pairs(&keys::all::clients())? {
            let client = ClientId(keys::last_u64(&key).ok_or(MetaError::Damaged)?);
            let volume = VolumeId(from_value(&value).map_err(|_| MetaError::Damaged)?);
            let mut session = Session::new(volume, now, false);
            for (key, answer) in self.pairs(&keys::all::done(client))? {
                session.keep(keys::last_u64(&key).ok_or(MetaError::Damaged)?, answer, true);
            }
            self.sessions.insert(client, session);
        }
        Ok(())
    }

    fn load_orphans_and_purges(&mut self) -> Result<(), MetaError> {
        let prefix = keys::all::orphans();
        let orphans = &mut self.live.orphans;
        self.store.committed().range(&prefix, &keys::after_all(&prefix), &mut |key, _| {
            orphans
                .extend(keys::volume_and_number(key).map(|(volume, inode)| (volume, types::InodeId(inode))));
            true
        })?;
        let prefix = keys::all::purges();
        let purges = &mut self.live.purges;
        self.store.committed().range(&prefix, &keys::after_all(&prefix), &mut |_, _| {
            *purges += 1;
            true
        })?;
        Ok(())
    }

    fn pairs(&self, prefix: &[u8]) -> Result<Vec<Pair>, EngineError> {
        let mut pairs = Vec::new();
        self.store.committed().range(prefix, &keys::after_all(prefix), &mut |key, value| {
            pairs.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(pairs)
    }

    /// Whether a commit has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What a read makes of the committed state.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Txn<'_>) -> Result<R, Refusal>) -> Result<R, Refusal> {
        if self.failed {
            return Err(Refusal::MetaFailed);
        }
        f(&Txn::new(&self.store, &Writes::new(), &self.live))
    }

    /// Does a change that touches nothing in the store, at once.
    pub(crate) fn effect_only<R>(
        &mut self,
        f: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let batch = Writes::new();
        let mut txn = Txn::new(&self.store, &batch, &self.live);
        let reply = f(&mut txn)?;
        let (writes, effects) = txn.keep();
        assert!(writes.is_empty(), "what touches the store goes through a batch");
        effects.into_iter().for_each(|effect| self.live.apply(effect));
        Ok(reply)
    }

    /// Does changes in order, each alone, and makes all of them durable with one commit. Answers in the same order.
    pub(crate) fn run_batch(&mut self, changes: Vec<Change>) -> Vec<Outcome> {
        let mut batch = Writes::new();
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(changes.len());
        for change in changes {
            outcomes.push(if self.failed { Err(Refusal::MetaFailed) } else { self.run(&mut batch, change) });
        }
        if !batch.is_empty() {
            self.batches += 1;
        }
        if !self.commit(&batch) {
            outcomes.iter_mut().for_each(|outcome| *outcome = Err(Refusal::MetaFailed));
        }
        outcomes
    }

    fn run(&mut self, batch: &mut Writes, change: Change) -> Outcome {
        if let Some((caller, volume)) = &change.caller
            && let Some(answer) = self.sessions.answered(caller, *volume)?
        {
            return Ok(answer);
        }
        let mut txn = Txn::new(&self.store, batch, &self.live);
        let answer = (change.apply)(&mut txn)?;
        if let Some((caller, _)) = &change.caller {
            txn.put_bytes(keys::done(caller.client, caller.op), answer.clone());
            let known = self.sessions.get(caller.client).map(|session| session.stored_up_to(caller.acked));
            known.into_iter().flatten().for_each(|op| txn.remove(keys::done(caller.client, op)));
        }
        let (writes, effects) = txn.keep();
        // Not `append`, which builds the whole map anew.
        batch.extend(writes);
        self.changes += 1;
        self.keep_answer(&change.caller, &answer, &effects);
        effects.into_iter().for_each(|effect| self.live.apply(effect));
        Ok(answer)
    }

    fn keep_answer(&mut self, caller: &Option<(Caller, VolumeId)>, answer: &[u8], effects: &[Effect]) {
        let Some((caller, _)) = caller else { return };
        let Some(session) = self.sessions.get_mut(caller.client) else { return };
        session.trim(caller.acked);
        session.forget_stored(caller.acked);
        session.keep(caller.op, answer.to_vec(), true);
        if effects.iter().any(|effect| matches!(effect, Effect::Opened(..))) {
            session.count_open(caller.op);
        }
    }

    /// Commits writes made beside a batch: the arbiter's. False if the service has failed, now or before.
    pub(crate) fn commit(&mut self, writes: &Writes) -> bool {
        if self.failed {
            return false;
        }
        if let Err(error) = self.store.commit(writes) {
            tracing::error!(%error, "the metadata service stops: its store could not be made durable");
            self.failed = true;
        }
        !self.failed
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
    let writes =
        [(keys::cluster(), Some(crate::records::to_value(&cluster))), (keys::map_version(), Some(version))];
    Ok(engine.commit(&writes.into_iter().collect())?)
}

/// The cluster that an engine holds, if any.
pub fn cluster_of(engine: &Engine) -> Result<Option<types::ClusterId>, MetaError> {
    let value = engine.reader()?.get(&keys::cluster(), from_value)?;
    value.transpose().map_err(|_| MetaError::Damaged)
}
