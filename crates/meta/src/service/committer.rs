//! Writes gathered changes to the journal as records, and commits full halves of the journal to the engine.
//!
//! While a record is being written, the service goes on serving requests, and their changes gather for the next record.
//! A change is answered when its record is durable. A read is answered when the records of all changes that it saw are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use types::wire::{Codec, from_bytes};
use types::{ClusterId, Refusal};
use world::{Notify, World};

use super::Shared;
use crate::kv::{EncodedRecord, Engine, EngineError, Journal, writes_of};
use crate::records::{from_value, to_value};
use crate::state::{Change, DurableAfter, State};
use crate::{MetaError, keys};

/// Up to which record the journal is durable, and the tasks that wait for later records.
pub(super) struct DurableWatermark {
    reached: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Vec<Waker>>>,
}

impl DurableWatermark {
    /// Durable up to `record`.
    pub(super) fn at(record: u64) -> DurableWatermark {
        DurableWatermark { reached: Cell::new(record), waiting: RefCell::default() }
    }

    fn reach(&self, record: u64) {
        self.reached.set(record);
        let mut waiting = self.waiting.borrow_mut();
        let later = waiting.split_off(&(record + 1));
        let woken = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        woken.into_values().flatten().for_each(Waker::wake);
    }
}

impl Shared {
    /// Whether a record is durable.
    pub(super) fn is_durable(&self, record: u64) -> bool {
        self.watermark.reached.get() >= record
    }

    /// Waits until a record is durable.
    ///
    /// # Errors
    /// `MetaFailed`: the record will never be durable.
    pub(super) async fn durable(&self, record: u64) -> Result<(), Refusal> {
        poll_fn(|context| {
            if self.is_durable(record) {
                return Poll::Ready(Ok(()));
            }
            if self.state.borrow().has_failed() {
                return Poll::Ready(Err(Refusal::MetaFailed));
            }
            let mut waiting = self.watermark.waiting.borrow_mut();
            let wakers = waiting.entry(record).or_default();
            // After a wake-up for another reason, this task's waker is already in the list.
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Returns a result when the record on which it depends is durable.
    pub(super) async fn when_durable<R>(&self, (result, record): DurableAfter<R>) -> Result<R, Refusal> {
        self.durable(record).await?;
        result
    }

    /// Waits until all changes made so far are durable.
    pub(super) async fn all_durable(&self) -> Result<(), Refusal> {
        let last = self.state.borrow().store.last();
        self.durable(last).await
    }

    /// Makes a change, and returns when it is durable.
    pub(super) async fn submit<R: Codec>(&self, change: Change) -> Result<R, Refusal> {
        let purges = self.state.borrow().volatile.purges;
        let seen = self.state.borrow_mut().run_one(change);
        self.notify_tasks(purges);
        from_bytes(&self.when_durable(seen).await?).map_err(|_| Refusal::MetaFailed)
    }

    /// Notifies the tasks for which a change may have made work.
    pub(super) fn notify_tasks(&self, purges_before: u64) {
        let state = self.state.borrow();
        if state.volatile.purges > purges_before {
            self.purges.notify();
        }
        if state.has_failed() {
            self.failed.notify();
        }
    }

    /// Stops all answers: the store could not be made durable.
    fn fail(&self, error: &EngineError) {
        self.state.borrow_mut().fail(error);
        self.failed.notify();
        self.watermark.reach(self.watermark.reached.get());
        let waiting = std::mem::take(&mut *self.watermark.waiting.borrow_mut());
        waiting.into_values().flatten().for_each(Waker::wake);
    }
}

/// Opens the engine's journal, if it has one, and commits to the engine the records that it does not have yet.
pub(crate) async fn recover(
    world: &World,
    engine: Engine,
    cluster: ClusterId,
    memory_budget: u64,
    work: &Notify,
) -> Result<(State, Option<Journal>), MetaError> {
    let Some(path) = engine.journal().map(str::to_owned) else {
        return Ok((State::load(engine, world.now())?, None));
    };
    let applied = engine.reader()?.get(&keys::applied(), from_value::<u64>)?;
    let applied = applied.transpose().map_err(|_| MetaError::Damaged)?;
    let found = Journal::open(world, &path, cluster, applied, memory_budget).await;
    let found = found.map_err(|error| MetaError::Journal { path, error })?;
    if !found.writes.is_empty() {
        tracing::info!(
            keys = found.writes.len(),
            "the metadata store gets the records that only its journal has"
        );
    }
    // A torn record may have the next number, so that number is skipped.
    let last = found.last + 1;
    let mark = (keys::applied(), to_value(&last));
    let writes = found.writes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
    engine.commit(writes.chain([(mark.0.as_slice(), Some(mark.1.as_slice()))]))?;
    let mut state = State::load(engine, world.now())?;
    state.store.attach_journal(found.salt, found.journal.half_len(), last + 1, work.clone());
    Ok((state, Some(found.journal)))
}

/// The task that writes records to the journal.
pub(super) async fn run(shared: Rc<Shared>, journal: Option<Journal>) {
    let Some(mut journal) = journal else { return std::future::pending().await };
    loop {
        let work = shared.work.wait();
        if !shared.state.borrow().store.has_records() {
            work.await;
        }
        // Requests that are ready run first, and their changes share the record.
        shared.world.yield_now().await;
        if let Err(error) = shared.write_record(&mut journal).await {
            shared.fail(&error);
            return;
        }
    }
}

impl Shared {
    async fn write_record(&self, journal: &mut Journal) -> Result<(), EngineError> {
        let Some(record) = self.state.borrow_mut().store.next_record()? else { return Ok(()) };
        self.make_room(journal, &record).await;
        journal.append(&record).await.map_err(EngineError::Journal)?;
        self.watermark.reach(record.number);
        Ok(())
    }

    /// Switches to the other half of the journal if this one is full.
    async fn make_room(&self, journal: &mut Journal, record: &EncodedRecord) {
        if journal.fits(record) {
            return;
        }
        loop {
            let flush_done = self.flush_done.wait();
            if self.state.borrow().store.frozen().is_none() {
                break;
            }
            flush_done.await;
        }
        self.state.borrow_mut().store.freeze();
        self.flush_wanted.notify();
        journal.switch_half();
    }

    async fn flush_to_engine(&self) -> Result<(), EngineError> {
        let flush_wanted = self.flush_wanted.wait();
        let Some((table, last)) = self.state.borrow().store.frozen() else {
            flush_wanted.await;
            return Ok(());
        };
        let engine = self.state.borrow().store.engine().clone();
        let commit = move || {
            let mark = (keys::applied(), to_value(&last));
            engine.commit(writes_of(&table).chain([(mark.0.as_slice(), Some(mark.1.as_slice()))]))
        };
        self.world.off_thread(commit).await?;
        let table = self.state.borrow_mut().store.take_flushed()?;
        self.flush_done.notify();
        // Freeing so many small allocations here would delay all requests.
        self.world.off_thread(move || drop(table)).await;
        Ok(())
    }
}

/// The task that commits full halves of the journal to the engine.
pub(super) async fn run_engine(shared: Rc<Shared>) {
    loop {
        if let Err(error) = shared.flush_to_engine().await {
            shared.fail(&error);
            return;
        }
    }
}
