//! What the requests of a server's connections have of its bounds: a place in their connection, and room for their payloads.
//! They have it from when they are begun, or announced, until they are answered.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use super::announced::Announced;
use super::latch::wake;
use super::unproved::Unproved;

/// Most bytes of payloads in progress from all clients together; beyond it, a client's next request waits. The number
/// of clients is not bounded. Payloads from servers do not count: clients' requests wait for them, and each server
/// bounds what it accepts from clients. A connection may always have one request in progress.
const PAYLOADS_MAX: usize = 32 << 20;

/// What the connections of one thread may have in progress.
#[derive(Clone)]
pub(super) struct Bounds {
    /// See [`PAYLOADS_MAX`].
    payloads: usize,
    /// The connections that have not proved the key; all threads of a listener share them.
    pub(super) unproved: Arc<Unproved>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds::of_one_in(1)
    }
}

impl Bounds {
    /// Those of one of `threads` threads. A clone is for another one of them.
    pub(super) fn of_one_in(threads: usize) -> Bounds {
        Bounds { payloads: PAYLOADS_MAX / threads, unproved: Arc::default() }
    }
}

/// The room for clients' payloads, which all connections of a thread share.
pub(super) struct Payloads {
    max: usize,
    taken: Cell<usize>,
    /// Readers that wait for room.
    crowded: RefCell<Vec<Waker>>,
    /// Announced requests that wait for room, the oldest first.
    waiting: RefCell<BTreeMap<u64, (Weak<Announced>, u64)>>,
    /// The place of the next one in this order.
    next: Cell<u64>,
}

impl Payloads {
    /// All of it is free.
    pub(super) fn new(bounds: &Bounds) -> Payloads {
        let (crowded, waiting) = (RefCell::default(), RefCell::default());
        Payloads { max: bounds.payloads, taken: Cell::new(0), crowded, waiting, next: Cell::new(0) }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.taken.get() + bytes <= self.max
    }

    fn free(&self, bytes: usize) {
        self.taken.set(self.taken.get() - bytes);
        self.wake_and_admit();
    }

    /// There may be room: announced requests have it first, then readers, as their tasks have their turns.
    fn wake_and_admit(&self) {
        self.crowded.take().into_iter().for_each(Waker::wake);
        self.admit();
    }

    /// An announced request waits for room from now on. Returns its place in the order.
    pub(super) fn wait(&self, announced: &Rc<Announced>, request: u64) -> u64 {
        let order = self.next.get();
        self.next.set(order + 1);
        self.waiting.borrow_mut().insert(order, (Rc::downgrade(announced), request));
        order
    }

    /// The request at this place waits no longer.
    pub(super) fn waits_no_longer(&self, order: u64) {
        self.waiting.borrow_mut().remove(&order);
    }

    /// Somebody who has waited is gone: there may be room for those behind.
    pub(super) fn go_on(&self) {
        self.wake_and_admit();
    }

    /// Gives room to those who have waited longest.
    fn admit(&self) {
        loop {
            let first = self.waiting.borrow().first_key_value().map(|(order, of)| (*order, of.clone()));
            let Some((order, (announced, request))) = first else { return };
            let wanted = announced.upgrade().and_then(|of| Some((of.wanted(request)?, of)));
            if wanted.as_ref().is_some_and(|(bytes, _)| self.taken.get() > 0 && !self.fits(*bytes)) {
                return;
            }
            self.waits_no_longer(order);
            if let Some((_, announced)) = wanted {
                announced.admit(request);
            }
        }
    }
}

/// What the requests of one connection have.
pub(super) struct Room {
    all: Rc<Payloads>,
    /// Whether its payloads count.
    is_client: bool,
    requests: Cell<usize>,
    /// Those of them that are announced and wait for room.
    waiting: Cell<usize>,
    announced: RefCell<Weak<Announced>>,
    /// The reader of the connection, while it waits for room.
    reader: Cell<Option<Waker>>,
}

impl Room {
    /// That of a new connection.
    pub(super) fn new(all: Rc<Payloads>, is_client: bool) -> Room {
        let (requests, waiting) = (Cell::new(0), Cell::new(0));
        Room { all, is_client, requests, waiting, announced: RefCell::default(), reader: Cell::default() }
    }

    /// The announced requests of the connection.
    pub(super) fn set_announced(&self, announced: &Rc<Announced>) {
        self.announced.replace(Rc::downgrade(announced));
    }

    /// One more of them waits for room.
    pub(super) fn waits(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    /// One of them does so no longer.
    pub(super) fn waits_no_longer(&self) {
        self.waiting.set(self.waiting.get() - 1);
    }

    /// The room that all connections share.
    pub(super) fn all(&self) -> &Payloads {
        &self.all
    }

    /// Requests that are announced, or continue in their own tasks.
    pub(super) fn requests(&self) -> usize {
        self.requests.get()
    }

    /// Requests whose payloads have room.
    pub(super) fn in_progress(&self) -> usize {
        self.requests.get() - self.waiting.get()
    }

    /// A connection may always have one request in progress, however little room there is.
    fn admit_one(&self) {
        if self.waiting.get() > 0 && self.in_progress() == 0 {
            let announced = self.announced.borrow().upgrade();
            if let Some(announced) = announced {
                announced.admit_oldest();
            }
        }
    }

    /// Whether the payloads in progress leave room for another one, and nobody has waited for it longer.
    pub(super) fn fits(&self, payload: usize) -> bool {
        self.counted(payload) == 0 || self.all.fits(payload) && self.all.waiting.borrow().is_empty()
    }

    /// Bytes of a payload that count.
    fn counted(&self, payload: usize) -> usize {
        if self.is_client { payload } else { 0 }
    }

    /// The reader waits until something changes; `for_payload`: also at other connections.
    pub(super) fn wait(&self, reader: &Waker, for_payload: bool) {
        if for_payload {
            self.all.crowded.borrow_mut().push(reader.clone());
        }
        self.reader.set(Some(reader.clone()));
    }

    /// Something has changed.
    pub(super) fn wake_reader(&self) {
        wake(&self.reader);
    }
}

/// A place of a request, and the room that its payload takes. Both are free when it is dropped.
pub(super) struct Place {
    room: Rc<Room>,
    bytes: Cell<usize>,
}

impl Place {
    /// A place without room for a payload.
    pub(super) fn new(room: &Rc<Room>) -> Place {
        room.requests.set(room.requests.get() + 1);
        Place { room: room.clone(), bytes: Cell::new(0) }
    }

    /// Takes room for a payload.
    pub(super) fn take(&self, payload: usize) {
        let bytes = self.room.counted(payload);
        self.bytes.set(self.bytes.get() + bytes);
        self.room.all.taken.set(self.room.all.taken.get() + bytes);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.requests.set(self.room.requests.get() - 1);
        if self.bytes.get() > 0 {
            self.room.all.free(self.bytes.get());
        }
        self.room.admit_one();
        self.room.wake_reader();
    }
}
