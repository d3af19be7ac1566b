//! The queue in front of a device: so many requests at a time, classes take turns, and a policy says which request of a class is
//! the next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use pace::device::{Operation, Parameters, PolicyName, Request, Scheduler, Token};
use pace::{Classes, IoClass, Next};
use types::code_probe::{CodeProbe, hit};

use super::device::{DEPTH_MAX, DirectCounts, DirectOptions, QueueChange, QueueSettings};
use crate::World;

/// What a request costs besides its bytes, in microseconds of a usual SSD.
const REQUEST_US: u64 = 50;
/// Bytes that such an SSD moves in a microsecond.
const BYTES_PER_US: u64 = 500;
/// After requests of so much cost it is looked how long the device took for them.
const LOOK_US: u64 = 5_000;
/// Bounds of the time for a microsecond of cost, in thousandths: 64 times as fast, and 1,000 times as slow, as a usual SSD.
const SPEED_LEAST: u64 = 16;
const SPEED_MOST: u64 = 1_000_000;
/// Neighbours up to so many bytes go together, unless somebody says otherwise. Each is a request of its own at the device, so larger
/// ones would only fill its queue.
const LARGEST: u64 = 4 << 10;

pub(super) struct Queue {
    world: World,
    state: RefCell<State>,
}

struct State {
    classes: Classes,
    policy: PolicyName,
    parameters: Parameters,
    /// The requests of each class.
    lines: [Line; IoClass::ALL.len()],
    /// Requests that wait, by number; also those that were given up, until the policy comes to them.
    tickets: BTreeMap<u64, Rc<Ticket>>,
    next_ticket: u64,
    depth: u32,
    /// Requests at the device, without those of the journal. Neighbours that go together count once.
    at_device: u32,
    /// Requests of the journal at the device.
    of_journal: u32,
    /// The earliest time for which a task waits: then a class may go on.
    timer_at: Option<u64>,
    speed: Speed,
    counts: DirectCounts,
}

/// How long the device takes for what [`cost`] says, so that shares are parts of its time, whether it is a disk or a fast SSD.
struct Speed {
    /// Since when it has had something to do.
    busy_since: Option<u64>,
    /// What it has done since the last look: the time, and what that would have cost.
    busy_us: u64,
    cost_us: u64,
    /// Its time for a microsecond of cost, in thousandths.
    thousandths: u64,
}

impl Speed {
    /// Requests are at the device, or will be at once.
    fn begins(&mut self, now: u64) {
        self.busy_since.get_or_insert(now);
    }

    /// A request of that cost is done; `idle`: it was the last one.
    fn done(&mut self, cost_us: u64, is_idle: bool, now: u64) {
        let since = self.busy_since.take().unwrap_or(now);
        self.busy_us += now.saturating_sub(since);
        self.cost_us += cost_us;
        if !is_idle {
            self.busy_since = Some(now);
        }
        if self.cost_us >= LOOK_US {
            let found = (self.busy_us * 1_000 / self.cost_us).clamp(SPEED_LEAST, SPEED_MOST);
            self.thousandths = (3 * self.thousandths + found) / 4;
            (self.busy_us, self.cost_us) = (0, 0);
        }
    }

    /// Microseconds that a request takes of the device's time.
    fn time_of(&self, cost_us: u64) -> u64 {
        (cost_us * self.thousandths / 1_000).max(1)
    }
}

/// What a request of so many bytes costs, in microseconds of a usual SSD.
fn cost(bytes: u64) -> u64 {
    REQUEST_US + bytes / BYTES_PER_US
}

/// The requests of a class.
struct Line {
    scheduler: Scheduler,
    /// Another policy takes over when the device has done what this one has given out: until then that holds back what overlaps it.
    draining: bool,
    /// The policy lets none of those that wait go now: they overlap others that are at the device, or its own limits hold them.
    blocked: bool,
}

/// A request that waits.
struct Ticket {
    request: Request,
    class: IoClass,
    since: u64,
    /// Nobody waits for it any more.
    gone: Cell<bool>,
    place: RefCell<Option<Rc<Place>>>,
    waker: RefCell<Option<Waker>>,
}

/// A place at the device. Neighbours that the policy gives out together share it.
struct Place {
    queue: Rc<Queue>,
    class: IoClass,
    token: Token,
    cost_us: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let (mut state, now) = (self.queue.state.borrow_mut(), self.queue.world.now());
            match self.class {
                IoClass::Journal => state.of_journal -= 1,
                _ => state.at_device -= 1,
            }
            let is_idle = state.at_device + state.of_journal == 0;
            state.speed.done(self.cost_us, is_idle, now);
            let line = &mut state.lines[self.class as usize];
            line.scheduler.complete(now, self.token);
            line.blocked = false;
            if line.draining && line.scheduler.in_flight() == 0 {
                state.replace(self.class, now);
            }
        }
        self.queue.grant();
    }
}

/// A request's turn at the device, until this is dropped.
pub(crate) struct Turn(#[expect(dead_code, reason = "it is held, and dropped")] Rc<Place>);

/// A request in the queue. If it is dropped before its turn, nobody waits for it.
struct Waiting {
    ticket: Rc<Ticket>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.ticket.gone.set(true);
        // It may have got its place, and not known yet. Dropping that lets others go on.
        let place = self.ticket.place.borrow_mut().take();
        drop(place);
    }
}

impl Queue {
    pub(super) fn new(world: &World, options: &DirectOptions) -> Rc<Queue> {
        let DirectOptions { depth, policy, .. } = *options;
        let mut parameters =
            Parameters { depth: u64::from(u16::MAX), largest: LARGEST, ..Parameters::default() };
        if let Some(priority) = options.priority {
            (parameters.read_priority, parameters.write_priority) = (priority, priority);
        }
        let line = |class| {
            let scheduler = scheduler(policy_of(class, policy), parameters);
            Line { scheduler, draining: false, blocked: false }
        };
        Rc::new(Queue {
            world: world.clone(),
            state: RefCell::new(State {
                classes: Classes::default(),
                policy,
                parameters,
                lines: IoClass::ALL.map(line),
                tickets: BTreeMap::new(),
                next_ticket: 0,
                depth: depth.clamp(1, DEPTH_MAX),
                at_device: 0,
                of_journal: 0,
                timer_at: None,
                speed: Speed { busy_since: None, busy_us: 0, cost_us: 0, thousandths: 1_000 },
                counts: DirectCounts::default(),
            }),
        })
    }

    pub(super) fn counts(&self) -> DirectCounts {
        let state = self.state.borrow();
        let waiting = state.tickets.values().filter(|ticket| !ticket.gone.get()).count() as u32;
        let mut counts =
            DirectCounts { waiting, at_device: state.at_device + state.of_journal, ..state.counts };
        for line in &state.lines {
            let found = line.scheduler.counters();
            counts.merges += found.back_merges + found.front_merges + found.joins;
            counts.expiries += found.expiries;
        }
        counts
    }

    pub(super) fn settings(&self) -> QueueSettings {
        let state = self.state.borrow();
        QueueSettings {
            depth: state.depth,
            policy: state.policy,
            parameters: state.parameters,
            shares: IoClass::ALL.map(|class| state.classes.share(class)),
        }
    }

    /// Changes all, or nothing.
    pub(super) fn tune(self: &Rc<Self>, change: &QueueChange<'_>) -> Result<(), String> {
        let QueueChange { depth, policy, parameters, shares } = *change;
        if let Some(depth) = depth.filter(|depth| !(1..=DEPTH_MAX).contains(depth)) {
            return Err(format!("a depth is 1 to {DEPTH_MAX} requests, not {depth}"));
        }
        {
            let mut state = self.state.borrow_mut();
            let mut new = state.parameters;
            for (name, value) in parameters {
                if *name == "depth" {
                    return Err("the depth is that of the whole queue".to_owned());
                }
                new.set(name, *value).map_err(|refusal| refusal.to_string())?;
            }
            state.classes.set_shares(shares, self.world.now())?;
            state.depth = depth.unwrap_or(state.depth);
            if policy.is_some_and(|policy| policy != state.policy) || new != state.parameters {
                let policy = policy.unwrap_or(state.policy);
                state.rebuild(policy, new, self.world.now());
            }
        }
        self.grant();
        Ok(())
    }

    /// Waits for a place at the device.
    pub(super) async fn turn(
        self: &Rc<Self>,
        class: IoClass,
        operation: Operation,
        offset: u64,
        len: usize,
    ) -> Turn {
        let waiting =
            Waiting { ticket: self.state.borrow_mut().add(class, operation, offset, len, self.world.now()) };
        self.grant();
        let place = poll_fn(|cx| {
            if let Some(place) = waiting.ticket.place.borrow_mut().take() {
                return Poll::Ready(place);
            }
            *waiting.ticket.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        Turn(place)
    }

    /// Gives out the places that are free.
    fn grant(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        while self.grant_one(&mut state) {}
    }

    /// Gives out one place. False if no more can be given out now.
    fn grant_one(self: &Rc<Self>, state: &mut State) -> bool {
        let now = self.world.now();
        let class = match state.classes.next(now, |class| state.lines[class as usize].can_go()) {
            Next::Serve(class) => class,
            Next::Idle => return false,
            Next::At(at) => {
                self.wake_at(state, at, now);
                return false;
            }
        };
        if class != IoClass::Journal && state.at_device >= state.depth {
            return false;
        }
        let line = &mut state.lines[class as usize];
        let Some(dispatch) = line.scheduler.dispatch(now) else {
            line.blocked = true;
            if let Some(at) = line.scheduler.next_wakeup() {
                self.wake_at(state, at, now);
            }
            return true;
        };
        let numbers: Vec<u64> = line.scheduler.requests(dispatch.token).map(|request| request.id).collect();
        let found: Vec<Rc<Ticket>> =
            numbers.iter().filter_map(|number| state.tickets.remove(number)).collect();
        let (wanted, gone): (Vec<_>, Vec<_>) = found.into_iter().partition(|ticket| !ticket.gone.get());
        gone.iter().for_each(|_| state.classes.leave(class));
        if wanted.is_empty() {
            line.scheduler.complete(now, dispatch.token);
            return true;
        }
        let cost_us = cost(wanted.iter().map(|ticket| ticket.request.length).sum());
        state.classes.serve(class, state.speed.time_of(cost_us), now);
        // Neighbours go with the first.
        wanted[1..].iter().for_each(|_| state.classes.leave(class));
        match class {
            IoClass::Journal => state.of_journal += 1,
            _ => state.at_device += 1,
        }
        state.speed.begins(now);
        let place = Place { queue: self.clone(), class, token: dispatch.token, cost_us };
        let place = Rc::new(place);
        for ticket in wanted {
            let waited = now.saturating_sub(ticket.since);
            if waited > 0 {
                hit(CodeProbe::QueuedForDevice);
            }
            state.counts.requests[class as usize] += 1;
            state.counts.waited_us[class as usize] += waited;
            *ticket.place.borrow_mut() = Some(place.clone());
            if let Some(waker) = ticket.waker.borrow_mut().take() {
                waker.wake();
            }
        }
        true
    }

    /// Lets a class that is at its limit, or that its policy holds back, go on at a time.
    fn wake_at(self: &Rc<Self>, state: &mut State, at: u64, now: u64) {
        if state.timer_at.is_some_and(|timer| timer <= at) {
            return;
        }
        state.timer_at = Some(at);
        let (queue, world) = (Rc::downgrade(self), self.world.clone());
        self.world.spawn("disk queue", async move {
            world.sleep(at.saturating_sub(now).max(1)).await;
            let Some(queue) = queue.upgrade() else { return };
            {
                let mut state = queue.state.borrow_mut();
                // Otherwise an earlier one has taken its place since.
                if state.timer_at == Some(at) {
                    state.timer_at = None;
                }
                state.lines.iter_mut().for_each(|line| line.blocked = false);
            }
            queue.grant();
        });
    }
}

impl State {
    /// A request waits from now on.
    fn add(&mut self, class: IoClass, operation: Operation, offset: u64, len: usize, now: u64) -> Rc<Ticket> {
        self.next_ticket += 1;
        let request = Request {
            id: self.next_ticket,
            operation,
            offset,
            // A request without bytes waits its turn like one of a byte.
            length: len.max(1) as u64,
            process: 0,
            priority: 4,
            waited_for: true,
        };
        let ticket = Rc::new(Ticket {
            request,
            class,
            since: now,
            gone: Cell::new(false),
            place: RefCell::default(),
            waker: RefCell::default(),
        });
        self.tickets.insert(request.id, ticket.clone());
        self.enter(&ticket, now);
        ticket
    }

    fn enter(&mut self, ticket: &Ticket, now: u64) {
        let line = &mut self.lines[ticket.class as usize];
        line.scheduler.add(now, ticket.request).expect("a request of the brick lies on its device");
        line.blocked = false;
        self.classes.add(ticket.class, now);
    }

    /// Other policies, or parameters, for everything that waits.
    fn rebuild(&mut self, policy: PolicyName, parameters: Parameters, now: u64) {
        (self.policy, self.parameters) = (policy, parameters);
        for class in IoClass::ALL.into_iter().filter(|class| *class != IoClass::Journal) {
            let line = &mut self.lines[class as usize];
            if line.scheduler.in_flight() == 0 { self.replace(class, now) } else { line.draining = true }
        }
    }

    /// Gives a class a scheduler of the present policy. Nothing of it is at the device.
    fn replace(&mut self, class: IoClass, now: u64) {
        let line = &mut self.lines[class as usize];
        let before = line.scheduler.counters();
        self.counts.merges += before.back_merges + before.front_merges + before.joins;
        self.counts.expiries += before.expiries;
        let scheduler = scheduler(policy_of(class, self.policy), self.parameters);
        *line = Line { scheduler, draining: false, blocked: false };
        self.classes.leave_all(class);
        self.tickets.retain(|_, ticket| ticket.class != class || !ticket.gone.get());
        let waiting: Vec<Rc<Ticket>> =
            self.tickets.values().filter(|ticket| ticket.class == class).cloned().collect();
        waiting.iter().for_each(|ticket| self.enter(ticket, now));
    }
}

impl Line {
    fn can_go(&self) -> bool {
        !self.blocked && !self.draining
    }
}

/// The journal goes on in the order in which it is written, and nothing holds it back.
fn policy_of(class: IoClass, policy: PolicyName) -> PolicyName {
    if class == IoClass::Journal { PolicyName::Noop } else { policy }
}

fn scheduler(policy: PolicyName, parameters: Parameters) -> Scheduler {
    Scheduler::new(policy, parameters).expect("parameters were checked when they were set")
}
