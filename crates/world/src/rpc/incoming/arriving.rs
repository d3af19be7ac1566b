//! One payload on its way to this side: its credit and its pieces.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use pace::{Sender, Transfer};
use types::code_probe::{CodeProbe, hit};
use types::limits::PAYLOAD_MAX;
use types::messages::session::Piece;
use types::wire::{DecodeError, Record};
use types::{Buf, BufMut};

use super::super::meter::{Awaited, Meter};
use super::super::send_queue::SendQueue;
use super::{Incoming, PIECE_MIN, Way};
use crate::Frame;

/// One payload on its way. Gives its credit back when it is dropped.
pub(in crate::rpc) struct Arriving {
    incoming: Rc<Incoming>,
    transfer: Transfer,
    /// The announcement, while pieces are missing.
    announced: RefCell<Option<(Frame, Awaited)>>,
    pieces: RefCell<Vec<Buf>>,
    /// Bytes that have not come.
    left: Cell<usize>,
    /// When it was announced.
    announced_us: Cell<u64>,
}

/// A frame that breaks the rules of announcements; the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(in crate::rpc) enum BadPiece {
    #[error("it announces {0} bytes")]
    Announcement(usize),
    #[error("it has sent {0} bytes more than were granted")]
    Excess(usize),
    #[error("it has sent a piece of nothing")]
    Stray,
    #[error("it has sent a piece of {0} bytes, and more are missing")]
    Small(usize),
    #[error("it has announced more than {0} requests at once")]
    Many(usize),
    #[error("it has sent a request of {0} bytes without announcing it, while pieces of others are missing")]
    Unannounced(usize),
    #[error("it has sent a grant or a piece that cannot be read: {0}")]
    Record(#[from] DecodeError),
}

/// The bytes that an announcement promises.
pub(in crate::rpc) fn announced_bytes(frame: &Frame) -> Result<usize, BadPiece> {
    let bytes = frame.header.bulk as usize;
    let is_good = (1..=PAYLOAD_MAX).contains(&bytes) && frame.payload.is_empty();
    if is_good { Ok(bytes) } else { Err(BadPiece::Announcement(bytes)) }
}

impl Arriving {
    /// For the answer to a request that is about to leave. Returns also how many bytes of it may be sent at once.
    pub(in crate::rpc) fn new(incoming: &Rc<Incoming>, sender: Sender, expected: usize) -> (Arriving, usize) {
        incoming.start();
        let now = incoming.world.now();
        let (transfer, credit) = incoming.change(|receiver, port| receiver.open(port, now, sender, expected));
        let arriving = Arriving {
            incoming: incoming.clone(),
            transfer,
            announced: RefCell::default(),
            pieces: RefCell::default(),
            left: Cell::new(0),
            announced_us: Cell::new(0),
        };
        (arriving, credit)
    }

    /// For the payload of a request that a caller has announced.
    pub(in crate::rpc) fn of_request(
        incoming: &Rc<Incoming>,
        sender: Sender,
        announcement: Frame,
        send_queue: &Rc<SendQueue>,
        meter: &Meter,
    ) -> Arriving {
        let (arriving, _) = Arriving::new(incoming, sender, 0);
        arriving.expect(announcement, send_queue, meter);
        arriving
    }

    /// Takes a frame of the answer, or a piece of the request. Returns the whole of it if nothing is missing.
    pub(in crate::rpc) fn take(
        &self,
        frame: Frame,
        send_queue: &Rc<SendQueue>,
        meter: &Meter,
    ) -> Result<Option<Frame>, BadPiece> {
        let (header, now) = (frame.header, self.incoming.world.now());
        let is_piece = header.kind == Piece::KIND;
        if is_piece && self.announced.borrow().is_none() {
            return Err(BadPiece::Stray);
        }
        let bytes = frame.payload.len();
        let taken = self.incoming.change(|receiver, port| receiver.arrived(port, now, self.transfer, bytes));
        self.incoming.port.lock().exchange(now);
        let answer = if is_piece {
            taken.map_err(BadPiece::Excess)?;
            self.piece(frame)?
        } else if header.flags.is_announced() {
            if self.announced.borrow().is_some() {
                return Err(BadPiece::Announcement(header.bulk as usize));
            }
            announced_bytes(&frame)?;
            self.expect(frame, send_queue, meter);
            None
        } else {
            Some(frame)
        };
        self.incoming.pump();
        Ok(answer)
    }

    /// From now on it wants to be granted what is announced.
    fn expect(&self, announcement: Frame, send_queue: &Rc<SendQueue>, meter: &Meter) {
        let bytes = announcement.header.bulk as usize;
        let way = Way::of(&announcement, send_queue);
        self.incoming.ways.borrow_mut().insert(self.transfer, way);
        self.incoming.change(|receiver, port| receiver.announced(port, self.transfer, bytes));
        self.left.set(bytes);
        self.announced_us.set(self.incoming.world.now());
        self.announced.replace(Some((announcement, meter.awaited())));
    }

    /// Nobody reads its pieces until [`Arriving::resume`].
    pub(in crate::rpc) fn pause(&self) {
        self.incoming.change(|receiver, port| receiver.pause(port, self.transfer));
    }

    /// Its pieces are read again.
    pub(in crate::rpc) fn resume(&self) {
        self.incoming.change(|receiver, _| receiver.resume(self.transfer));
    }

    fn piece(&self, frame: Frame) -> Result<Option<Frame>, BadPiece> {
        let bytes = frame.payload.len();
        if bytes < self.left.get().min(PIECE_MIN) {
            return Err(BadPiece::Small(bytes));
        }
        // Excess was found before: never more is granted than was announced.
        self.left.set(self.left.get().saturating_sub(bytes));
        let mut pieces = self.pieces.borrow_mut();
        pieces.push(frame.payload);
        if self.left.get() > 0 {
            return Ok(None);
        }
        let Some((mut whole, _)) = self.announced.take() else { return Ok(None) };
        let is_answer = whole.header.flags.is_reply();
        hit(if is_answer { CodeProbe::AnswerInPieces } else { CodeProbe::RequestInPieces });
        whole.payload = joined(std::mem::take(&mut *pieces));
        Ok(Some(whole))
    }

    /// How long it waited for the last of its credit, in microseconds; 0 if it was not announced.
    pub(in crate::rpc) fn credit_us(&self) -> u64 {
        let granted = self.incoming.ways.borrow().get(&self.transfer).map_or(0, |way| way.granted_us);
        granted.saturating_sub(self.announced_us.get())
    }

    /// Tells the window how many packets the sender's kernel had to send once more.
    pub(in crate::rpc) fn lost(&self, packets: u32) {
        let now = self.incoming.world.now();
        self.incoming.port.lock().port.lost(now, u64::from(packets));
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let way = self.incoming.ways.borrow_mut().remove(&self.transfer);
        let unused = self.incoming.change(|receiver, port| receiver.close(port, self.transfer));
        if let Some(way) = way
            && self.left.get() > 0
        {
            // The caller of a request knows it: it has given it up, or the connection has ended.
            hit(if way.is_answer { CodeProbe::AnswerUnwanted } else { CodeProbe::RequestUnwanted });
            if way.is_answer {
                way.grant(0);
            }
        }
        // As a rule all of it has come, and others have its credit already.
        if unused > 0 {
            self.incoming.pump();
        }
    }
}

/// The bytes of all pieces, one after the other.
fn joined(mut pieces: Vec<Buf>) -> Buf {
    if pieces.len() == 1 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = BufMut::dirty(pieces.iter().map(|piece| piece.len()).sum());
    let mut at = 0;
    for piece in pieces {
        whole[at..at + piece.len()].copy_from_slice(&piece);
        at += piece.len();
    }
    whole.freeze()
}
