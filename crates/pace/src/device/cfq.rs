//! Time slices for processes, in turn.
//!
//! Source: block/cfq-iosched.c of Linux 3.13. Each process whose requests somebody waits for has a queue; all write-back of
//! one priority shares one. Queues with and without waiting programs are two classes that are served in turn. Left out:
//! the classes real-time and idle, groups, the ramp of write-back after a late read, learned think times, close
//! cooperators. Different: write-back whose oldest request has expired is not put off by new reads, so that it cannot
//! wait for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{Item, Items};
use super::parameters::Parameters;
use super::process_queue::{Owner, ProcessQueue};

/// Requests of write-back in one slice: those of priority 4.
const ASYNC_REQUESTS: u64 = 16;
/// A slice is no shorter than this, however many processes are busy.
const SLICE_MIN_US: u64 = 16_000;

#[derive(Clone, Default, Debug)]
pub(super) struct Cfq {
    queues: BTreeMap<Owner, Busy>,
    /// The busy queues but the active one, by when they are due: write-back, and those with programs that wait.
    turns: [BTreeSet<(u64, u64, Owner)>; 2],
    active: Option<Active>,
    /// The class that is served, and until when.
    class: usize,
    class_end_us: u64,
    /// Requests in flight that somebody waits for.
    sync_in_flight: u64,
    /// Where the last dispatched request ended.
    position: u64,
    /// Turns that were given, so that equals come in order.
    given: u64,
}

#[derive(Clone, Default, Debug)]
struct Busy {
    queue: ProcessQueue,
    in_flight: u64,
    /// Its key in `turns`, if it is there.
    turn: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    owner: Owner,
    end_us: u64,
    dispatched: u64,
    /// Until when it is waited for, while it has no request.
    idle_until_us: Option<u64>,
}

fn class_of(owner: Owner) -> usize {
    usize::from(owner.is_sync())
}

/// A slice of a priority: 4 has the base, each step a fifth of it.
fn scaled(base_us: u64, priority: u8) -> u64 {
    base_us + base_us * 4 / 5 - base_us / 5 * u64::from(priority)
}

impl Cfq {
    /// Queues that have requests.
    fn busy(&self) -> u64 {
        let active = self.active.is_some_and(|active| !self.is_empty(active.owner));
        (self.turns[0].len() + self.turns[1].len()) as u64 + u64::from(active)
    }

    fn is_empty(&self, owner: Owner) -> bool {
        self.queues.get(&owner).is_none_or(|busy| busy.queue.is_empty())
    }

    fn slice_us(&self, owner: Owner, parameters: &Parameters) -> u64 {
        let base = if owner.is_sync() { parameters.slice_sync_us } else { parameters.slice_async_us };
        let slice = scaled(base, owner.priority());
        // All slices of busy queues together take no longer than the target.
        let together = slice.saturating_mul(self.busy().max(1));
        if together <= parameters.target_latency_us {
            return slice;
        }
        let shrunk = slice.saturating_mul(parameters.target_latency_us) / together;
        shrunk.max(SLICE_MIN_US.min(slice))
    }

    /// Puts a queue at the end of its class: those with long slices come earlier.
    fn queue_up(&mut self, now_us: u64, owner: Owner, parameters: &Parameters) {
        let longest = scaled(parameters.slice_sync_us, 0);
        let base = if owner.is_sync() { parameters.slice_sync_us } else { parameters.slice_async_us };
        let behind = self.busy() * (longest - scaled(base, owner.priority()).min(longest));
        self.given += 1;
        let turn = (now_us.saturating_add(behind), self.given);
        if let Some(busy) = self.queues.get_mut(&owner) {
            busy.turn = Some(turn);
            self.turns[class_of(owner)].insert((turn.0, turn.1, owner));
        }
    }

    /// Takes a queue out of its class.
    fn take_out(&mut self, owner: Owner) {
        let turn = self.queues.get_mut(&owner).and_then(|busy| busy.turn.take());
        if let Some((due_us, given)) = turn {
            self.turns[class_of(owner)].remove(&(due_us, given, owner));
        }
    }

    /// Forgets a queue that has nothing waiting and nothing in flight.
    fn forget(&mut self, owner: Owner) {
        let is_idle = |busy: &Busy| busy.queue.is_empty() && busy.in_flight == 0;
        if self.queues.get(&owner).is_some_and(is_idle) {
            self.queues.remove(&owner);
        }
    }

    pub(super) fn insert(&mut self, now_us: u64, items: &Items, slot: u32, parameters: &Parameters) {
        let item = items.known(slot);
        let owner = Owner::of(item);
        self.queues.entry(owner).or_default().queue.insert(item, slot);
        let is_active = self.active.is_some_and(|active| active.owner == owner);
        if !is_active && self.queues.get(&owner).is_some_and(|busy| busy.turn.is_none()) {
            self.queue_up(now_us, owner, parameters);
        }
        // Whom somebody waits for goes before write-back, unless that has waited for long.
        let preempted = self.active.filter(|active| owner.is_sync() && !active.owner.is_sync());
        if let Some(active) = preempted
            && !self.queues.get(&active.owner).is_some_and(|busy| busy.queue.has_expired(now_us))
        {
            self.end_slice(now_us, parameters);
            self.class_end_us = now_us;
            self.class = class_of(owner);
        }
    }

    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        let item = items.known(slot);
        let owner = Owner::of(item);
        let Some(busy) = self.queues.get_mut(&owner) else { return };
        busy.queue.remove(item, slot);
        if busy.queue.is_empty() {
            self.take_out(owner);
        }
    }

    fn end_slice(&mut self, now_us: u64, parameters: &Parameters) {
        let Some(active) = self.active.take() else { return };
        if self.is_empty(active.owner) {
            self.forget(active.owner);
        } else {
            self.queue_up(now_us, active.owner, parameters);
        }
    }

    /// Whether the active queue still has its turn.
    fn keeps_turn(&mut self, now_us: u64, parameters: &Parameters) -> bool {
        let Some(active) = &mut self.active else { return false };
        if now_us >= active.end_us {
            return false;
        }
        let Some(busy) = self.queues.get(&active.owner) else { return false };
        if !busy.queue.is_empty() {
            active.idle_until_us = None;
            return active.owner.is_sync() || active.dispatched < ASYNC_REQUESTS;
        }
        if parameters.slice_idle_us == 0 || !active.owner.is_sync() {
            return false;
        }
        if busy.in_flight > 0 {
            return true;
        }
        let until = active.idle_until_us.get_or_insert(now_us.saturating_add(parameters.slice_idle_us));
        now_us < *until
    }

    /// Gives the next queue its turn.
    fn begin_slice(&mut self, now_us: u64, parameters: &Parameters) -> Option<Owner> {
        let heads = self.turns.each_ref().map(|turns| turns.first().copied());
        if heads[self.class].is_none() || now_us >= self.class_end_us {
            self.class = match heads {
                [Some(write_back), Some(process)] => usize::from(process <= write_back),
                [write_back, _] => usize::from(write_back.is_none()),
            };
            let busy = self.busy().max(1);
            let share = parameters.target_latency_us * self.turns[self.class].len() as u64 / busy;
            // Write-back has the part of its share that its slices are of others.
            let share = match self.class {
                0 => share.saturating_mul(parameters.slice_async_us) / parameters.slice_sync_us,
                _ => share,
            };
            self.class_end_us = now_us.saturating_add(share.max(SLICE_MIN_US));
        }
        let (_, _, owner) = heads[self.class]?;
        let end_us = now_us.saturating_add(self.slice_us(owner, parameters));
        self.take_out(owner);
        self.queues.get_mut(&owner)?.queue.begin();
        self.active = Some(Active { owner, end_us, dispatched: 0, idle_until_us: None });
        Some(owner)
    }

    pub(super) fn next(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<u32> {
        if !self.keeps_turn(now_us, parameters) {
            self.end_slice(now_us, parameters);
            self.begin_slice(now_us, parameters)?;
        }
        let alone = self.busy() == 1;
        let active = self.active.as_mut()?;
        let busy = self.queues.get_mut(&active.owner)?;
        // Write-back waits until no program waits for the device.
        let waits = !active.owner.is_sync() && self.sync_in_flight > 0;
        if waits || (!alone && busy.in_flight >= parameters.quantum) {
            return None;
        }
        let slot = busy.queue.next(now_us, items, self.position)?;
        busy.in_flight += 1;
        active.dispatched += 1;
        self.sync_in_flight += u64::from(active.owner.is_sync());
        self.position = items.known(slot).end();
        Some(slot)
    }

    pub(super) fn completed(&mut self, item: &Item) {
        let owner = Owner::of(item);
        self.sync_in_flight -= u64::from(owner.is_sync());
        if let Some(busy) = self.queues.get_mut(&owner) {
            busy.in_flight -= 1;
        }
        if self.active.is_none_or(|active| active.owner != owner) {
            self.forget(owner);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        self.active.and_then(|active| active.idle_until_us)
    }
}
