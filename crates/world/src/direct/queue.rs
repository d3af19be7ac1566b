//! The queue in front of a device: so many requests at a time, and classes take turns.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use pace::{Classes, IoClass, Next, Share};
use types::code_probe::{CodeProbe, hit};

use super::device::{DEPTH_MAX, DirectCounts};
use crate::World;

/// What a request costs besides its bytes, in microseconds of the device. Only the ratio to that of bytes matters: shares are
/// parts of the device's time.
const REQUEST_US: u64 = 50;
/// Bytes that the device moves in a microsecond.
const BYTES_PER_US: u64 = 500;

pub(super) struct Queue {
    world: World,
    state: RefCell<State>,
}

struct State {
    classes: Classes,
    /// Requests that wait, by class, the oldest first.
    waiting: [VecDeque<Rc<Ticket>>; IoClass::ALL.len()],
    depth: u32,
    /// Requests at the device, without those of the journal.
    at_device: u32,
    /// Requests of the journal at the device.
    of_journal: u32,
    /// A task waits for the time when a class may go on.
    has_timer: bool,
    counts: DirectCounts,
}

/// A request that waits.
struct Ticket {
    cost_us: u64,
    since: u64,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A place at the device, until this is dropped.
pub(super) struct Turn {
    queue: Rc<Queue>,
    class: IoClass,
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut state = self.queue.state.borrow_mut();
            match self.class {
                IoClass::Journal => state.of_journal -= 1,
                _ => state.at_device -= 1,
            }
        }
        self.queue.grant();
    }
}

/// A request in the queue. If it is dropped before its turn, it leaves.
struct Waiting {
    queue: Rc<Queue>,
    class: IoClass,
    ticket: Rc<Ticket>,
    /// It has become a [`Turn`].
    over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.ticket.granted.get() {
            // It was given up after it had got its place, and before it knew.
            drop(Turn { queue: self.queue.clone(), class: self.class });
            return;
        }
        let mut state = self.queue.state.borrow_mut();
        let waiting = &mut state.waiting[self.class as usize];
        if let Some(at) = waiting.iter().position(|ticket| Rc::ptr_eq(ticket, &self.ticket)) {
            waiting.remove(at);
            state.classes.leave(self.class);
        }
    }
}

impl Queue {
    pub(super) fn new(world: &World, depth: u32) -> Rc<Queue> {
        Rc::new(Queue {
            world: world.clone(),
            state: RefCell::new(State {
                classes: Classes::default(),
                waiting: Default::default(),
                depth: depth.clamp(1, DEPTH_MAX),
                at_device: 0,
                of_journal: 0,
                has_timer: false,
                counts: DirectCounts::default(),
            }),
        })
    }

    pub(super) fn counts(&self) -> DirectCounts {
        let state = self.state.borrow();
        let waiting = state.waiting.iter().map(VecDeque::len).sum::<usize>() as u32;
        DirectCounts { waiting, at_device: state.at_device + state.of_journal, ..state.counts }
    }

    pub(super) fn depth(&self) -> u32 {
        self.state.borrow().depth
    }

    pub(super) fn share(&self, class: IoClass) -> Share {
        self.state.borrow().classes.share(class)
    }

    /// Changes all, or nothing.
    pub(super) fn tune(
        self: &Rc<Self>,
        depth: Option<u32>,
        shares: &[(IoClass, Share)],
    ) -> Result<(), String> {
        if let Some(depth) = depth.filter(|depth| !(1..=DEPTH_MAX).contains(depth)) {
            return Err(format!("a depth is 1 to {DEPTH_MAX} requests, not {depth}"));
        }
        {
            let mut state = self.state.borrow_mut();
            state.classes.set_shares(shares)?;
            state.depth = depth.unwrap_or(state.depth);
        }
        self.grant();
        Ok(())
    }

    /// Waits for a place at the device, for a request of so many bytes.
    pub(super) async fn turn(self: &Rc<Self>, class: IoClass, len: usize) -> Turn {
        let now = self.world.now();
        let ticket = Rc::new(Ticket {
            cost_us: REQUEST_US + len as u64 / BYTES_PER_US,
            since: now,
            granted: Cell::new(false),
            waker: RefCell::default(),
        });
        {
            let mut state = self.state.borrow_mut();
            state.waiting[class as usize].push_back(ticket.clone());
            state.classes.add(class, now);
        }
        let mut waiting = Waiting { queue: self.clone(), class, ticket, over: false };
        self.grant();
        poll_fn(|cx| {
            if waiting.ticket.granted.get() {
                return Poll::Ready(());
            }
            *waiting.ticket.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        waiting.over = true;
        Turn { queue: self.clone(), class }
    }

    /// Gives out the places that are free.
    fn grant(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        loop {
            let now = self.world.now();
            let class = match state.classes.next(now) {
                Next::Serve(class) => class,
                Next::Idle => return,
                Next::At(at) => {
                    if !std::mem::replace(&mut state.has_timer, true) {
                        let (queue, world) = (Rc::downgrade(self), self.world.clone());
                        self.world.spawn("disk queue", async move {
                            world.sleep(at.saturating_sub(now)).await;
                            if let Some(queue) = queue.upgrade() {
                                queue.state.borrow_mut().has_timer = false;
                                queue.grant();
                            }
                        });
                    }
                    return;
                }
            };
            if class != IoClass::Journal && state.at_device >= state.depth {
                return;
            }
            let ticket = state.waiting[class as usize].pop_front().expect("a class whose turn it is waits");
            state.classes.serve(class, ticket.cost_us, now);
            match class {
                IoClass::Journal => state.of_journal += 1,
                _ => state.at_device += 1,
            }
            let waited = now.saturating_sub(ticket.since);
            if waited > 0 {
                hit(CodeProbe::QueuedForDevice);
            }
            state.counts.requests[class as usize] += 1;
            state.counts.waited_us[class as usize] += waited;
            ticket.granted.set(true);
            if let Some(waker) = ticket.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}
