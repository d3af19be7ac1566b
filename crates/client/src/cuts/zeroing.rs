//! Zeroes bytes that a truncation left beyond the end of a file, before the file grows again.
//!
//! A shared file is zeroed by one client at a time. It asks the service for permission and reports when it is done.
//! No client may make the file longer before that, so no client writes there meanwhile, and zeros never overwrite
//! newer bytes. Zeroing continues in the background until every zero is stable or refused, even if its caller gives
//! up. Only then may another client try.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use types::Refusal;
use types::messages::cluster::Mode;
use types::messages::names::{Caller, ZeroBegin, ZeroBeginReply, Zeroed};
use world::Notify;

use crate::error::ClientError;
use crate::modes::Modes;
use crate::paths::Io;
use crate::paths::find::Rows;
use crate::routes::link::Link;
use crate::routes::retry::{RetryBudget, backoff_us};
use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::unstable::Unstable;
use crate::unstable::flow::AGE_MAX_US;

/// Number of tries after which the pause is the longest.
const MANY: u32 = 8;

/// Files with stale bytes that the background must zero.
#[derive(Default)]
pub(crate) struct Zeroings {
    files: Mutex<Vec<Arc<OpenFile>>>,
    /// Notified for each of these files, and when the mount ends.
    pub(crate) wanted: Notify,
}

impl Zeroings {
    /// Has the background zero what is stale of a file.
    fn begin(&self, file: &Arc<OpenFile>) {
        lock(&self.files).push(file.clone());
        self.wanted.notify();
    }

    /// Files of which nobody zeroes what is stale yet.
    fn take(&self) -> Vec<Arc<OpenFile>> {
        std::mem::take(&mut *lock(&self.files))
    }
}

/// Truncation and zeroing of files by one thread.
pub(crate) struct Cuts {
    pub(crate) link: Rc<Link>,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) io: Rc<Io>,
    pub(crate) modes: Rc<Modes>,
    pub(crate) zeroings: Arc<Zeroings>,
}

impl Cuts {
    /// Returns when there are no stale bytes beyond the end of the file.
    pub(crate) async fn zero_stale(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let mut budget = RetryBudget::new(&self.link.world);
        let (mut steps, failures) = {
            let state = file.lock();
            (state.zeroing.steps, state.zeroing.failures)
        };
        loop {
            let changed = file.changed.wait();
            if self.link.routes.lease.has_left() {
                return Err(ClientError::Unmounted);
            }
            {
                let mut state = file.lock();
                if !state.zeroing.runs {
                    if state.zeroing.failures != failures {
                        return Err(state.zeroing.error.unwrap_or(ClientError::Unreachable));
                    }
                    if state.stale_end <= state.size {
                        return Ok(());
                    }
                    state.zeroing.runs = true;
                    self.zeroings.begin(file);
                }
                if state.zeroing.steps != steps {
                    steps = state.zeroing.steps;
                    budget = RetryBudget::new(&self.link.world);
                }
            }
            self.link.world.timeout(AGE_MAX_US, changed).await;
            budget.check()?;
        }
    }

    /// Zeroes stale bytes of queued files, until the mount ends.
    pub(crate) async fn zero_files(self: &Rc<Self>) {
        while !self.link.routes.lease.has_left() {
            let wanted = self.zeroings.wanted.wait();
            let files = self.zeroings.take();
            if files.is_empty() {
                wanted.await;
            }
            for file in files {
                let cuts = self.clone();
                self.link.world.spawn("zeroing", async move { cuts.zero_until_done(&file).await });
            }
        }
    }

    async fn zero_until_done(&self, file: &Arc<OpenFile>) {
        let outcome = {
            let _turn = file.turn.lock().await;
            self.zero_in_turn(file).await
        };
        let mut state = file.lock();
        state.zeroing.runs = false;
        if let Err(error) = outcome {
            tracing::debug!(inode = %file.inode, %error, "stale bytes beyond the end of a file could not be zeroed");
            state.zeroing.failures += 1;
            state.zeroing.error = Some(error);
        }
        drop(state);
        file.changed.notify();
        self.unstable.flow.queue_report(file);
    }

    async fn zero_in_turn(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        // In mode Alone no permission is needed: no other client is let in while this runs.
        if file.lock().mode() != Mode::Alone {
            self.ask_to_zero(file).await?;
        }
        let zeroed = self.zero_what_is_stale(file).await;
        let (truncate_seq, to) = *zeroed.as_ref().unwrap_or(&(0, 0));
        if to > 0 || file.lock().zeroing.number.is_some() {
            self.tell_zeroed(file, truncate_seq, to).await?;
        }
        zeroed.map(drop)
    }

    /// Waits for the service's permission: until no other client zeroes the file or may begin to.
    async fn ask_to_zero(&self, file: &Arc<OpenFile>) -> Result<(), ClientError> {
        let (volume, inode) = (self.link.routes.volume, file.inode);
        let mut tries = 0;
        while !self.modes.is_over(file) {
            tries += 1;
            file.lock().zeroing.reclaimed = false;
            let mut number = 0;
            let request = |caller: Caller| {
                number = caller.op;
                ZeroBegin { caller, volume, inode }
            };
            match self.link.change(request).await {
                Ok(ZeroBeginReply { granted: true }) => {
                    let mut state = file.lock();
                    // If the service has restarted since, it does not know this permission: ask again.
                    if !state.zeroing.reclaimed {
                        state.zeroing.number = Some(number);
                        return Ok(());
                    }
                }
                Ok(_) => self.link.world.sleep(backoff_us(tries.min(MANY), self.link.world.random())).await,
                // The permission may have been granted. The next request gets it again, and it is returned later.
                Err(ClientError::Unreachable) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::Refused(Refusal::Fenced))
    }

    /// Zeroes existing stripes from the end of the file on, until the zeros are stable. Returns the file's
    /// `truncate_seq` and the end of the zeros; the end is 0 if the file was truncated meanwhile, or there was
    /// nothing to do.
    async fn zero_what_is_stale(&self, file: &Arc<OpenFile>) -> Result<(u64, u64), ClientError> {
        let (truncate_seq, from, to, object) = {
            // For a shared file this gets the newest attributes from the service.
            let _io = self.modes.begin_io(file).await?;
            let state = file.lock();
            (state.truncate_seq, state.size, state.stale_end, state.object)
        };
        let mut at = from;
        while at < to {
            let (found, upto) = self.io.find_stripes(file, at..to).await?;
            let mut rows = Rows::new(self.link.routes.geometry_of(object), found, at..upto);
            while let Some(row) = rows.next() {
                if !self.zero_row(file, truncate_seq, to, row).await? {
                    return Ok((truncate_seq, 0));
                }
            }
            at = upto;
        }
        let state = file.lock();
        let is_as_it_was = state.truncate_seq == truncate_seq && state.size < to;
        Ok((truncate_seq, if is_as_it_was { to } else { 0 }))
    }

    /// Zeroes parts of some stripes until the zeros are stable. False if the file was truncated, or has grown to
    /// `to`, so that nothing is left to do.
    async fn zero_row(
        &self,
        file: &Arc<OpenFile>,
        truncate_seq: u64,
        to: u64,
        row: Vec<(u64, usize, usize)>,
    ) -> Result<bool, ClientError> {
        let io = self.modes.begin_io(file).await?;
        let (upto, lost) = {
            let mut state = file.lock();
            if state.truncate_seq != truncate_seq || to <= state.size {
                return Ok(false);
            }
            let stripe_bytes = self.link.routes.geometry_of(state.object).stripe() as u64;
            for (stripe, within, take) in row {
                // Bytes below the present size are no longer stale.
                let start = stripe * stripe_bytes + within as u64;
                let grown = state.size.saturating_sub(start).min(take as u64) as usize;
                if grown < take {
                    self.unstable.flow.change(state.lay_zeros(stripe, within + grown, take - grown));
                }
            }
            (state.order, state.wb_errors.count())
        };
        self.make_zeros_stable(file, upto).await?;
        drop(io);
        let mut state = file.lock();
        state.wb_errors.since(lost)?;
        state.zeroing.steps += 1;
        drop(state);
        file.changed.notify();
        Ok(true)
    }

    /// Waits until no zero is in flight any more, however long that takes.
    async fn make_zeros_stable(&self, file: &Arc<OpenFile>, upto: u64) -> Result<(), ClientError> {
        while let Err(error) = self.io.make_stable(file, upto).await {
            if self.modes.is_over(file) {
                return Err(error);
            }
            self.link.world.sleep(backoff_us(MANY, self.link.world.random())).await;
        }
        Ok(())
    }

    /// Reports to the service how far zeros are stable, and that none is in flight.
    async fn tell_zeroed(&self, file: &Arc<OpenFile>, truncate_seq: u64, to: u64) -> Result<(), ClientError> {
        let (client, volume, inode) = (self.link.routes.lease.client(), self.link.routes.volume, file.inode);
        loop {
            let number = {
                let mut state = file.lock();
                state.zeroing.reclaimed = false;
                state.zeroing.number
            };
            match self.link.ask(&Zeroed { client, volume, inode, number, truncate_seq, stale_end: to }).await
            {
                Ok(_) => {}
                Err(ClientError::Unreachable) if !self.modes.is_over(file) => continue,
                Err(error) => {
                    file.lock().zeroing.number = None;
                    return Err(error);
                }
            }
            let mut state = file.lock();
            // The service has restarted since, and has been told of the permission again: report again.
            if state.zeroing.reclaimed && number.is_some() {
                continue;
            }
            state.zeroing.number = None;
            if state.truncate_seq == truncate_seq && state.stale_end == to {
                state.stale_end = 0;
            }
            return Ok(());
        }
    }
}
