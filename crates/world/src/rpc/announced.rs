//! Large requests of one connection at its server, from their announcements until they are whole.
//!
//! ```text
//!  announced ──▶ has a place; waits for room ──▶ has room: wants credit ──▶ pieces come ──▶ whole: the handler has it
//!                (payloads of clients only)       (of the receive window)
//! ```
//!
//! # Invariants
//! - Only a request with room for all of its payload is granted anything, so grants bound memory.
//! - Nothing here stops the reader of the connection: pieces come behind other frames, and room would never become free if it
//!   had to be free before pieces are read. What stops the reader (`server.rs`) ends without further frames: requests that are
//!   answered, answers that the caller takes. While it is stopped, these requests hold no credit.
//! - A place and room are free again at the latest when the connection ends. A caller that announces and then sends nothing
//!   for as long as a call may take, or not all within twice that time, is disconnected.
//!
//! With threads for connections (`threads.rs`) each thread has bounds of its own and a share of the window. Nothing changes: the
//! handler's thread answers without any of them, so what is begun ends whether a reader is stopped or not.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pace::{LATE_US, Sender};
use types::code_probe::{CodeProbe, hit};
use types::limits::CALL_TIMEOUT_US;
use types::messages::session::Piece;
use types::wire;

use super::incoming::{Arriving, BadPiece, Incoming, announced_bytes};
use super::meter::Meter;
use super::outgoing::ANNOUNCED_MAX;
use super::room::{Place, Room};
use super::send_queue::SendQueue;
use crate::Frame;

/// The announced requests of one connection.
pub(super) struct Announced {
    incoming: Rc<Incoming>,
    send_queue: Rc<SendQueue>,
    room: Rc<Room>,
    /// The caller, to the receive window.
    sender: Sender,
    requests: RefCell<BTreeMap<u64, Coming>>,
    /// Nobody reads the connection.
    is_stopped: Cell<bool>,
    /// Counts what comes from the caller.
    meter: Meter,
    /// When a large request came last that was not announced, and how many that were are whole since.
    whole: Cell<Option<(u64, u32)>>,
}

struct Coming {
    place: Place,
    state: State,
    /// When it was announced.
    since_us: u64,
}

/// Longest time from an announcement to the last piece, in microseconds: a caller has given its call up long before.
const PATIENCE_US: u64 = 2 * CALL_TIMEOUT_US;

enum State {
    /// The announcement: there is no room for the payload. Its place in the order of those who wait.
    Waiting(Frame, u64),
    Arriving(Rc<Arriving>),
}

impl Announced {
    /// Nothing is announced.
    pub(super) fn new(
        incoming: Rc<Incoming>,
        send_queue: Rc<SendQueue>,
        room: Rc<Room>,
        meter: Meter,
    ) -> Announced {
        let (requests, is_stopped) = (RefCell::default(), Cell::default());
        let sender = incoming.sender();
        Announced { incoming, send_queue, room, sender, requests, is_stopped, meter, whole: Cell::default() }
    }

    /// Whether nothing is announced that is not whole.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.borrow().is_empty()
    }

    /// Whether pieces may come.
    pub(super) fn is_arriving(&self) -> bool {
        self.requests.borrow().values().any(|coming| matches!(coming.state, State::Arriving(_)))
    }

    /// A large request has come that was not announced. It must not come while pieces of others are missing: their connection
    /// is read even if there is no room for its payload.
    pub(super) fn came_whole(&self, frame: &Frame) -> Result<(), BadPiece> {
        let bytes = frame.payload.len();
        if !self.is_empty() {
            return Err(BadPiece::Unannounced(bytes));
        }
        hit(CodeProbe::RequestWhole);
        let lost = self.meter.lost(frame.header.bulk);
        self.whole.set(Some((self.incoming.now(), 0)));
        self.incoming.came_whole(bytes, lost);
        self.meter.came(frame);
        Ok(())
    }

    /// Takes an announcement.
    pub(super) fn announce(self: &Rc<Announced>, announcement: Frame) -> Result<(), BadPiece> {
        let (bytes, request) = (announced_bytes(&announcement)?, announcement.header.request);
        let many = self.requests.borrow().len() >= ANNOUNCED_MAX;
        if many || self.requests.borrow().contains_key(&request) {
            return Err(if many { BadPiece::Many(ANNOUNCED_MAX) } else { BadPiece::Announcement(bytes) });
        }
        // A connection may always have one request in progress.
        let has_room = self.room.in_progress() == 0 || self.room.fits(bytes);
        let place = Place::new(&self.room);
        let order = self.room.all().wait(self, request);
        self.room.waits();
        let coming =
            Coming { place, state: State::Waiting(announcement, order), since_us: self.incoming.now() };
        self.requests.borrow_mut().insert(request, coming);
        if has_room {
            self.admit(request);
        } else {
            hit(CodeProbe::RequestWaited);
        }
        Ok(())
    }

    /// The bytes for which a request waits to have room.
    pub(super) fn wanted(&self, request: u64) -> Option<usize> {
        match &self.requests.borrow().get(&request)?.state {
            State::Waiting(announcement, _) => Some(announcement.header.bulk as usize),
            State::Arriving(_) => None,
        }
    }

    /// A request has room: it wants credit from now on.
    pub(super) fn admit(&self, request: u64) {
        let mut requests = self.requests.borrow_mut();
        let Some(coming) = requests.get_mut(&request) else { return };
        let State::Waiting(announcement, order) = &coming.state else { return };
        self.room.all().waits_no_longer(*order);
        self.room.waits_no_longer();
        coming.place.take(announcement.header.bulk as usize);
        let announcement = announcement.clone();
        let arriving =
            Arriving::of_request(&self.incoming, self.sender, announcement, &self.send_queue, &self.meter);
        if self.is_stopped.get() {
            arriving.pause();
        }
        coming.state = State::Arriving(Rc::new(arriving));
        drop(requests);
        self.incoming.pump();
        // If it waits for room, it may go on: pieces may come.
        self.room.wake_reader();
    }

    /// The oldest of those that wait has room, although there is none: nothing else of its connection is in progress.
    pub(super) fn admit_oldest(&self) {
        let is_waiting = |coming: &Coming| matches!(coming.state, State::Waiting(..));
        let oldest = self.requests.borrow().iter().find(|(_, coming)| is_waiting(coming)).map(|(id, _)| *id);
        if let Some(request) = oldest {
            self.admit(request);
        }
    }

    /// When the connection has to end at the latest: a caller waits for none of its calls longer.
    pub(super) fn end_us(&self) -> Option<u64> {
        self.requests.borrow().values().map(|coming| coming.since_us + PATIENCE_US).min()
    }

    /// Takes a piece. Returns its request, with its place, if nothing is missing.
    pub(super) fn piece(&self, piece: Frame) -> Result<Option<(Frame, Place)>, BadPiece> {
        let Piece { lost, timeouts } = wire::from_bytes(&piece.record)?;
        let request = piece.header.request;
        let arriving = match self.requests.borrow().get(&request) {
            Some(Coming { state: State::Arriving(arriving), .. }) => arriving.clone(),
            _ => return Err(BadPiece::Stray),
        };
        self.meter.timeouts(timeouts);
        let lost = self.meter.lost(lost);
        if self.is_about_whole_ones() {
            self.incoming.lost_without_credit(lost);
        } else {
            arriving.lost(lost);
        }
        self.meter.came(&piece);
        let Some(whole) = arriving.take(piece, &self.send_queue, &self.meter)? else { return Ok(None) };
        let gone = self.requests.borrow_mut().remove(&request);
        self.whole.set(self.whole.get().map(|(whole_us, done)| (whole_us, done.saturating_add(1))));
        Ok(gone.map(|coming| (whole, coming.place)))
    }

    /// Whether the caller may still tell of packets of requests that it has not announced: it tells with what it sends next, once
    /// TCP knows.
    fn is_about_whole_ones(&self) -> bool {
        self.whole.get().is_some_and(|(whole_us, done)| done < 2 || self.incoming.now() < whole_us + LATE_US)
    }

    /// The caller has given up a call. Returns whether pieces of it were missing: then the request is gone.
    pub(super) fn give_up(&self, request: u64) -> bool {
        let gone = self.requests.borrow_mut().remove(&request);
        let was_there = gone.is_some();
        // Outside of the borrow: others may get its room, of the same connection, too.
        gone.into_iter().for_each(|coming| self.drop_one(coming));
        was_there
    }

    /// Nobody reads the connection from now on: what its caller may send holds none of the window.
    pub(super) fn stop(&self) {
        if self.is_stopped.replace(true) || !self.is_arriving() {
            return;
        }
        hit(CodeProbe::ReaderStopped);
        self.each(Arriving::pause);
    }

    /// The connection is read again.
    pub(super) fn go_on(&self) {
        if self.is_stopped.replace(false) {
            self.each(Arriving::resume);
        }
    }

    fn each(&self, change: impl Fn(&Arriving)) {
        let mut any = false;
        for coming in self.requests.borrow().values() {
            if let State::Arriving(arriving) = &coming.state {
                change(arriving);
                any = true;
            }
        }
        if any {
            self.incoming.pump();
        }
    }

    /// A request is not wanted any more.
    fn drop_one(&self, coming: Coming) {
        let State::Waiting(_, order) = coming.state else { return };
        hit(CodeProbe::RequestUnwanted);
        self.room.all().waits_no_longer(order);
        self.room.waits_no_longer();
        drop(coming.place);
        self.room.all().go_on();
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        let gone = self.requests.take();
        gone.into_values().for_each(|coming| self.drop_one(coming));
    }
}
