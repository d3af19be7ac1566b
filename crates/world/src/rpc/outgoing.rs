//! Large payloads that wait for credit: announced, and sent piece by piece as the other side grants it. They are those of
//! answers at a server, and of requests at a caller. The other side of `incoming.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pace::LossCounter;
use types::code_probe::{CodeProbe, hit};
use types::messages::session::{Grant, Piece};
use types::wire::{self, DecodeError, Flags, Record};
use types::{Buf, Epoch};

use super::handshake::Bulk;
use super::send_queue::SendQueue;
use crate::{Frame, Losses, Resent, World};

/// Most bytes of one connection's answers that wait for credit. Further ones are sent without: a caller that grants nothing
/// must not fill the server's memory.
const WAITING_MAX: usize = 8 << 20;
/// The same of all connections of a server, or of one of its threads.
const WAITING_ALL_MAX: usize = 64 << 20;
/// Most requests of one connection that are announced and have not left. Further ones are announced when these have left: a
/// server keeps their records, and ends the connection of a caller with more.
pub(super) const ANNOUNCED_MAX: usize = 64;

/// The payloads of one connection that wait for credit.
pub(super) struct Outgoing {
    world: World,
    losses: Losses,
    counter: RefCell<LossCounter>,
    waiting: RefCell<BTreeMap<u64, Announced>>,
    bytes: Cell<usize>,
    /// Bytes of all connections.
    of_all: Rc<Cell<usize>>,
}

struct Announced {
    /// The announcement, without its record.
    frame: Frame,
    payload: Buf,
    sent: usize,
}

impl Outgoing {
    /// Nothing waits yet. `of_all`: bytes that wait at all connections.
    pub(super) fn new(world: World, losses: Losses, of_all: Rc<Cell<usize>>) -> Outgoing {
        let (counter, waiting) = (RefCell::default(), RefCell::default());
        Outgoing { world, losses, counter, waiting, bytes: Cell::new(0), of_all }
    }

    /// Packets of this connection that were lost.
    fn lost(&self) -> u32 {
        self.news().lost
    }

    /// What a piece tells.
    fn news(&self) -> Piece {
        let Resent { packets, timeouts } = self.losses.resent();
        Piece { lost: self.counter.borrow_mut().settle(self.world.now(), packets), timeouts }
    }

    /// Packets of this connection that were sent once more, as its kernel knows now.
    pub(super) fn resent(&self) -> u32 {
        self.losses.resent().packets
    }

    /// The frame of an answer that can be sent now: the answer, or its announcement. `credit`: bytes that its caller expects at
    /// once.
    pub(super) fn admit(&self, mut frame: Frame, credit: u32) -> Frame {
        let bytes = frame.payload.len();
        let bulk_min = self.world.bulk_min();
        let is_free = bytes <= bulk_min.max(credit as usize);
        if is_free && bytes > bulk_min && credit != u32::MAX {
            frame.header.bulk = self.lost();
        }
        if is_free || self.bytes.get() + bytes > WAITING_MAX || self.of_all.get() + bytes > WAITING_ALL_MAX {
            return frame;
        }
        self.announce(frame)
    }

    /// The announcement of a frame, whose payload waits.
    fn announce(&self, mut frame: Frame) -> Frame {
        let payload = std::mem::take(&mut frame.payload);
        let bytes = payload.len();
        frame.header.bulk = u32::try_from(bytes).expect("a payload is below PAYLOAD_MAX");
        frame.header.flags = frame.header.flags.with(Flags::ANNOUNCED);
        self.count(bytes, 0);
        let kept = Frame { record: Vec::new(), ..frame.clone() };
        let announced = Announced { frame: kept, payload, sent: 0 };
        let replaced = self.waiting.borrow_mut().insert(frame.header.request, announced);
        // A caller that gives two requests the same id.
        self.count(0, replaced.map_or(0, |announced| announced.payload.len() - announced.sent));
        frame
    }

    /// The next piece of a payload, if `frame` grants one. A grant for what is gone is ignored.
    ///
    /// # Errors
    /// If the record is not a grant.
    pub(super) fn granted(&self, frame: &Frame) -> Result<Option<Frame>, DecodeError> {
        let Grant { bytes } = wire::from_bytes(&frame.record)?;
        let request = frame.header.request;
        if bytes == 0 {
            self.forget(request);
            return Ok(None);
        }
        let mut waiting = self.waiting.borrow_mut();
        let Some(announced) = waiting.get_mut(&request) else { return Ok(None) };
        let left = announced.payload.len() - announced.sent;
        let bytes = left.min(bytes as usize);
        let part = announced.payload.slice(announced.sent..announced.sent + bytes);
        announced.sent += bytes;
        // The record of the announcement has checksums of all pieces together; otherwise each frame has its own.
        let whole = announced.frame.header;
        let covered = if whole.flags.is_covered() { Flags::COVERED } else { Flags(0) };
        let way = if whole.flags.is_reply() { Flags::REPLY } else { Flags::REQUEST };
        let record = wire::to_bytes(&self.news());
        let (cluster, flags) = (whole.cluster, way.with(covered));
        let piece = Frame::new(Piece::KIND, request, cluster, Epoch(0), flags, record, part);
        if bytes == left {
            waiting.remove(&request);
        }
        self.count(0, bytes);
        Ok(Some(piece))
    }

    /// Drops what waits of a request or an answer. Returns its announcement, if pieces were missing.
    fn forget(&self, request: u64) -> Option<Frame> {
        let Announced { frame, payload, sent } = self.waiting.borrow_mut().remove(&request)?;
        self.count(0, payload.len() - sent);
        Some(frame)
    }

    fn count(&self, more: usize, less: usize) {
        self.bytes.set(self.bytes.get() + more - less);
        self.of_all.set(self.of_all.get() + more - less);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.of_all.set(self.of_all.get() - self.bytes.get());
    }
}

/// The requests of one connection at its caller. While the server says that its window is small, the payloads of large ones wait
/// for its credit: they are the buffers of the calls that wait, so nothing of them is copied.
pub(super) struct Requests {
    outgoing: Outgoing,
    /// Larger payloads need credit of a server that is crowded.
    bulk: usize,
    /// The server's last answer said so.
    is_crowded: Cell<bool>,
    /// Those that are not announced yet, the oldest first.
    behind: RefCell<BTreeMap<u64, Frame>>,
}

impl Requests {
    /// Nothing waits yet.
    pub(super) fn new(world: World, losses: Losses, bulk: Bulk) -> Requests {
        let outgoing = Outgoing::new(world, losses, Rc::default());
        let Bulk { bytes: bulk, is_crowded } = bulk;
        Requests { outgoing, bulk, is_crowded: Cell::new(is_crowded), behind: RefCell::default() }
    }

    /// The server has said whether large requests have to be announced from now on.
    pub(super) fn crowded(&self, is_crowded: bool) {
        self.is_crowded.set(is_crowded);
    }

    /// Whether a payload of so many bytes may need credit.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.bulk
    }

    /// The frame of a request that can be sent now, if any: the request, or its announcement.
    pub(super) fn admit(&self, mut frame: Frame) -> Option<Frame> {
        if !self.is_large(frame.payload.len()) {
            return Some(frame);
        }
        // After pieces nothing large comes as a whole: a server could not stop reading it.
        let is_free = !self.is_crowded.get() && self.outgoing.waiting.borrow().is_empty();
        if is_free {
            frame.header.bulk = self.outgoing.lost();
            return Some(frame);
        }
        if self.outgoing.waiting.borrow().len() >= ANNOUNCED_MAX {
            hit(CodeProbe::RequestHeldBack);
            self.behind.borrow_mut().insert(frame.header.request, frame);
            return None;
        }
        Some(self.outgoing.announce(frame))
    }

    /// Sends what a grant allows.
    ///
    /// # Errors
    /// If the record is not a grant.
    pub(super) fn granted(&self, grant: &Frame, send_queue: &SendQueue) -> Result<(), DecodeError> {
        self.outgoing.granted(grant)?.into_iter().for_each(|piece| send_queue.queue(piece));
        self.announce_next(send_queue);
        Ok(())
    }

    /// Nobody waits for the answer to a request any more. If pieces of it are missing, the server hears that none will come.
    pub(super) fn give_up(&self, request: u64, send_queue: &SendQueue) {
        if self.behind.borrow_mut().remove(&request).is_some() {
            return;
        }
        if let Some(Frame { header, .. }) = self.outgoing.forget(request) {
            let record = wire::to_bytes(&Grant { bytes: 0 });
            let (cluster, flags) = (header.cluster, Flags::REQUEST);
            let frame = Frame::new(Grant::KIND, request, cluster, Epoch(0), flags, record, Buf::empty());
            send_queue.queue(frame);
            self.announce_next(send_queue);
        }
    }

    /// Announces those for which there is a place now. The server hears first that the place is free: frames keep their order.
    fn announce_next(&self, send_queue: &SendQueue) {
        while self.outgoing.waiting.borrow().len() < ANNOUNCED_MAX {
            let Some((_, next)) = self.behind.borrow_mut().pop_first() else { return };
            send_queue.queue(self.outgoing.announce(next));
        }
    }
}
