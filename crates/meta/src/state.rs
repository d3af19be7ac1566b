//! The service's whole state. It changes only by `Change`s, each in its own transaction.
//!
//! ```text
//! Change, Change, ... -> run_batch: each over the writes of those before it -> the store gathers
//!                     -> one record, durable -> every answer
//! ```
//!
//! A change sees the changes before it at once, but no answer may show a change before its record is durable.
//! Otherwise a client could see a new file that is lost in a crash, and hold an id that another file gets later. So
//! every read returns the number of the record that must be durable before the answer ([`State::read_with_record`]).
//!
//! # Invariants
//! - The record that an answer waits for covers all changes on which the answer depends, and will be written.
//! - A change that a caller numbers is in the same record as its answer, and is done once.
//! - An answer that shows a decision of the arbiter waits for the record of the decision or for a later one.
//! - Changes outside a batch affect only state that the clients can report again after a crash.
//! - After a failed commit, nothing is changed or answered.

use types::messages::names::Caller;
use types::wire::{Codec, Record, to_bytes};
use types::{Refusal, VolumeId};

use crate::cluster::Cluster;
#[cfg(test)]
use crate::cluster_id::cluster_of;
use crate::keys;
#[cfg(test)]
use crate::kv::Engine;
use crate::kv::{EngineError, Store, Txn, Writes};
use crate::sessions::Sessions;
use crate::volatile::{Effect, VolatileState};

/// The answer of a change: the record's bytes.
pub(crate) type Outcome = Result<Vec<u8>, Refusal>;

/// A result, and the record that must be durable before an answer may contain it.
pub(crate) type DurableAfter<R> = (Result<R, Refusal>, u64);

type Apply = Box<dyn FnOnce(&mut Txn<'_>) -> Outcome>;

/// A change that waits for its batch.
pub(crate) struct Change {
    /// The caller, for whom the change is done once. `None` for changes of the service, and for those that may be
    /// repeated.
    caller: Option<(Caller, VolumeId)>,
    need: Need,
    apply: Apply,
}

/// Whether a change is taken while the disk of the store is full.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Need {
    /// It is one of the service, or of a client that has begun something: always.
    Own,
    /// It frees more than it takes: as long as the journal has room to spare.
    Frees,
    /// It is not.
    Adds,
}

/// Room for changes, on the disk of the store and in its journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    /// Enough for all.
    Free,
    /// The disk is full, and the journal has room to spare.
    Scarce,
    /// The disk is full, and the rest of the journal is kept for what the service cannot do without.
    Full,
}

impl Space {
    fn takes(self, need: Need) -> bool {
        match self {
            Space::Free => true,
            Space::Scarce => need <= Need::Frees,
            Space::Full => need == Need::Own,
        }
    }
}

impl Change {
    /// A change that is done once for its caller.
    pub(crate) fn once<R: Record>(
        caller: &Caller,
        volume: VolumeId,
        apply: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Change {
        let caller = Some((caller.clone(), volume));
        Change { caller, need: Need::Adds, ..Change::idempotent(apply) }
    }

    /// The change can be refused: it is needed less than the room that is kept.
    pub(crate) fn adding(self) -> Change {
        Change { need: Need::Adds, ..self }
    }

    /// The change frees more than it takes.
    pub(crate) fn freeing(self) -> Change {
        Change { need: Need::Frees, ..self }
    }

    /// A change that may be repeated.
    pub(crate) fn idempotent<R: Codec>(
        apply: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal> + 'static,
    ) -> Change {
        Change {
            caller: None,
            need: Need::Own,
            apply: Box::new(|txn| apply(txn).map(|reply| to_bytes(&reply))),
        }
    }
}

/// See the module.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) volatile: VolatileState,
    pub(crate) sessions: Sessions,
    pub(crate) cluster: Cluster,
    /// The last record with a decision of the arbiter, or with a client that joined or went. Reads see these outside
    /// the store.
    pub(crate) decided: u64,
    /// Which changes are taken.
    pub(crate) space: Space,
    /// A commit has failed: memory may be ahead of the store, so nothing is answered any more.
    failed: bool,
    /// Batches committed and changes kept, for measurements.
    pub(crate) batches: u64,
    pub(crate) changes: u64,
}

impl State {
    /// Loads the state of a store without a journal. Every lease counts from `now`.
    #[cfg(test)]
    pub(crate) fn load(engine: Engine, now: u64) -> Result<State, crate::MetaError> {
        // This comes first, so that a store of another version is not reported as damaged.
        cluster_of(&engine)?;
        State::of(Store::open(engine)?, now)
    }

    /// Refuses what adds something while the disk of the store is full.
    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        if self.space.takes(Need::Adds) { Ok(()) } else { Err(Refusal::NoSpace) }
    }

    /// A state that was loaded.
    pub(crate) fn new(store: Store, volatile: VolatileState, sessions: Sessions, cluster: Cluster) -> State {
        let decided = store.last();
        let mut state = State {
            store,
            volatile,
            sessions,
            cluster,
            decided,
            space: Space::Free,
            failed: false,
            batches: 0,
            changes: 0,
        };
        state.volumes_changed();
        state.volatile.in_grace = !state.sessions.all_reclaimed();
        state
    }

    /// Whether a commit has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Reads the state, for use inside the service.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Txn<'_>) -> Result<R, Refusal>) -> Result<R, Refusal> {
        self.read_with_record(f).0
    }

    /// Reads the state. Also returns the record that must be durable before the answer.
    pub(crate) fn read_with_record<R>(
        &self,
        f: impl FnOnce(&Txn<'_>) -> Result<R, Refusal>,
    ) -> DurableAfter<R> {
        if self.failed {
            return (Err(Refusal::MetaFailed), 0);
        }
        let txn = Txn::new(&self.store, &self.volatile);
        let result = f(&txn);
        (result, self.record_behind(&txn))
    }

    /// The record that must be durable before an answer may contain what a transaction has read.
    fn record_behind(&self, txn: &Txn<'_>) -> u64 {
        let record = txn.seen().max(self.decided);
        assert!(
            self.failed || record <= self.store.last(),
            "the answer would wait for a record that is never written"
        );
        record
    }

    /// Makes a change that writes nothing to the store, at once.
    pub(crate) fn effect_only<R>(
        &mut self,
        f: impl FnOnce(&mut Txn<'_>) -> Result<R, Refusal>,
    ) -> DurableAfter<R> {
        let mut txn = Txn::new(&self.store, &self.volatile);
        let result = f(&mut txn);
        let seen = self.record_behind(&txn);
        if result.is_ok() {
            let (writes, effects) = txn.keep();
            assert!(writes.is_empty(), "writes to the store must go through a batch");
            for effect in effects {
                assert!(
                    matches!(effect, Effect::Grown(..)),
                    "a crash would undo an effect that the clients cannot report again"
                );
                self.volatile.apply(effect);
            }
        }
        (result, seen)
    }

    /// Makes changes in order, each in its own transaction. The answers, in the same order, may be sent only when the
    /// store's last record is durable.
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

    /// Makes one change. Its answer or refusal may be sent when the record is durable.
    pub(crate) fn run_one(&mut self, change: Change) -> DurableAfter<Vec<u8>> {
        if self.failed {
            return (Err(Refusal::MetaFailed), 0);
        }
        let (outcome, seen) = self.run(change);
        if self.end_batch() { (outcome, seen) } else { (Err(Refusal::MetaFailed), 0) }
    }

    fn run(&mut self, change: Change) -> DurableAfter<Vec<u8>> {
        assert!(!self.failed, "a change would build on state that may be lost");
        if let Some((caller, volume)) = &change.caller {
            match self.sessions.cached_reply(caller, *volume) {
                Ok(None) => {}
                Ok(Some(answer)) => return (Ok(answer), self.store.last()),
                Err(refusal) => return (Err(refusal), self.decided),
            }
        }
        if !self.space.takes(change.need) {
            return (Err(Refusal::NoSpace), self.decided);
        }
        let mut txn = Txn::new(&self.store, &self.volatile);
        let answer = match (change.apply)(&mut txn) {
            Ok(answer) => answer,
            Err(refusal) => return (Err(refusal), self.record_behind(&txn)),
        };
        let rests_on = self.record_behind(&txn);
        if let Some((caller, _)) = &change.caller {
            txn.put_bytes(keys::done(caller.client, caller.op), answer.clone());
            let known = self.sessions.get(caller.client).map(|session| session.stored_up_to(caller.acked));
            known.into_iter().flatten().for_each(|op| txn.remove(keys::done(caller.client, op)));
        }
        let (writes, effects) = txn.keep();
        assert!(
            change
                .caller
                .as_ref()
                .is_none_or(|(caller, _)| is_put(&writes, &keys::done(caller.client, caller.op))),
            "after a crash the change would be there without its answer, and a copy would be done again"
        );
        self.store.gather(writes);
        let record = self.store.last();
        assert!(
            record >= rests_on,
            "a change would be answered while a crash can still undo changes that it depends on"
        );
        self.changes += 1;
        self.keep_answer(&change.caller, &answer, &effects);
        effects.into_iter().for_each(|effect| self.volatile.apply(effect));
        (Ok(answer), record)
    }

    fn keep_answer(&mut self, caller: &Option<(Caller, VolumeId)>, answer: &[u8], effects: &[Effect]) {
        let Some((caller, _)) = caller else { return };
        let Some(session) = self.sessions.get_mut(caller.client) else { return };
        assert!(
            session.cached_reply(caller.op).is_none(),
            "the change was done before; doing it again would undo later changes"
        );
        session.trim(caller.acked);
        session.forget_stored(caller.acked);
        session.cache_reply(caller.op, answer.to_vec(), true);
        if effects.iter().any(|effect| matches!(effect, Effect::Opened(..))) {
            session.count_open(caller.op);
        }
    }

    /// Commits the gathered writes, or leaves them to the journal. False if the service has failed, now or before.
    fn end_batch(&mut self) -> bool {
        if !self.failed
            && let Err(error) = self.store.end_batch()
        {
            self.fail(&error);
        }
        !self.failed
    }

    /// Marks the service as failed: from now on nothing is answered.
    pub(crate) fn fail(&mut self, error: &EngineError) {
        tracing::error!(%error, "the metadata service stops: its store could not be made durable");
        self.failed = true;
    }

    /// Commits the arbiter's writes, which do not go through a batch. False if the service has failed, now or before.
    pub(crate) fn commit(&mut self, writes: Writes) -> bool {
        if self.failed {
            return false;
        }
        self.store.gather(writes);
        let durable = self.end_batch();
        let last = self.store.last();
        assert!(
            !durable || last >= self.decided,
            "an answer would show a decision that a crash can still undo"
        );
        self.decided = last;
        durable
    }
}

/// Whether a key has a value after these writes.
fn is_put(writes: &Writes, key: &[u8]) -> bool {
    writes.get(key).is_some_and(Option::is_some)
}
