//! Budgets of bytes for processes, by virtual time (B-WF2Q+).
//!
//! Source: block/bfq-iosched.c of Linux and its documentation. A queue's turn ends when its budget is spent, when it is
//! empty, or with a timeout. Its next budget follows from how that went. Left out: raised weights of interactive and
//! soft real-time programs, injection, merged queues of cooperating processes, groups.

use std::collections::{BTreeMap, BTreeSet};

use super::item::{Item, Items};
use super::parameters::Parameters;
use super::process_queue::{Owner, ProcessQueue};

/// The least budget is a so-many-th of the largest.
const BUDGET_PARTS: u64 = 32;
/// Virtual time has so many steps for a byte at weight 1.
const STEPS: u64 = 1 << 10;
/// Most queues that are kept only because they had more than their share.
const QUEUES_MAX: usize = 1024;

#[derive(Clone, Default, Debug)]
pub(super) struct Bfq {
    queues: BTreeMap<Owner, Busy>,
    /// Queues that may be served, by virtual finish time.
    eligible: BTreeSet<(u64, Owner)>,
    /// Queues whose virtual start has not come, by that.
    early: BTreeSet<(u64, Owner)>,
    active: Option<Active>,
    /// Virtual time.
    time: u64,
    /// Weights of all busy queues.
    weights: u64,
    /// Where the last dispatched request ended.
    position: u64,
}

#[derive(Clone, Default, Debug)]
struct Busy {
    queue: ProcessQueue,
    /// Bytes that it may have in its next turn.
    budget: u64,
    start: u64,
    finish: u64,
    in_flight: u64,
    /// Whether it is in `eligible` or `early`.
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    owner: Owner,
    served: u64,
    end_us: u64,
    idle_until_us: Option<u64>,
}

fn weight(owner: Owner) -> u64 {
    (8 - u64::from(owner.priority().min(7))) * 10
}

/// Virtual time that so many bytes take.
fn span(bytes: u64, weight: u64) -> u64 {
    bytes.saturating_mul(STEPS) / weight.max(1)
}

/// Why a turn ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Spent,
    Empty,
    Late,
}

impl Bfq {
    /// Puts a busy queue among those that wait for a turn.
    fn queue_up(&mut self, owner: Owner) {
        let Some(busy) = self.queues.get_mut(&owner) else { return };
        // Who was away does not get what it has not used.
        busy.start = busy.start.max(self.time);
        busy.finish = busy.start.saturating_add(span(busy.budget, weight(owner)));
        busy.waits = true;
        self.weights += weight(owner);
        if busy.start <= self.time {
            self.eligible.insert((busy.finish, owner));
        } else {
            self.early.insert((busy.start, owner));
        }
    }

    fn take_out(&mut self, owner: Owner) {
        let Some(busy) = self.queues.get_mut(&owner) else { return };
        if busy.waits {
            busy.waits = false;
            self.weights -= weight(owner);
            self.eligible.remove(&(busy.finish, owner));
            self.early.remove(&(busy.start, owner));
        }
    }

    pub(super) fn insert(&mut self, items: &Items, slot: u32, parameters: &Parameters) {
        let item = items.known(slot);
        let owner = Owner::of(item);
        let time = self.time;
        let least = parameters.budget / BUDGET_PARTS;
        let new = || Busy { budget: least.max(1), start: time, finish: time, ..Busy::default() };
        let busy = self.queues.entry(owner).or_insert_with(new);
        busy.queue.insert(item, slot);
        let waits = busy.waits || self.active.is_some_and(|active| active.owner == owner);
        if !waits {
            self.queue_up(owner);
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

    fn end_turn(&mut self, ending: Ending, parameters: &Parameters) {
        let Some(active) = self.active.take() else { return };
        let Some(busy) = self.queues.get_mut(&active.owner) else { return };
        let (least, most) = ((parameters.budget / BUDGET_PARTS).max(1), parameters.budget);
        busy.budget = match ending {
            Ending::Spent => busy.budget.saturating_mul(2),
            Ending::Empty => active.served,
            Ending::Late => busy.budget / 2,
        }
        .clamp(least, most);
        // It has had so much: the next turn starts where this one ends.
        busy.start = busy.start.saturating_add(span(active.served, weight(active.owner)));
        if !busy.queue.is_empty() {
            self.queue_up(active.owner);
        } else {
            self.forget(active.owner);
        }
    }

    /// Forgets a queue that has nothing left to remember.
    fn forget(&mut self, owner: Owner) {
        let (time, are_many) = (self.time, self.queues.len() > QUEUES_MAX);
        let is_over = |busy: &Busy| {
            busy.queue.is_empty() && busy.in_flight == 0 && !busy.waits && (busy.start <= time || are_many)
        };
        if self.queues.get(&owner).is_some_and(is_over) {
            self.queues.remove(&owner);
        }
    }

    /// Why the turn of the active queue ends now, if it does.
    fn ending(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<Ending> {
        let Some(active) = &mut self.active else { return Some(Ending::Empty) };
        let Some(busy) = self.queues.get(&active.owner) else { return Some(Ending::Empty) };
        if now_us >= active.end_us {
            return Some(Ending::Late);
        }
        if let Some(slot) = busy.queue.peek(self.position) {
            active.idle_until_us = None;
            let fits = active.served == 0 || active.served + items.known(slot).length <= busy.budget;
            return (!fits).then_some(Ending::Spent);
        }
        if parameters.slice_idle_us == 0 || !active.owner.is_sync() {
            return Some(Ending::Empty);
        }
        if busy.in_flight > 0 {
            return None;
        }
        let until = active.idle_until_us.get_or_insert(now_us.saturating_add(parameters.slice_idle_us));
        (now_us >= *until).then_some(Ending::Empty)
    }

    fn begin_turn(&mut self, now_us: u64, parameters: &Parameters) -> Option<()> {
        if self.eligible.is_empty() {
            // Nobody may be served, so time goes on to the first who may.
            self.time = self.time.max(self.early.first()?.0);
        }
        while let Some((_, owner)) = self.early.first().copied().filter(|(start, _)| *start <= self.time) {
            self.early.pop_first();
            if let Some(busy) = self.queues.get(&owner) {
                self.eligible.insert((busy.finish, owner));
            }
        }
        let (_, owner) = self.eligible.first().copied()?;
        self.take_out(owner);
        self.queues.get_mut(&owner)?.queue.begin();
        let end_us = now_us.saturating_add(parameters.budget_timeout_us);
        self.active = Some(Active { owner, served: 0, end_us, idle_until_us: None });
        Some(())
    }

    pub(super) fn next(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<u32> {
        if let Some(ending) = self.ending(now_us, items, parameters) {
            self.end_turn(ending, parameters);
            self.begin_turn(now_us, parameters)?;
        }
        let active = self.active.as_mut()?;
        let busy = self.queues.get_mut(&active.owner)?;
        let slot = busy.queue.next(now_us, items, self.position)?;
        let item = items.known(slot);
        busy.in_flight += 1;
        active.served += item.length;
        self.position = item.end();
        self.time = self.time.saturating_add(span(item.length, self.weights + weight(active.owner)));
        Some(slot)
    }

    pub(super) fn completed(&mut self, item: &Item) {
        let owner = Owner::of(item);
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
