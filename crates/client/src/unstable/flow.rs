//! All unstable bytes of a mount: the budget, the queue of stripes to send, and pieces that wait for stability.
//!
//! ```text
//!  | gathering: partial stripes, up to half | in flight: pieces, from sealed to stable, up to 3/8 | free |
//! ```
//!
//! The more a stripe gathers before it is sent, the fewer writes there are. So a partial stripe that no caller waits
//! for is sent only while few pieces are in flight. Until then it gathers more; if the bricks are slow, gathered
//! bytes may take the whole budget. More pieces in flight than keep the bricks busy do not help, and cost more CPU
//! per byte. So they have a separate bound (docs/decisions/0026-room-for-gathering.md).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use types::{BrickId, ClientSeq, Epoch, InodeId};
use world::Notify;

use crate::error::ClientError;
use crate::state::gather::Change;
use crate::state::lock;
use crate::state::open_file::OpenFile;
use crate::state::seq_tracker::SeqTracker;
use crate::unstable::notes::Notes;

/// Number of pieces in flight from which on partial stripes are held back.
const PIECES_MAX: i64 = 128;
/// Number of pieces in flight at which partial stripes are sent again.
const PIECES_FEW: i64 = 96;
/// How long a partial stripe usually waits for more bytes, and accepted bytes for a Sync, in microseconds.
pub(crate) const AGE_MAX_US: u64 = 1_000_000;
/// Time between the acceptance of a piece and a Sync for it, if many pieces wait, in microseconds. After this time
/// most are stable already, so the Sync costs only its message.
pub(crate) const SYNC_DELAY_US: u64 = 20_000;

/// Time between the close of a written file and a Sync for what is accepted, in microseconds. Within this time a program that
/// writes many files closes more of them.
const CLOSED_US: u64 = 250_000;

/// A stripe of a file.
pub(crate) type StripeOf = (Arc<OpenFile>, u64);

/// The budget and the queues of a mount.
pub(crate) struct Flow {
    budget: u64,
    state: Mutex<FlowState>,
    /// The queue of stripes to send.
    ready: async_channel::Sender<StripeOf>,
    queue: async_channel::Receiver<StripeOf>,
    /// Notified when the timers must be checked early.
    pub(crate) timers: Notify,
    /// Notified when there may be a report to send.
    pub(crate) report_wanted: Notify,
}

/// What the lock of a [`Flow`] protects.
#[derive(Default)]
pub(crate) struct FlowState {
    /// The used part of the budget, and the number of pieces.
    holds: Change,
    /// Partial stripes are held back because too many pieces are in flight.
    crowded: bool,
    /// Accepted bytes for which no Sync is in flight.
    pub(crate) accepted: u64,
    /// When the first file was closed whose bytes were not stable and for which no Sync is in flight.
    closed: Option<u64>,
    /// Writers that wait for room, in the order of arrival.
    waiters: BTreeMap<u64, Waiter>,
    waits: u64,
    /// When the timers are checked next.
    looks_at: u64,
    /// Partial stripes by the time at which they must be sent, with the time of their first byte. Entries may be
    /// outdated.
    aging: BTreeMap<(u64, u64), (u64, Arc<OpenFile>, u64)>,
    aged: u64,
    /// Stripes to send again, by the time for that.
    backing_off: BTreeMap<(u64, u64), StripeOf>,
    rests: u64,
    /// Accepted pieces that wait for stability, by group.
    pub(crate) ledger: BTreeMap<u32, Vec<Accepted>>,
    /// The background's Syncs, by primary.
    pub(crate) syncs: BTreeMap<Option<BrickId>, Syncing>,
    /// Numbers of writes.
    pub(crate) seqs: SeqTracker,
    /// Notes that bricks must keep.
    pub(crate) notes: Notes,
    /// Files whose last `fsync` relies on a note, and when the service is told what it says.
    noted: BTreeMap<InodeId, (u64, Arc<OpenFile>)>,
    /// Files that may have reports to send.
    pub(crate) to_report: BTreeMap<InodeId, Arc<OpenFile>>,
}

/// The background's Syncs to one primary: one at a time.
#[derive(Default)]
pub(crate) struct Syncing {
    asking: bool,
    /// No new Sync before this time.
    pub(crate) backoff_until: u64,
    tries: u32,
}

/// A writer that waits for room.
struct Waiter {
    /// Bytes that it waits for; once granted, what is left of them.
    bytes: i64,
    /// The bytes have been granted.
    granted: bool,
    signal: Notify,
}

impl Waiter {
    /// Granted bytes.
    fn owned(&self) -> i64 {
        if self.granted { self.bytes } else { 0 }
    }
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

/// A writer's place in the queue for room. When dropped, the rest of its room becomes free.
pub(crate) struct Reservation<'a> {
    flow: &'a Flow,
    number: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.flow.lock();
        state.holds.used -= state.waiters.remove(&self.number).map_or(0, |w| w.owned());
        self.flow.grant(state);
    }
}

/// Accepted pieces of one group for which a Sync is in flight. When dropped, the remaining ones go back to the
/// ledger.
pub(crate) struct SyncBatch<'a> {
    flow: &'a Flow,
    pub(crate) group: u32,
    pub(crate) entries: Vec<Accepted>,
}

impl Drop for SyncBatch<'_> {
    fn drop(&mut self) {
        if !self.entries.is_empty() {
            self.flow.return_accepted(self.group, std::mem::take(&mut self.entries));
        }
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
            timers: Notify::new(),
            report_wanted: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FlowState> {
        lock(&self.state)
    }

    /// Bytes of the budget in use.
    pub(crate) fn used(&self) -> u64 {
        self.lock().holds.used.max(0) as u64
    }

    /// Takes room for buffers that grow by `grown`, first from the reservation `room`. Returns whether there was
    /// enough. Writers that have waited longer go first.
    pub(crate) fn gather(&self, room: Option<&Reservation<'_>>, grown: i64) -> bool {
        let mut state = self.lock();
        let number = room.as_ref().map_or(0, |room| room.number);
        let held = state.waiters.get(&number).map_or(0, Waiter::owned);
        let first = state.waiters.values().all(|waiter| waiter.granted);
        if grown > held && !(first && self.has_room(&state.holds, grown - held)) {
            return false;
        }
        state.holds.used += grown - held;
        state.holds.gathering += grown;
        if let Some(waiter) = state.waiters.get_mut(&number) {
            waiter.bytes = 0;
        }
        if grown < held {
            self.grant(state);
        }
        true
    }

    /// Whether `more` bytes may be taken.
    fn has_room(&self, holds: &Change, more: i64) -> bool {
        let budget = self.budget as i64;
        holds.used + more <= budget && holds.used - holds.gathering < budget / 8 * 3
    }

    /// Waits until `bytes` of the budget are free, and takes them.
    pub(crate) async fn reserve(&self, bytes: i64) -> Result<Reservation<'_>, ClientError> {
        let signal = Notify::new();
        let room = {
            let mut state = self.lock();
            state.waits += 1;
            let number = state.waits;
            state.waiters.insert(number, Waiter { bytes, granted: false, signal: signal.clone() });
            self.grant(state);
            Reservation { flow: self, number }
        };
        loop {
            let changed = signal.wait();
            if self.lock().waiters.get(&room.number).is_some_and(|waiter| waiter.granted) {
                return Ok(room);
            }
            if self.ready.is_closed() {
                return Err(ClientError::Unmounted);
            }
            self.timers.notify();
            changed.await;
        }
    }

    /// Grants free room to waiting writers, in their order.
    fn grant(&self, mut state: MutexGuard<'_, FlowState>) {
        let state = &mut *state;
        for waiter in state.waiters.values_mut().filter(|waiter| !waiter.granted) {
            if !self.has_room(&state.holds, waiter.bytes) {
                break;
            }
            state.holds.used += waiter.bytes;
            waiter.granted = true;
            waiter.signal.notify();
        }
    }

    /// Records a change of the buffers, except growth for a writer.
    pub(crate) fn change(&self, change: Change) {
        let mut state = self.lock();
        state.holds += change;
        if state.crowded && state.holds.pieces <= PIECES_FEW {
            state.crowded = false;
            self.timers.notify();
        }
        if change.used < 0 {
            self.grant(state);
        }
    }

    /// Queues a stripe to be sent. The caller sets its `queued` mark, so that it is not queued twice.
    pub(crate) fn push(&self, stripe: StripeOf) {
        // This fails after the mount has ended, when nothing is sent any more.
        let _ = self.ready.try_send(stripe);
    }

    /// The next stripe to send; `None` when the mount has ended.
    pub(crate) async fn next(&self) -> Option<StripeOf> {
        self.queue.recv().await.ok()
    }

    /// Ends all waits here.
    pub(crate) fn close(&self) {
        self.ready.close();
        self.lock().waiters.values().for_each(|waiter| waiter.signal.notify());
        self.timers.notify();
        self.report_wanted.notify();
    }

    /// Schedules a stripe to be queued again at the time `due`.
    pub(crate) fn back_off(&self, due: u64, stripe: StripeOf) {
        let mut state = self.lock();
        state.rests += 1;
        let number = state.rests;
        state.backing_off.insert((due, number), stripe);
        drop(state);
        self.timers.notify();
    }

    /// The next stripe whose pause is over.
    pub(crate) fn take_backed_off(&self, now: u64) -> Option<StripeOf> {
        let mut state = self.lock();
        let first = state.backing_off.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The oldest partial stripe and its start, if it must be sent: it is too old or too much has gathered, and not
    /// too many pieces are in flight. May be outdated.
    pub(crate) fn take_aged(&self, now: u64) -> Option<(u64, Arc<OpenFile>, u64)> {
        let mut state = self.lock();
        let ((due, _), _) = state.aging.first_key_value()?;
        if *due > now && !self.is_full_of_gathering(&state) {
            return None;
        }
        if !state.crowded && state.holds.pieces >= PIECES_MAX {
            state.crowded = true;
            self.timers.notify();
        }
        if state.crowded { None } else { state.aging.pop_first().map(|(_, entry)| entry) }
    }

    /// Whether partial stripes take so much that a waiting writer might not get room from the rest.
    fn is_full_of_gathering(&self, state: &FlowState) -> bool {
        state.holds.gathering > self.budget as i64 / 2
    }

    /// Whether it is time for [`Flow::take_aged`].
    pub(crate) fn is_overfull(&self) -> bool {
        let state = self.lock();
        !state.crowded && self.is_full_of_gathering(&state)
    }

    /// When the next pause ends or the next partial stripe is too old.
    pub(crate) fn next_timer(&self) -> u64 {
        let state = self.lock();
        let rested = state.backing_off.first_key_value().map_or(u64::MAX, |((due, _), _)| *due);
        // Stripes held back because of `crowded` are checked when that ends.
        let oldest = state.aging.first_key_value().filter(|_| !state.crowded);
        rested.min(oldest.map_or(u64::MAX, |((due, _), _)| *due))
    }

    /// Adds an accepted piece, which waits for stability from now on.
    pub(crate) fn accept(&self, group: u32, accepted: Accepted) {
        let mut state = self.lock();
        state.accepted += accepted.bytes;
        let due = accepted.since + SYNC_DELAY_US;
        state.ledger.entry(group).or_default().push(accepted);
        let early = self.is_pressed(&state) && due < state.looks_at;
        drop(state);
        if early {
            self.timers.notify();
        }
    }

    /// A file was closed, and its bytes are not stable.
    pub(crate) fn closed(&self, now: u64) {
        self.lock().closed.get_or_insert(now);
    }

    /// Whether room is short or there are too many pieces. Then accepted pieces are synced as soon as that is cheap.
    fn is_pressed(&self, state: &FlowState) -> bool {
        state.accepted >= self.budget / 8 || state.crowded || !state.waiters.is_empty()
    }

    /// Sets when the timers are checked next.
    pub(crate) fn looks_at(&self, when: u64) {
        self.lock().looks_at = when;
    }

    /// Records that a stripe gathers since `now`, until `due`.
    pub(crate) fn age(&self, now: u64, due: u64, file: &Arc<OpenFile>, stripe: u64) {
        let mut state = self.lock();
        state.aged += 1;
        let number = state.aged;
        state.aging.insert((due, number), (now, file.clone(), stripe));
        let early = due < state.looks_at;
        drop(state);
        if early && due < now + AGE_MAX_US {
            self.timers.notify();
        }
    }

    /// Takes the pieces of a group that were accepted no later than `since`.
    pub(crate) fn take_accepted(&self, group: u32, since: u64) -> SyncBatch<'_> {
        self.take_entries(group, |entry| entry.since <= since)
    }

    /// Takes the pieces of a group that are stable if everything up to `seq` is: accepted in `epoch`, before the time
    /// `asked`.
    pub(crate) fn take_stable(&self, group: u32, epoch: Epoch, seq: ClientSeq, asked: u64) -> SyncBatch<'_> {
        self.take_entries(group, |entry| entry.epoch == epoch && entry.seq <= seq && entry.since < asked)
    }

    fn take_entries(&self, group: u32, wanted: impl Fn(&Accepted) -> bool) -> SyncBatch<'_> {
        let mut state = self.lock();
        let waiting = state.ledger.get_mut(&group);
        let entries: Vec<Accepted> =
            waiting.map(|entries| entries.extract_if(.., |e| wanted(e)).collect()).unwrap_or_default();
        state.accepted -= entries.iter().map(|e| e.bytes).sum::<u64>();
        SyncBatch { flow: self, group, entries }
    }

    /// Puts back pieces that did not become stable.
    fn return_accepted(&self, group: u32, mut entries: Vec<Accepted>) {
        let mut state = self.lock();
        state.accepted += entries.iter().map(|e| e.bytes).sum::<u64>();
        let ledger = state.ledger.entry(group).or_default();
        entries.append(ledger);
        *ledger = entries;
    }

    /// The groups for which the background must send a Sync now, by primary. These primaries count as asked until
    /// [`Flow::end_sync`]. Also returns the time of the next check.
    pub(crate) fn take_due_groups(
        &self,
        now: u64,
        primary: impl Fn(u32) -> Option<BrickId>,
    ) -> (BTreeMap<Option<BrickId>, Vec<u32>>, u64) {
        let mut state = self.lock();
        let patience = match self.is_pressed(&state) {
            _ if !state.waiters.is_empty() => SYNC_DELAY_US,
            // Wait longer, so that one Sync covers more.
            true => 2 * SYNC_DELAY_US,
            false => AGE_MAX_US,
        };
        let closed = state.closed.map_or(u64::MAX, |closed| closed + CLOSED_US);
        if closed <= now {
            state.closed = None;
        }
        let (mut shares, mut next) = (BTreeMap::<_, (u64, Vec<u32>)>::new(), u64::MAX);
        for (group, entries) in &state.ledger {
            let Some(oldest) = entries.first() else { continue };
            let (due, groups) = shares.entry(primary(*group)).or_insert((u64::MAX, Vec::new()));
            *due = oldest.since.saturating_add(patience).min(closed).min(*due);
            groups.push(*group);
        }
        shares.retain(|primary, (due, _)| {
            let syncing = state.syncs.entry(*primary).or_default();
            let when = syncing.backoff_until.max(*due);
            if syncing.asking {
                return false;
            }
            if when > now {
                next = next.min(when);
                return false;
            }
            syncing.asking = true;
            true
        });
        (shares.into_iter().map(|(primary, (_, groups))| (primary, groups)).collect(), next)
    }

    /// The background's Sync to a primary has ended.
    pub(crate) fn end_sync(&self, primary: Option<BrickId>, failed: bool, rest: impl Fn(u32) -> u64) {
        let mut state = self.lock();
        let syncing = state.syncs.entry(primary).or_default();
        syncing.asking = false;
        syncing.tries = if failed { syncing.tries + 1 } else { 0 };
        syncing.backoff_until = rest(syncing.tries);
        drop(state);
        self.timers.notify();
    }

    /// Queues a file for the background's reports, if it may have any. After a write and an fsync that has reported
    /// it, the background need not wake up.
    pub(crate) fn queue_report(&self, file: &Arc<OpenFile>) {
        if !file.lock().has_unreported() {
            return;
        }
        self.lock().to_report.insert(file.inode, file.clone());
        self.report_wanted.notify();
    }

    /// An `fsync` relies on a note: the service is told later, once for many of them.
    pub(crate) fn report_later(&self, now: u64, file: &Arc<OpenFile>) {
        let mut state = self.lock();
        let (_, known) = state.noted.entry(file.inode).or_insert_with(|| (now + AGE_MAX_US, file.clone()));
        // It may have been closed and opened again.
        if !Arc::ptr_eq(known, file) {
            *known = file.clone();
        }
    }

    /// The client that has noted is lost: the service asks the bricks.
    pub(crate) fn forget_notes(&self) {
        let mut state = self.lock();
        state.notes = Notes::default();
        state.noted.clear();
    }

    /// Queues the files for reports whose notes are old.
    pub(crate) fn report_noted(&self, now: u64) {
        let due: Vec<Arc<OpenFile>> = {
            let mut state = self.lock();
            state.noted.extract_if(.., |_, (due, _)| *due <= now).map(|(_, (_, file))| file).collect()
        };
        for file in due.into_iter().filter(|file| file.lock().stable_note().is_some()) {
            file.lock().note_is_due();
            self.queue_report(&file);
        }
    }

    /// Takes up to `count` files that may have reports to send.
    pub(crate) fn take_to_report(&self, count: usize) -> Vec<Arc<OpenFile>> {
        let mut state = self.lock();
        std::iter::from_fn(|| state.to_report.pop_first()).take(count).map(|(_, file)| file).collect()
    }
}
