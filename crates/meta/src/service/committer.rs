//! Writes gathered changes to the journal as records, and commits full halves of the journal to the engine.
//!
//! While a record is being written, the service goes on serving requests, and their changes gather for the next record.
//! A change is answered when its record is durable; of several servers, when a majority has it. A read is answered when the records of all changes that it saw are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures_util::future::{Either, select};
use types::Refusal;
use types::wire::{Codec, from_bytes};

use super::Shared;
use crate::keys;
use crate::kv::{EncodedRecord, Engine, EngineError, Journal, writes_of};
use crate::state::{Change, DurableAfter};

/// A leader whose own journal takes so much longer for a record than a majority, in microseconds, lets another one lead.
const SLOW_US: u64 = 5_000_000;
/// Pause before it is looked again whether another server leads now, in microseconds.
const ENDING_US: u64 = 5_000;

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
    pub(crate) async fn all_durable(&self) -> Result<(), Refusal> {
        let last = self.state.borrow().store.last();
        self.durable(last).await
    }

    /// Makes a change, and returns when it is durable.
    pub(super) async fn submit<R: Codec>(&self, change: Change) -> Result<R, Refusal> {
        let seen = self.state.borrow_mut().run_one(change);
        self.notify_tasks();
        from_bytes(&self.when_durable(seen).await?).map_err(|_| Refusal::MetaFailed)
    }

    /// Notifies the tasks for which a change may have made work.
    pub(super) fn notify_tasks(&self) {
        let mut state = self.state.borrow_mut();
        if std::mem::take(&mut state.volatile.has_new_purges) {
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

/// The task that writes records to the journal.
pub(super) async fn run(shared: Rc<Shared>, journal: Option<Journal>) {
    let Some(mut journal) = journal else { return std::future::pending().await };
    loop {
        let work = shared.work.wait();
        if !shared.state.borrow().store.has_records() {
            work.await;
        }
        if let Some(leading) = &shared.leading {
            while !leading.may_begin() && !leading.is_over() {
                shared.world.sleep(ENDING_US).await;
            }
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
        match &self.leading {
            None => {
                let appended = self.append(journal, &record).await;
                appended.map_err(EngineError::Journal)?;
            }
            Some(leading) => {
                if leading.is_over() {
                    return std::future::pending().await;
                }
                leading.propose(&record);
                // The way to the others is longer than that to the own disk, so the tasks that send it run first.
                self.world.yield_now().await;
                if leading.is_over() {
                    return std::future::pending().await;
                }
                let own = async {
                    let appended = self.append(journal, &record).await;
                    if appended.is_ok() {
                        leading.has_own(record.number);
                    }
                    appended
                };
                let chosen = Box::pin(leading.chosen(record.number));
                let (appended, chosen) = match select(Box::pin(own), chosen).await {
                    Either::Left((appended, chosen)) => (appended, chosen.await),
                    Either::Right((chosen, own)) => {
                        // The others have it. If all disks are slow, another leader would be no better.
                        let appended = match select(own, Box::pin(self.world.sleep(SLOW_US))).await {
                            Either::Left((appended, _)) => appended,
                            Either::Right(((), own)) => {
                                leading.depose("its disk is much slower than those of the others");
                                own.await
                            }
                        };
                        (appended, chosen)
                    }
                };
                appended.map_err(EngineError::Journal)?;
                if chosen.is_err() {
                    // The term is over, and with it this service.
                    return std::future::pending().await;
                }
            }
        }
        self.state.borrow_mut().store.first_is_chosen();
        self.watermark.reach(record.number);
        Ok(())
    }

    async fn append(&self, journal: &mut Journal, record: &EncodedRecord) -> io::Result<()> {
        let full = || self.full_disk.journal_is_full(self);
        journal.append_patiently(&self.world, &record.bytes, full).await?;
        self.full_disk.appended(self, journal);
        Ok(())
    }

    /// Switches to the other half of the journal if this one is full.
    async fn make_room(&self, journal: &mut Journal, record: &EncodedRecord) {
        if journal.fits(record.bytes.len()) {
            return;
        }
        self.flushed().await;
        self.state.borrow_mut().store.freeze();
        self.flush_wanted.notify();
        journal.switch_half();
        self.full_disk.appended(self, journal);
    }

    /// Waits until no commit to the engine is in progress.
    async fn flushed(&self) {
        loop {
            let flush_done = self.flush_done.wait();
            if self.state.borrow().store.frozen().is_none() {
                return;
            }
            flush_done.await;
        }
    }

    /// Brings all that is durable now to the engine.
    pub(super) async fn flush_all(&self) {
        self.flushed().await;
        self.state.borrow_mut().store.freeze();
        self.flush_wanted.notify();
        self.flushed().await;
    }

    async fn flush_to_engine(self: &Rc<Self>) -> Result<(), EngineError> {
        let flush_wanted = self.flush_wanted.wait();
        let Some((table, last)) = self.state.borrow().store.frozen() else {
            flush_wanted.await;
            return Ok(());
        };
        let committed = Arc::clone(&table);
        let engine = self.state.borrow().store.engine().clone();
        let commit = move |engine: &Engine| engine.advance(&keys::applied(), last, writes_of(&table));
        engine.patiently(&self.world, commit, || self.full_disk.engine_is_full(self)).await?;
        self.full_disk.engine_has_room(self);
        let table = self.state.borrow_mut().store.take_flushed(&committed)?;
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
