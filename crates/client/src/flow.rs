//! The mount's unstable bytes in all: the budget, whose turn it is to be sent, and what waits for stability.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use types::{ClientSeq, Epoch, InodeId};
use world::Signal;

use crate::error::ClientError;
use crate::mount::lock;
use crate::numbers::Numbers;
use crate::open_file::OpenFile;
use crate::write_behind::AGE_MAX_US;

/// A stripe of a file.
pub(crate) type StripeOf = (Arc<OpenFile>, u64);

/// See the module.
pub(crate) struct Flow {
    budget: u64,
    state: Mutex<FlowState>,
    /// Stripes that somebody is to send, and the way to them.
    ready: async_channel::Sender<StripeOf>,
    queue: async_channel::Receiver<StripeOf>,
    /// Given when budget becomes free.
    room: Signal,
    /// Given when there is something to look after before its time.
    pub(crate) tend: Signal,
    /// Given when the service may have to be told something.
    pub(crate) settle: Signal,
}

/// What the lock of a [`Flow`] protects.
#[derive(Default)]
pub(crate) struct FlowState {
    /// Bytes of the budget in use.
    used: i64,
    /// Those of them whose contents may still change.
    pub(crate) gathering: i64,
    /// Those of them that wait for stability and that nobody has asked to make stable.
    pub(crate) accepted: u64,
    /// Writers that wait for room.
    pub(crate) waiting: usize,
    /// Partial stripes by the time when they began. Entries may be out of date.
    aging: VecDeque<(u64, Arc<OpenFile>, u64)>,
    /// Stripes that are to be sent again, by the time when.
    resting: BTreeMap<(u64, u64), StripeOf>,
    rests: u64,
    /// What waits for stability, by group.
    pub(crate) ledger: BTreeMap<u32, GroupLedger>,
    /// Numbers of the writes.
    pub(crate) seqs: Numbers,
    /// Files that the service may have to hear of.
    pub(crate) settling: BTreeMap<InodeId, Arc<OpenFile>>,
}

/// What waits for stability in one group.
#[derive(Default)]
pub(crate) struct GroupLedger {
    pub(crate) entries: Vec<Accepted>,
    /// The background is having some made stable.
    pub(crate) syncing: bool,
    /// The background does not try again before this time.
    pub(crate) rest_until: u64,
    pub(crate) tries: u32,
}

/// A piece that a primary has accepted.
pub(crate) struct Accepted {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) stripe: u64,
    pub(crate) order: u64,
    pub(crate) seq: ClientSeq,
    pub(crate) epoch: Epoch,
    pub(crate) bytes: u64,
    /// When it was accepted.
    pub(crate) since: u64,
}

/// Budget taken for a write that is being copied; what it does not keep goes back.
pub(crate) struct Room<'a> {
    flow: &'a Flow,
    bytes: i64,
}

impl Room<'_> {
    /// The buffers have grown by so much.
    pub(crate) fn keep(mut self, grown: i64) {
        self.bytes -= grown;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.flow.free(self.bytes);
    }
}

/// Accepted pieces of one group that somebody is having made stable; what is left of them when this is dropped goes
/// back.
pub(crate) struct Taken<'a> {
    flow: &'a Flow,
    pub(crate) group: u32,
    pub(crate) entries: Vec<Accepted>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.entries.is_empty() {
            self.flow.return_accepted(self.group, std::mem::take(&mut self.entries));
        }
    }
}

/// Counts a writer as waiting for as long as it does.
struct Waiting<'a>(&'a Flow);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Flow {
    pub(crate) fn new(budget: u64) -> Flow {
        let (ready, queue) = async_channel::unbounded();
        Flow {
            budget,
            state: Mutex::default(),
            ready,
            queue,
            room: Signal::new(),
            tend: Signal::new(),
            settle: Signal::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FlowState> {
        lock(&self.state)
    }

    /// Bytes of the budget in use.
    pub(crate) fn used(&self) -> u64 {
        self.lock().used.max(0) as u64
    }

    /// Waits until `bytes` of the budget are free, and takes them.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<Room<'_>, ClientError> {
        let mut waiting = None;
        loop {
            let room = self.room.wait();
            {
                let mut state = self.lock();
                if state.used + bytes as i64 <= self.budget as i64 {
                    state.used += bytes as i64;
                    drop(state);
                    return Ok(Room { flow: self, bytes: bytes as i64 });
                }
                if waiting.is_none() {
                    state.waiting += 1;
                }
            }
            waiting.get_or_insert_with(|| Waiting(self));
            if self.ready.is_closed() {
                return Err(ClientError::Left);
            }
            self.tend.notify();
            room.await;
        }
    }

    /// Gives `bytes` of the budget back.
    pub(crate) fn free(&self, bytes: i64) {
        if bytes != 0 {
            let mut state = self.lock();
            state.used -= bytes;
            let wanted = bytes > 0 && state.waiting > 0;
            drop(state);
            if wanted {
                self.room.notify();
            }
        }
    }

    /// Puts a stripe into the queue of those to be sent. Its `queued` mark keeps it from standing there twice.
    pub(crate) fn push(&self, stripe: StripeOf) {
        // After the mount has ended nobody sends any more.
        let _ = self.ready.try_send(stripe);
    }

    /// The next stripe to be sent; `None` when the mount has ended.
    pub(crate) async fn next(&self) -> Option<StripeOf> {
        self.queue.recv().await.ok()
    }

    /// Ends everything that waits here.
    pub(crate) fn close(&self) {
        self.ready.close();
        self.room.notify();
        self.tend.notify();
        self.settle.notify();
    }

    /// Has a stripe queued again at the time `due`.
    pub(crate) fn rest(&self, due: u64, stripe: StripeOf) {
        let mut state = self.lock();
        state.rests += 1;
        let number = state.rests;
        state.resting.insert((due, number), stripe);
        drop(state);
        self.tend.notify();
    }

    /// The next stripe whose rest is over.
    pub(crate) fn take_rested(&self, now: u64) -> Option<StripeOf> {
        let mut state = self.lock();
        let first = state.resting.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Bytes of partial stripes beyond what may wait for more.
    pub(crate) fn gathering_excess(&self) -> i64 {
        // The rest of the budget is on its way to stability, so a writer that waits for room gets it without these.
        self.lock().gathering - self.budget as i64 / 8
    }

    /// The oldest partial stripe and when it began, if it is too old, or `anyway`. May be out of date.
    pub(crate) fn take_aged(&self, now: u64, anyway: bool) -> Option<(u64, Arc<OpenFile>, u64)> {
        let mut state = self.lock();
        let (since, ..) = state.aging.front()?;
        if anyway || since + AGE_MAX_US <= now { state.aging.pop_front() } else { None }
    }

    /// When the next rest is over or the next partial stripe too old.
    pub(crate) fn next_timer(&self) -> u64 {
        let state = self.lock();
        let rested = state.resting.first_key_value().map_or(u64::MAX, |((due, _), _)| *due);
        let aged = state.aging.front().map_or(u64::MAX, |(since, ..)| since + AGE_MAX_US);
        rested.min(aged)
    }

    /// Notes a piece that waits for stability from now on.
    pub(crate) fn accept(&self, group: u32, accepted: Accepted) {
        let mut state = self.lock();
        state.accepted += accepted.bytes;
        let ledger = state.ledger.entry(group).or_default();
        ledger.entries.push(accepted);
        let many = state.accepted >= self.budget / 2;
        drop(state);
        if many {
            self.tend.notify();
        }
    }

    /// Notes that a stripe gathers since `now`.
    pub(crate) fn age(&self, now: u64, file: &Arc<OpenFile>, stripe: u64) {
        self.lock().aging.push_back((now, file.clone(), stripe));
    }

    /// Takes everything out that waits for stability in a group.
    pub(crate) fn take_accepted(&self, group: u32) -> Taken<'_> {
        let mut state = self.lock();
        let entries =
            state.ledger.get_mut(&group).map(|l| std::mem::take(&mut l.entries)).unwrap_or_default();
        state.accepted -= entries.iter().map(|e| e.bytes).sum::<u64>();
        Taken { flow: self, group, entries }
    }

    /// Puts back what could not be made stable.
    fn return_accepted(&self, group: u32, mut entries: Vec<Accepted>) {
        let mut state = self.lock();
        state.accepted += entries.iter().map(|e| e.bytes).sum::<u64>();
        let ledger = state.ledger.entry(group).or_default();
        entries.append(&mut ledger.entries);
        ledger.entries = entries;
    }

    /// Marks the groups that the background is to have made stable now; also says when to look again.
    pub(crate) fn take_due_groups(&self, now: u64) -> (Vec<u32>, u64) {
        let mut state = self.lock();
        let much = state.accepted >= self.budget / 2;
        let (mut due, mut next) = (Vec::new(), u64::MAX);
        for (group, ledger) in &mut state.ledger {
            let Some(oldest) = ledger.entries.first() else { continue };
            if ledger.syncing {
                continue;
            }
            let when = if much { 0 } else { oldest.since + AGE_MAX_US }.max(ledger.rest_until);
            if when <= now {
                ledger.syncing = true;
                due.push(*group);
            } else {
                next = next.min(when);
            }
        }
        (due, next)
    }

    /// The background's attempt with these groups has ended.
    pub(crate) fn end_sync(&self, groups: &[u32], failed: bool, rest: impl Fn(u32) -> u64) {
        let mut state = self.lock();
        for group in groups {
            if let Some(ledger) = state.ledger.get_mut(group) {
                ledger.syncing = false;
                ledger.tries = if failed { ledger.tries + 1 } else { 0 };
                ledger.rest_until = rest(ledger.tries);
            }
        }
        drop(state);
        self.tend.notify();
    }

    /// Has the background look whether the service must be told something of a file.
    pub(crate) fn settle(&self, file: &Arc<OpenFile>) {
        self.lock().settling.insert(file.inode, file.clone());
        self.settle.notify();
    }

    /// Some of the files that the service may have to hear of.
    pub(crate) fn take_settling(&self, count: usize) -> Vec<Arc<OpenFile>> {
        let mut state = self.lock();
        std::iter::from_fn(|| state.settling.pop_first()).take(count).map(|(_, file)| file).collect()
    }
}
