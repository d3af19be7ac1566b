//! One face for all policies: they decide nothing but the order.

use super::auto::Auto;
use super::bfq::Bfq;
use super::cfq::Cfq;
use super::deadline::Deadline;
use super::item::{Item, Items};
use super::kyber::Kyber;
use super::noop::Noop;
use super::parameters::{Parameters, PolicyName};
use super::process_queue;
use super::request::{Direction, Operation, Request};
use super::slq::{Order, Slq};

#[derive(Clone, Debug)]
pub(super) enum Policy {
    Noop(Noop),
    Deadline(Deadline),
    Cfq(Cfq),
    Bfq(Bfq),
    Kyber(Box<Kyber>),
    Slq(Slq),
}

impl Policy {
    pub(super) fn new(name: PolicyName, parameters: &Parameters) -> Policy {
        match name {
            PolicyName::Noop => Policy::Noop(Noop::default()),
            PolicyName::Deadline => Policy::Deadline(Deadline::default()),
            PolicyName::Cfq => Policy::Cfq(Cfq::default()),
            PolicyName::Bfq => Policy::Bfq(Bfq::default()),
            PolicyName::Kyber => Policy::Kyber(Box::new(Kyber::new())),
            PolicyName::SlqNearest => Policy::Slq(Slq::new(Order::Nearest, None)),
            PolicyName::SlqLisfFirst => Policy::Slq(Slq::new(Order::LisfFirst, None)),
            PolicyName::SlqAuto => Policy::Slq(Slq::new(Order::Nearest, Some(Auto::new(parameters)))),
        }
    }

    /// Whether requests of different processes are never merged.
    pub(super) fn is_per_process(&self) -> bool {
        matches!(self, Policy::Cfq(_) | Policy::Bfq(_))
    }

    /// How long a new request may wait.
    pub(super) fn expiry_us(&self, request: &Request, parameters: &Parameters) -> u64 {
        if self.is_per_process() {
            return process_queue::expiry_us(request);
        }
        let is_read = request.operation == Operation::Read;
        parameters.expiry_us(if is_read { Direction::Read } else { Direction::Write })
    }

    pub(super) fn priority(&self, direction: Direction, parameters: &Parameters) -> u64 {
        match self {
            Policy::Slq(slq) => slq.priority(direction, parameters),
            _ => parameters.priority(direction),
        }
    }

    pub(super) fn insert(&mut self, now_us: u64, items: &Items, slot: u32, parameters: &Parameters) {
        match self {
            Policy::Noop(noop) => noop.insert(items, slot),
            Policy::Deadline(deadline) => deadline.insert(items, slot),
            Policy::Cfq(cfq) => cfq.insert(now_us, items, slot, parameters),
            Policy::Bfq(bfq) => bfq.insert(items, slot, parameters),
            Policy::Kyber(kyber) => kyber.insert(items, slot),
            Policy::Slq(slq) => slq.insert(items, slot),
        }
    }

    /// Takes one out, because its size or place changes.
    pub(super) fn remove(&mut self, items: &Items, slot: u32) {
        match self {
            Policy::Noop(noop) => noop.remove(items, slot),
            Policy::Deadline(deadline) => deadline.remove(items, slot),
            Policy::Cfq(cfq) => cfq.remove(items, slot),
            Policy::Bfq(bfq) => bfq.remove(items, slot),
            Policy::Kyber(kyber) => kyber.remove(items, slot),
            Policy::Slq(slq) => slq.remove(items, slot),
        }
    }

    /// Chooses the next one and takes it out.
    pub(super) fn next(&mut self, now_us: u64, items: &Items, parameters: &Parameters) -> Option<u32> {
        match self {
            Policy::Noop(noop) => noop.next(),
            Policy::Deadline(deadline) => deadline.next(now_us, items, parameters),
            Policy::Cfq(cfq) => cfq.next(now_us, items, parameters),
            Policy::Bfq(bfq) => bfq.next(now_us, items, parameters),
            Policy::Kyber(kyber) => kyber.next(items, parameters),
            Policy::Slq(slq) => slq.next(now_us, items, parameters),
        }
    }

    pub(super) fn completed(&mut self, now_us: u64, items: &Items, item: &Item, parameters: &Parameters) {
        match self {
            Policy::Noop(_) | Policy::Deadline(_) => {}
            Policy::Cfq(cfq) => cfq.completed(item),
            Policy::Bfq(bfq) => bfq.completed(item),
            Policy::Kyber(kyber) => kyber.completed(now_us, item, parameters),
            Policy::Slq(slq) => slq.completed(now_us, items, item),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<u64> {
        match self {
            Policy::Cfq(cfq) => cfq.next_wakeup(),
            Policy::Bfq(bfq) => bfq.next_wakeup(),
            _ => None,
        }
    }
}
