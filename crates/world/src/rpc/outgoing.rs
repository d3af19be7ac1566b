//! Large answers that wait for credit: announced, and sent piece by piece as the caller grants it. The other side of
//! `incoming.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use pace::LossCounter;
use types::messages::session::{Grant, Piece};
use types::wire::{self, Flags, Record};
use types::{Buf, Epoch};

use crate::{Frame, Losses, World};

/// Most bytes of one connection's answers that wait for credit. Further ones are sent without: a caller that grants nothing
/// must not fill the server's memory.
const WAITING_MAX: usize = 8 << 20;
/// The same of all connections of a server, or of one of its threads.
const WAITING_ALL_MAX: usize = 64 << 20;

/// The answers of one connection that wait for credit.
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
        self.counter.borrow_mut().settle(self.world.now(), self.resent())
    }

    /// Packets of this connection that were sent once more, as its kernel knows now.
    pub(super) fn resent(&self) -> u32 {
        self.losses.resent()
    }

    /// The frame that can be sent now: the answer, or its announcement. `credit`: bytes that its caller expects at once.
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
        let payload = std::mem::take(&mut frame.payload);
        frame.header.bulk = u32::try_from(bytes).expect("a payload is below PAYLOAD_MAX");
        frame.header.flags = frame.header.flags.with(Flags::ANNOUNCED);
        self.count(bytes, 0);
        let kept = Frame { record: Vec::new(), ..frame.clone() };
        let announced = Announced { frame: kept, payload, sent: 0 };
        let replaced = self.waiting.borrow_mut().insert(frame.header.request, announced);
        // A caller that gives two requests the same id.
        self.count(0, replaced.map_or(0, |answer| answer.payload.len() - answer.sent));
        frame
    }

    /// The next piece of an answer, if `frame` grants one. A grant for an answer that is gone is ignored.
    ///
    /// # Errors
    /// If the record is not a grant.
    pub(super) fn granted(&self, frame: &Frame) -> Result<Option<Frame>, wire::DecodeError> {
        let Grant { bytes } = wire::from_bytes(&frame.record)?;
        let request = frame.header.request;
        let mut waiting = self.waiting.borrow_mut();
        let Some(answer) = waiting.get_mut(&request) else { return Ok(None) };
        let left = answer.payload.len() - answer.sent;
        if bytes == 0 {
            waiting.remove(&request);
            self.count(0, left);
            return Ok(None);
        }
        let bytes = left.min(bytes as usize);
        let part = answer.payload.slice(answer.sent..answer.sent + bytes);
        answer.sent += bytes;
        // The record of the announcement has checksums of all pieces together; otherwise each frame has its own.
        let covered = if answer.frame.header.flags.is_covered() { Flags::COVERED } else { Flags(0) };
        let record = wire::to_bytes(&Piece { lost: self.lost() });
        let (cluster, flags) = (answer.frame.header.cluster, Flags::REPLY.with(covered));
        let piece = Frame::new(Piece::KIND, request, cluster, Epoch(0), flags, record, part);
        if bytes == left {
            waiting.remove(&request);
        }
        self.count(0, bytes);
        Ok(Some(piece))
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
