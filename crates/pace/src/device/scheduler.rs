//! The scheduler: merging, dependencies and flushes, around a policy that knows only the order.

use std::collections::VecDeque;

use super::item::{Item, Items, Ranges, State};
use super::parameters::{Parameters, PolicyName};
use super::policy::Policy;
use super::process_queue::Owner;
use super::request::{Counters, Direction, Dispatch, Operation, Refusal, Request, Token};
use super::slots::{NONE, Slots};

/// A request, and the next one of its item.
#[derive(Clone, Debug)]
struct Member {
    request: Request,
    next: u32,
    /// How many flushes had been added before it: see [`Flushes`].
    epoch: u64,
}

/// That `waiter` waits for an item, and the next one that does.
#[derive(Clone, Debug)]
struct Edge {
    waiter: u32,
    next: u32,
}

/// Flushes, and the writes that they wait for. The writes between two flushes are an epoch.
#[derive(Clone, Debug)]
struct Flushes {
    /// Flushes that wait; one follows each epoch but the last.
    waiting: VecDeque<u32>,
    /// Writes of each epoch that are not complete.
    writes: VecDeque<u64>,
    /// The number of the first of them.
    first: u64,
    /// Flushes that may go.
    ready: VecDeque<u32>,
}

impl Flushes {
    fn new() -> Flushes {
        let (waiting, ready) = (VecDeque::new(), VecDeque::new());
        Flushes { waiting, writes: VecDeque::from([0]), first: 0, ready }
    }

    /// A write was added. Returns its epoch.
    fn wrote(&mut self) -> u64 {
        if let Some(last) = self.writes.back_mut() {
            *last += 1;
        }
        self.first + self.writes.len() as u64 - 1
    }

    fn add(&mut self, slot: u32) {
        if self.writes.len() == 1 && self.writes[0] == 0 {
            self.ready.push_back(slot);
        } else {
            self.waiting.push_back(slot);
            self.writes.push_back(0);
        }
    }

    /// A write of this epoch is complete.
    fn completed(&mut self, epoch: u64) {
        if let Some(writes) = self.writes.get_mut((epoch - self.first) as usize) {
            *writes -= 1;
        }
        while self.writes.len() > 1 && self.writes[0] == 0 {
            self.writes.pop_front();
            self.first += 1;
            self.ready.extend(self.waiting.pop_front());
        }
    }
}

/// Puts the requests of one device in order. See the [module](super) for what it promises.
#[derive(Clone, Debug)]
pub struct Scheduler {
    name: PolicyName,
    policy: Policy,
    parameters: Parameters,
    items: Items,
    members: Slots<Member>,
    edges: Slots<Edge>,
    /// Writes that are released: no two overlap.
    writes: Ranges,
    /// Reads that are released.
    reads: Ranges,
    /// Held ones, without those that a later held write covers: who overlaps them overlaps that one.
    held: Ranges,
    flushes: Flushes,
    number: u64,
    waiting: usize,
    in_flight: u64,
    counters: Counters,
    /// Kept, so that it is not allocated again.
    found: Vec<u32>,
}

impl Scheduler {
    /// An empty one. Refused if a parameter is out of its range.
    pub fn new(name: PolicyName, parameters: Parameters) -> Result<Scheduler, Refusal> {
        parameters.check()?;
        Ok(Scheduler {
            name,
            policy: Policy::new(name, &parameters),
            parameters,
            items: Slots::default(),
            members: Slots::default(),
            edges: Slots::default(),
            writes: Ranges::default(),
            reads: Ranges::default(),
            held: Ranges::default(),
            flushes: Flushes::new(),
            number: 0,
            waiting: 0,
            in_flight: 0,
            counters: Counters::default(),
            found: Vec::new(),
        })
    }

    /// Its policy.
    pub fn policy(&self) -> PolicyName {
        self.name
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What can be tuned.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Sets a parameter by its name. Deadlines and merges of what already waits stay as they are.
    pub fn tune(&mut self, name: &str, value: u64) -> Result<(), Refusal> {
        self.parameters.set(name, value)
    }

    /// The dispatch priority in use, in bytes: the parameter, or what `slq-auto` has found.
    pub fn priority(&self, direction: Direction) -> u64 {
        self.policy.priority(direction, &self.parameters)
    }

    /// Items that are neither in flight nor complete; merged requests count once.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Dispatches that are not complete.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Takes a request. `now_us` never goes back.
    pub fn add(&mut self, now_us: u64, request: Request) -> Result<(), Refusal> {
        request.check()?;
        self.number += 1;
        let epoch = if request.operation == Operation::Write { self.flushes.wrote() } else { 0 };
        let member = self.members.put(Member { request, next: NONE, epoch });
        let item = Item {
            operation: request.operation,
            offset: request.offset,
            length: request.length,
            process: request.process,
            priority: request.priority,
            waited_for: request.waited_for,
            added_us: now_us,
            deadline_us: now_us.saturating_add(self.policy.expiry_us(&request, &self.parameters)),
            dispatched_us: 0,
            number: self.number,
            state: State::Waiting,
            first: member,
            last: member,
            count: 1,
            edges: NONE,
        };
        if request.operation == Operation::Flush {
            let slot = self.items.put(item);
            self.flushes.add(slot);
            self.waiting += 1;
            return Ok(());
        }
        self.find_conflicts(&item);
        if !self.found.is_empty() {
            self.hold(item);
        } else if !self.merge(now_us, &item) {
            let slot = self.items.put(item);
            self.waiting += 1;
            self.release(now_us, slot);
        }
        Ok(())
    }

    /// What the device should do next, if it may have one more and anything may go.
    pub fn dispatch(&mut self, now_us: u64) -> Option<Dispatch> {
        if self.in_flight >= self.parameters.depth {
            return None;
        }
        let slot = match self.flushes.ready.pop_front() {
            Some(flush) => flush,
            None => self.policy.next(now_us, &self.items, &self.parameters)?,
        };
        self.in_flight += 1;
        self.waiting -= 1;
        let item = self.items.known_mut(slot);
        (item.state, item.dispatched_us) = (State::InFlight, now_us);
        match item.operation {
            Operation::Read => self.counters.reads += 1,
            Operation::Write => self.counters.writes += 1,
            Operation::Flush => self.counters.flushes += 1,
        }
        if item.operation != Operation::Flush && item.deadline_us <= now_us {
            self.counters.expiries += 1;
        }
        let token = Token { slot, number: item.number };
        Some(Dispatch { token, operation: item.operation, offset: item.offset, length: item.length })
    }

    /// The requests of a dispatch, in the order of their bytes. None if it is not in flight.
    pub fn requests(&self, token: Token) -> impl Iterator<Item = &Request> + '_ {
        let first = self.in_flight_of(token).map_or(NONE, |item| item.first);
        let mut next = first;
        std::iter::from_fn(move || {
            let member = self.members.get(next)?;
            next = member.next;
            Some(&member.request)
        })
    }

    /// The device has done it. False if it is not in flight: nothing happens then.
    pub fn complete(&mut self, now_us: u64, token: Token) -> bool {
        if self.in_flight_of(token).is_none() {
            return false;
        }
        let Some(item) = self.items.take(token.slot) else { return false };
        self.in_flight -= 1;
        let mut next = item.first;
        while let Some(member) = self.members.take(next) {
            next = member.next;
            if item.operation == Operation::Write {
                self.flushes.completed(member.epoch);
            }
        }
        if item.operation == Operation::Flush {
            return true;
        }
        self.released(item.direction()).remove(&item, token.slot);
        self.policy.completed(now_us, &self.items, &item, &self.parameters);
        let mut edge = item.edges;
        while let Some(Edge { waiter, next }) = self.edges.take(edge) {
            edge = next;
            let held = self.items.known_mut(waiter);
            match held.state {
                State::Held(others) if others > 1 => held.state = State::Held(others - 1),
                _ => {
                    self.held.remove(held, waiter);
                    held.state = State::Waiting;
                    self.release(now_us, waiter);
                }
            }
        }
        true
    }

    /// When [`Scheduler::dispatch`] may return something though nothing was added and nothing completed meanwhile.
    /// Only with `slice-idle` above 0.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.policy.next_wakeup()
    }

    fn in_flight_of(&self, token: Token) -> Option<&Item> {
        let item = self.items.get(token.slot)?;
        (item.number == token.number && item.state == State::InFlight).then_some(item)
    }

    fn released(&mut self, direction: Direction) -> &mut Ranges {
        match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        }
    }

    /// Notes in `found` what `item` must not overtake.
    fn find_conflicts(&mut self, item: &Item) {
        let (from, to, items) = (item.offset, item.end(), &self.items);
        let writes = |slot: u32| items.known(slot).operation == Operation::Write;
        let is_write = item.operation == Operation::Write;
        self.found.clear();
        self.found.extend(self.writes.overlapping_apart(items, from, to));
        if is_write {
            self.found.extend(self.reads.overlapping(items, from, to));
        }
        let held = self.held.overlapping(items, from, to);
        self.found.extend(held.filter(|slot| is_write || writes(*slot)));
    }

    /// Keeps a new item until all in `found` are complete.
    fn hold(&mut self, mut item: Item) {
        let (from, to) = (item.offset, item.end());
        item.state = State::Held(self.found.len() as u32);
        let covers = item.operation == Operation::Write;
        let waiter = self.items.put(item);
        for slot in self.found.drain(..) {
            let before = self.items.known_mut(slot);
            before.edges = self.edges.put(Edge { waiter, next: before.edges });
            let is_covered = covers && before.offset >= from && before.end() <= to;
            if is_covered && matches!(before.state, State::Held(_)) {
                self.held.remove(before, slot);
            }
        }
        self.held.insert(self.items.known(waiter), waiter);
        self.waiting += 1;
        self.counters.held += 1;
    }

    /// Gives an item to the policy.
    fn release(&mut self, now_us: u64, slot: u32) {
        let direction = self.items.known(slot).direction();
        let ranges = match direction {
            Direction::Read => &mut self.reads,
            Direction::Write => &mut self.writes,
        };
        ranges.insert(self.items.known(slot), slot);
        self.policy.insert(now_us, &self.items, slot, &self.parameters);
    }

    /// Puts a new item behind or before one that waits, if there is one. It overtakes nothing that it overlaps, as it
    /// overlaps nothing.
    fn merge(&mut self, now_us: u64, new: &Item) -> bool {
        let ranges = self.released(new.direction());
        let (before, after) = (ranges.before(new.offset), ranges.at(new.end()));
        let before = before.filter(|slot| self.may_merge(*slot, new, true));
        let after = after.filter(|slot| self.may_merge(*slot, new, false));
        let Some(slot) = before.or(after) else { return false };
        self.policy.remove(&self.items, slot);
        if before.is_some() {
            self.append(slot, new);
            self.counters.back_merges += 1;
            self.join(slot, after);
        } else {
            let direction = new.direction();
            let old = self.items.known(slot).clone();
            self.released(direction).remove(&old, slot);
            let item = self.items.known_mut(slot);
            self.members.known_mut(new.last).next = item.first;
            (item.first, item.offset) = (new.first, new.offset);
            item.take_in(new);
            match direction {
                Direction::Read => self.reads.insert(item, slot),
                Direction::Write => self.writes.insert(item, slot),
            }
            self.counters.front_merges += 1;
        }
        self.policy.insert(now_us, &self.items, slot, &self.parameters);
        true
    }

    /// Puts the bytes of `other` behind an item.
    fn append(&mut self, slot: u32, other: &Item) {
        let item = self.items.known_mut(slot);
        self.members.known_mut(item.last).next = other.first;
        item.last = other.last;
        item.take_in(other);
        let length = item.length;
        self.released(other.direction()).grow(length);
    }

    /// Makes an item and the one that now follows it one, if they may be.
    fn join(&mut self, slot: u32, after: Option<u32>) {
        let Some(after) = after else { return };
        if self.items.known(after).edges != NONE || !self.may_merge(slot, self.items.known(after), true) {
            return;
        }
        self.policy.remove(&self.items, after);
        let Some(other) = self.items.take(after) else { return };
        self.released(other.direction()).remove(&other, after);
        self.append(slot, &other);
        self.waiting -= 1;
        self.counters.joins += 1;
    }

    /// Whether `new` may become a part of an item, behind or before it.
    fn may_merge(&self, slot: u32, new: &Item, behind: bool) -> bool {
        let item = self.items.known(slot);
        let touches = if behind { item.end() == new.offset } else { new.end() == item.offset };
        let is_alike = !self.policy.is_per_process() || Owner::of(item) == Owner::of(new);
        let fits = item.length + new.length <= self.parameters.largest;
        touches && fits && is_alike && item.state == State::Waiting
    }
}

impl Item {
    /// Takes over the rest of what another one has, besides its place and its list of requests.
    fn take_in(&mut self, other: &Item) {
        self.length += other.length;
        self.count += other.count;
        self.waited_for |= other.waited_for;
        self.added_us = self.added_us.min(other.added_us);
        self.deadline_us = self.deadline_us.min(other.deadline_us);
        self.number = self.number.min(other.number);
    }
}
