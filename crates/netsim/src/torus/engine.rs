//! The events of the model, one after the other.

use super::plan::{Plan, Transfer};
use super::stations::Station;
use crate::event::Queue;
use crate::packet::HEADERS;
use crate::time::Time;

/// What happens inside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A slice of a transfer has left its station number `hop - 1`.
    Reach { transfer: u32, slice: u32, hop: u32 },
    /// A transfer may begin.
    Begin(u32),
    /// The sender of a transfer hears that a slice has arrived.
    Acknowledge(u32),
    /// The last answer of an operation has come.
    End(u32),
    /// Somebody wanted to be called.
    Call(u32),
}

/// What is told to whoever drives the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// An operation is done.
    Done { tag: u32, begun: Time, ended: Time },
    /// The call that was asked for.
    Called(u32),
}

/// How units are cut, and how many slices of a transfer may be on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grain {
    /// Bytes of a unit.
    pub(crate) unit: u64,
    /// Bytes of a slice; the last one of a unit may have fewer.
    pub(crate) slice: u64,
    /// Slices.
    pub(crate) window: u32,
}

impl Grain {
    /// Slices of a transfer.
    fn slices(self, transfer: &Transfer) -> u32 {
        transfer.bytes.unwrap_or(self.unit).div_ceil(self.slice) as u32
    }

    fn bytes(self, transfer: &Transfer, slice: u32) -> u64 {
        self.slice.min(transfer.bytes.unwrap_or(self.unit) - u64::from(slice) * self.slice)
    }
}

/// Bytes on the wire that acknowledge a slice: a receiver acknowledges every second packet.
const ACKNOWLEDGEMENT: u64 = HEADERS as u64 / 2;

/// A transfer that is going on.
#[derive(Clone, Debug, Default)]
struct Going {
    operation: u32,
    what: Transfer,
    /// By number of this engine.
    after: Vec<u32>,
    then: Vec<u32>,
    may_send: bool,
    sent: u32,
    arrived: u32,
    acknowledged: u32,
}

#[derive(Clone, Debug, Default)]
struct Operation {
    tag: u32,
    begun: Time,
    transfers: Vec<u32>,
    open: usize,
    /// When the last answer so far comes.
    answered: Time,
    tail: Time,
}

/// A bucket of the queue has the events of 2^22 ps, 4 us: most slices wait for less than 4 ms at a link.
const BUCKET_BITS: u32 = 22;

/// Stations and operations in virtual time.
pub(crate) struct Engine {
    pub(crate) stations: Vec<Station>,
    grain: Grain,
    now: Time,
    queue: Queue<Event>,
    transfers: Slots<Going>,
    operations: Slots<Operation>,
}

impl Engine {
    pub(crate) fn new(stations: Vec<Station>, grain: Grain) -> Engine {
        Engine {
            stations,
            grain,
            now: 0,
            queue: Queue::with_buckets(BUCKET_BITS),
            transfers: Slots::default(),
            operations: Slots::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Begins an operation. `tag` comes back with its end.
    pub(crate) fn begin(&mut self, plan: Plan, tag: u32) {
        let (begun, tail, open) = (self.now, plan.tail, plan.transfers.len());
        let operation = self.operations.put(Operation {
            tag,
            begun,
            open,
            tail,
            answered: begun,
            ..Operation::default()
        });
        let mut numbers: Vec<u32> = Vec::with_capacity(open);
        for what in plan.transfers {
            let after: Vec<u32> = what.after.iter().map(|&earlier| numbers[earlier]).collect();
            let may_send = what.lead == 0;
            let lead = what.lead;
            let going = Going { operation, what, after: after.clone(), may_send, ..Going::default() };
            let number = self.transfers.put(going);
            after.iter().for_each(|&earlier| self.transfers.get(earlier).then.push(number));
            if lead > 0 {
                self.queue.push(self.now + lead, Event::Begin(number));
            }
            numbers.push(number);
        }
        self.operations.get(operation).transfers = numbers.clone();
        numbers.into_iter().for_each(|number| self.send(number));
    }

    /// Asks to be told at a moment.
    pub(crate) fn call(&mut self, at: Time, token: u32) {
        self.queue.push(at, Event::Call(token));
    }

    /// Goes on until there is something to tell, at most to `until`.
    pub(crate) fn next(&mut self, until: Time) -> Option<Told> {
        while let Some((now, event)) = self.queue.pop(until) {
            self.now = now;
            match event {
                Event::Reach { transfer, slice, hop } => self.reach(transfer, slice, hop),
                Event::Begin(transfer) => {
                    self.transfers.get(transfer).may_send = true;
                    self.send(transfer);
                }
                Event::Acknowledge(transfer) => {
                    self.transfers.get(transfer).acknowledged += 1;
                    self.send(transfer);
                }
                Event::End(operation) => return Some(self.end(operation)),
                Event::Call(token) => return Some(Told::Called(token)),
            }
        }
        self.now = until;
        None
    }

    /// Forgets what stations have observed.
    pub(crate) fn observe(&mut self) {
        self.stations.iter_mut().for_each(Station::observe);
    }

    /// Sends what may be sent.
    fn send(&mut self, number: u32) {
        loop {
            let grain = self.grain;
            let going = self.transfers.get(number);
            let (slice, slices, waits) = (going.sent, grain.slices(&going.what), going.what.waits_for_all);
            let fits = slice < slices && slice - going.acknowledged < grain.window;
            if !going.may_send || !fits {
                return;
            }
            let after = std::mem::take(&mut going.after);
            let is_there = after.iter().all(|&earlier| {
                let earlier = self.transfers.get(earlier);
                let all = grain.slices(&earlier.what);
                earlier.arrived >= if waits { all } else { all.min(slice + 1) }
            });
            let going = self.transfers.get(number);
            going.after = after;
            if !is_there {
                return;
            }
            going.sent += 1;
            self.reach(number, slice, 0);
        }
    }

    /// A slice is at station number `hop` of its way, or at the end.
    fn reach(&mut self, number: u32, slice: u32, hop: u32) {
        let going = self.transfers.get(number);
        let bytes = self.grain.bytes(&going.what, slice) * u64::from(going.what.weight);
        if let Some(last) = hop.checked_sub(1) {
            let station = &mut self.stations[going.what.way[last as usize] as usize];
            station.served += station.with_headers(bytes);
        }
        match going.what.way.get(hop as usize) {
            Some(&station) => {
                let at = self.stations[station as usize].take(self.now, bytes);
                self.queue.push(at, Event::Reach { transfer: number, slice, hop: hop + 1 });
            }
            None => self.arrive(number, slice),
        }
    }

    fn arrive(&mut self, number: u32, slice: u32) {
        let (now, window) = (self.now, self.grain.window);
        let going = self.transfers.get(number);
        let slices = self.grain.slices(&going.what);
        going.what.home.iter().for_each(|&station| {
            self.stations[station as usize].carry(now, ACKNOWLEDGEMENT);
        });
        debug_assert_eq!(going.arrived, slice, "a way is first in, first out");
        going.arrived += 1;
        let is_whole = going.arrived == slices;
        let (answered, operation) = (now + going.what.reply, going.operation);
        // The others are acknowledged, too, but no slice is left to wait for it.
        if slice + window < slices {
            self.queue.push(now + going.what.back, Event::Acknowledge(number));
        }
        let then = std::mem::take(&mut going.then);
        then.iter().for_each(|&later| self.send(later));
        self.transfers.get(number).then = then;
        if is_whole {
            self.close(operation, answered);
        }
    }

    /// A transfer of an operation is done.
    fn close(&mut self, number: u32, answered: Time) {
        let operation = self.operations.get(number);
        operation.open -= 1;
        operation.answered = operation.answered.max(answered);
        if operation.open == 0 {
            self.queue.push(operation.answered + operation.tail, Event::End(number));
        }
    }

    fn end(&mut self, number: u32) -> Told {
        let Operation { tag, begun, transfers, .. } = self.operations.take(number);
        for transfer in transfers {
            self.transfers.take(transfer);
        }
        Told::Done { tag, begun, ended: self.now }
    }
}

/// Values by number; numbers are used again.
#[derive(Debug)]
struct Slots<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { values: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slots<T> {
    fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = value;
                number
            }
            None => {
                self.values.push(value);
                (self.values.len() - 1) as u32
            }
        }
    }

    fn get(&mut self, number: u32) -> &mut T {
        &mut self.values[number as usize]
    }

    fn take(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(&mut self.values[number as usize])
    }
}
