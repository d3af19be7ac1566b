//! Tasks and time. The seed decides which ready task runs next; time moves only when none is ready.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use types::cost;

use super::net::LinkEnd;
use super::prng::Prng;
use crate::LocalBoxFuture;
use crate::turns::TURN_MAX_US;

/// A task. Slots are reused, generations are not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskId {
    slot: u32,
    generation: u32,
}

/// The slot of the future that `block_on` runs.
const MAIN: u32 = u32::MAX;

type Woken = Arc<Mutex<Vec<TaskId>>>;

struct TaskWaker {
    id: TaskId,
    /// Already in `woken`, so waking it again changes nothing.
    queued: AtomicBool,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

struct Slot {
    generation: u32,
    task: Option<Task>,
}

struct Task {
    node: u32,
    name: &'static str,
    waker: Arc<TaskWaker>,
    /// [`None`] while it is polled.
    future: Option<LocalBoxFuture<'static, ()>>,
}

/// A scheduled event.
pub(super) enum Event {
    /// A timer expires. The executor handles this itself.
    Timer(TimerId),
    /// The next item in flight arrives at this end of a connection.
    Arrival(LinkEnd),
    /// The thread of this node may be free for another turn.
    Free(u32),
}

/// The thread of a node.
#[derive(Default)]
struct Thread {
    /// When its last turn ends.
    busy_until: u64,
    /// Counted work below one microsecond, for the next turn.
    rest_ns: u64,
    /// Tasks that wait for the thread.
    held: Vec<TaskId>,
    /// An [`Event::Free`] is scheduled.
    awaited: bool,
}

/// A turn that took too long, its task and node.
pub(super) struct Overlong {
    pub(super) node: u32,
    pub(super) task: &'static str,
    pub(super) us: u64,
}

/// A timer that is set.
#[derive(Clone, Copy)]
pub(super) struct TimerId {
    slot: u32,
    generation: u32,
}

#[derive(Default)]
struct Timer {
    generation: u32,
    waker: Option<Waker>,
}

/// An event and its time. `number` orders events of the same time.
struct Due {
    when: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.number == other.number
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.when, self.number).cmp(&(other.when, other.number))
    }
}

#[derive(Default)]
struct Agenda {
    due: BinaryHeap<Reverse<Due>>,
    count: u64,
    timers: Vec<Timer>,
    timers_free: Vec<u32>,
    /// Cancelled timers still in `due`.
    stale: usize,
}

impl Agenda {
    fn push(&mut self, when: u64, event: Event) {
        self.count += 1;
        self.due.push(Reverse(Due { when, number: self.count, event }));
    }

    fn release(&mut self, timer: TimerId) -> Option<Waker> {
        let slot = &mut self.timers[timer.slot as usize];
        if slot.generation != timer.generation {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        self.timers_free.push(timer.slot);
        slot.waker.take()
    }

    /// Removes cancelled timers once they are the majority, so that timeouts that are usually cancelled stay cheap.
    fn sweep(&mut self) {
        if self.stale > 64 && self.stale > self.due.len() / 2 {
            let timers = &self.timers;
            self.due.retain(|Reverse(due)| match due.event {
                Event::Timer(timer) => timers[timer.slot as usize].generation == timer.generation,
                Event::Arrival(_) | Event::Free(_) => true,
            });
            self.stale = 0;
        }
    }
}

pub(super) struct Executor {
    clock: Cell<u64>,
    prng: Prng,
    woken: Woken,
    ready: RefCell<Vec<TaskId>>,
    slots: RefCell<Vec<Slot>>,
    slots_free: RefCell<Vec<u32>>,
    agenda: RefCell<Agenda>,
    /// Generation of the running or next main future.
    main: Cell<u32>,
    running: Cell<bool>,
    /// By node number.
    threads: RefCell<Vec<Thread>>,
    /// The longest named part of this turn, in nanoseconds.
    part: Cell<(&'static str, u64)>,
}

/// What the executor can do next.
pub(super) enum Step {
    /// Poll the main future.
    Main,
    /// Poll this task.
    Task(TaskId),
    /// Nothing is ready: time must move.
    Idle,
}

impl Executor {
    pub(super) fn new(seed: u64) -> Executor {
        Executor {
            clock: Cell::new(0),
            prng: Prng::new(seed, "executor"),
            woken: Woken::default(),
            ready: RefCell::default(),
            slots: RefCell::default(),
            slots_free: RefCell::default(),
            agenda: RefCell::default(),
            main: Cell::new(0),
            running: Cell::new(false),
            threads: RefCell::default(),
            part: Cell::new(("", 0)),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.get()
    }

    /// Adds a task of `node`, ready to run.
    pub(super) fn spawn(&self, node: u32, name: &'static str, future: LocalBoxFuture<'static, ()>) {
        let mut slots = self.slots.borrow_mut();
        let slot = self.slots_free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot { generation: 0, task: None });
            u32::try_from(slots.len() - 1).expect("fewer than 2^32 tasks live at a time")
        });
        let entry = &mut slots[slot as usize];
        let id = TaskId { slot, generation: entry.generation };
        let waker = self.waker(id);
        entry.task = Some(Task { node, name, waker: waker.clone(), future: Some(future) });
        drop(slots);
        waker.wake_by_ref();
    }

    fn waker(&self, id: TaskId) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { id, queued: AtomicBool::new(false), woken: self.woken.clone() })
    }

    /// Removes all tasks of `node` (of all nodes if `None`). The caller must hold no borrow when it drops them.
    pub(super) fn take_tasks(&self, node: Option<u32>) -> Vec<LocalBoxFuture<'static, ()>> {
        let mut taken = Vec::new();
        for (index, thread) in self.threads.borrow_mut().iter_mut().enumerate() {
            if node.is_none_or(|node| node as usize == index) {
                (thread.busy_until, thread.rest_ns) = (0, 0);
            }
        }
        let mut free = self.slots_free.borrow_mut();
        for (index, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            if slot.task.as_ref().is_some_and(|task| node.is_none_or(|node| node == task.node)) {
                slot.generation = slot.generation.wrapping_add(1);
                taken.extend(slot.task.take().and_then(|task| task.future));
                free.push(u32::try_from(index).expect("spawn keeps the number of slots below 2^32"));
            }
        }
        taken
    }

    /// Tasks alive, by node.
    pub(super) fn tasks_by_node(&self) -> std::collections::BTreeMap<u32, usize> {
        let mut counts = std::collections::BTreeMap::new();
        for task in self.slots.borrow().iter().filter_map(|slot| slot.task.as_ref()) {
            *counts.entry(task.node).or_default() += 1;
        }
        counts
    }

    /// Begins a `block_on`, and wakes its future.
    pub(super) fn begin_main(&self) -> Main<'_> {
        assert!(!self.running.replace(true), "block_on is not called within block_on");
        self.main.set(self.main.get().wrapping_add(1));
        let waker = self.waker(TaskId { slot: MAIN, generation: self.main.get() });
        waker.wake_by_ref();
        Main { executor: self, waker }
    }

    /// Draws the next task to run.
    pub(super) fn step(&self) -> Step {
        let mut ready = self.ready.borrow_mut();
        ready.append(&mut self.woken.lock().unwrap_or_else(PoisonError::into_inner));
        while !ready.is_empty() {
            let drawn = self.prng.below(ready.len() as u64) as usize;
            let id = ready.swap_remove(drawn);
            if id.slot == MAIN {
                if id.generation == self.main.get() {
                    return Step::Main;
                }
            } else if self.slots.borrow()[id.slot as usize].generation == id.generation && !self.hold(id) {
                return Step::Task(id);
            }
        }
        Step::Idle
    }

    /// If the thread of the task's node is busy with another turn, queues the task until that turn ends, and returns
    /// true.
    fn hold(&self, id: TaskId) -> bool {
        let Some(node) = self.node_of(id) else { return false };
        let mut threads = self.threads.borrow_mut();
        let Some(thread) = threads.get_mut(node as usize) else { return false };
        if thread.busy_until <= self.now() {
            return false;
        }
        thread.held.push(id);
        if !std::mem::replace(&mut thread.awaited, true) {
            self.agenda.borrow_mut().push(thread.busy_until, Event::Free(node));
        }
        true
    }

    /// The thread of a node may be free: its queued tasks become ready (and are queued again if it is not).
    pub(super) fn free(&self, node: u32) {
        let mut threads = self.threads.borrow_mut();
        let thread = &mut threads[node as usize];
        thread.awaited = false;
        self.ready.borrow_mut().append(&mut thread.held);
    }

    /// Keeps the thread of a node busy for the time counted in the turn that ends. Returns this time in microseconds.
    fn keep_busy(&self, node: u32) -> u64 {
        let mut threads = self.threads.borrow_mut();
        let missing = (node as usize + 1).saturating_sub(threads.len());
        threads.extend((0..missing).map(|_| Thread::default()));
        let thread = &mut threads[node as usize];
        thread.rest_ns += cost::take_ns();
        let us = thread.rest_ns / 1_000;
        thread.rest_ns %= 1_000;
        thread.busy_until = self.now() + us;
        us
    }

    /// Does a part of a turn under another name ([`crate::World::part`]).
    pub(super) fn part<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let before = cost::spent_ns();
        let made = work();
        let ns = cost::spent_ns() - before;
        if self.part.get().1 < ns {
            self.part.set((name, ns));
        }
        made
    }

    /// The node of a task.
    pub(super) fn node_of(&self, id: TaskId) -> Option<u32> {
        Some(self.slots.borrow()[id.slot as usize].task.as_ref()?.node)
    }

    /// Runs a turn of a task that [`Executor::step`] has drawn. The turn then keeps its node's thread busy for the
    /// counted time. Frames that it sends and timers that it sets count from its start.
    pub(super) fn poll(&self, id: TaskId) -> Result<(), Overlong> {
        let mut slots = self.slots.borrow_mut();
        let Some(task) = slots[id.slot as usize].task.as_mut() else { return Ok(()) };
        let (waker, node, name) = (task.waker.clone(), task.node, task.name);
        let Some(mut future) = task.future.take() else { return Ok(()) };
        drop(slots);
        waker.queued.store(false, Ordering::Release);
        // Work of the main future counts for no node.
        cost::take_ns();
        self.part.set(("", 0));
        let done = future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker))).is_ready();
        let us = self.keep_busy(node);
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[id.slot as usize];
        // If the node died during the poll, the slot no longer belongs to the task.
        if slot.generation == id.generation {
            if done {
                slot.generation = slot.generation.wrapping_add(1);
                slot.task = None;
                self.slots_free.borrow_mut().push(id.slot);
            } else if let Some(task) = slot.task.as_mut() {
                task.future = Some(future);
                return self.judge(node, name, us);
            }
        }
        drop(slots);
        drop(future);
        self.judge(node, name, us)
    }

    fn judge(&self, node: u32, name: &'static str, us: u64) -> Result<(), Overlong> {
        let (part, part_ns) = self.part.get();
        let task = if part_ns / 500 >= us { part } else { name };
        if us > TURN_MAX_US { Err(Overlong { node, task, us }) } else { Ok(()) }
    }

    /// Adds an event at the time `when`.
    pub(super) fn schedule(&self, when: u64, event: Event) {
        debug_assert!(when >= self.now(), "an event is not in the past");
        self.agenda.borrow_mut().push(when, event);
    }

    /// Moves time to the next event and takes it; `None` if there is none.
    pub(super) fn advance(&self) -> Option<Event> {
        self.next_event(None)
    }

    /// The next event at the present time.
    pub(super) fn same_moment(&self) -> Option<Event> {
        self.next_event(Some(self.now()))
    }

    fn next_event(&self, until: Option<u64>) -> Option<Event> {
        let mut agenda = self.agenda.borrow_mut();
        loop {
            if let Some(until) = until
                && agenda.due.peek().is_none_or(|Reverse(due)| due.when > until)
            {
                return None;
            }
            let Reverse(due) = agenda.due.pop()?;
            if let Event::Timer(timer) = due.event {
                if agenda.timers[timer.slot as usize].generation != timer.generation {
                    agenda.stale = agenda.stale.saturating_sub(1);
                    continue;
                }
                if let Some(waker) = agenda.release(timer) {
                    waker.wake();
                }
            }
            self.clock.set(due.when);
            return Some(due.event);
        }
    }

    /// A future that is ready at true time `when`.
    pub(super) fn until(&self, when: u64) -> Until<'_> {
        Until { executor: self, when, timer: None }
    }
}

/// A `block_on` under way.
pub(super) struct Main<'a> {
    executor: &'a Executor,
    waker: Arc<TaskWaker>,
}

impl Main<'_> {
    pub(super) fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        self.waker.queued.store(false, Ordering::Release);
        future.poll(&mut Context::from_waker(&Waker::from(self.waker.clone())))
    }
}

impl Drop for Main<'_> {
    fn drop(&mut self) {
        self.executor.running.set(false);
    }
}

/// Waits until a time; cancels its timer if dropped.
pub(super) struct Until<'a> {
    executor: &'a Executor,
    when: u64,
    timer: Option<TimerId>,
}

impl Future for Until<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.executor.now() >= self.when {
            return Poll::Ready(());
        }
        let mut agenda = self.executor.agenda.borrow_mut();
        let timer = self.timer.unwrap_or_else(|| {
            let slot = agenda.timers_free.pop().unwrap_or_else(|| {
                agenda.timers.push(Timer::default());
                u32::try_from(agenda.timers.len() - 1).expect("fewer than 2^32 timers are set at a time")
            });
            let timer = TimerId { slot, generation: agenda.timers[slot as usize].generation };
            agenda.push(self.when, Event::Timer(timer));
            timer
        });
        let waker = &mut agenda.timers[timer.slot as usize].waker;
        match waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        drop(agenda);
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Until<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let mut agenda = self.executor.agenda.borrow_mut();
            if agenda.release(timer).is_some() {
                agenda.stale += 1;
                agenda.sweep();
            }
        }
    }
}
