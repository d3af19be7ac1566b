//! Sending frames: one vectored write for each, without copying the payload.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use compio::buf::{BufResult, IntoInner, IoVectoredBuf};
use compio::driver::op::SendVectored;
use compio::runtime::submit;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use types::Buf;
use types::wire::Seal;

use super::net::Socket;
use crate::Frame;

/// Most pieces of one vectored write: enough for a batch, and small enough for the stack.
const PIECES_MAX: usize = 48;
/// Records of up to this many bytes are copied behind their header: cheaper than a separate piece.
const RECORD_COPIED: usize = 1024;

/// The sending direction of a connection.
pub(crate) struct Sender {
    socket: Rc<Socket>,
    outgoing: Outgoing,
    /// What authenticates the frames, once the handshake is done.
    seal: Option<Seal>,
    broken: bool,
}

impl Sender {
    pub(super) fn new(socket: Rc<Socket>) -> Sender {
        Sender { socket, outgoing: Outgoing::default(), seal: None, broken: false }
    }

    /// From now on every frame has a tag.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Sends a frame; its lengths, and checksums or tag, are filled in here.
    ///
    /// # Cancel
    /// If it is dropped, a part of the frame may have been sent: the connection cannot be used any more, and
    /// every later send fails with `BrokenPipe`.
    pub(crate) async fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.outgoing.clear();
        self.outgoing.push(frame, self.seal.as_mut())?;
        self.flush().await
    }

    /// Sends frames in order, with as few writes as possible.
    ///
    /// # Cancel
    /// As for [`Sender::send`].
    pub(crate) async fn send_all(&mut self, frames: Vec<Frame>) -> io::Result<()> {
        self.outgoing.clear();
        for frame in frames {
            self.outgoing.push(frame, self.seal.as_mut())?;
        }
        self.flush().await
    }

    /// Sends bytes that are not a frame.
    ///
    /// # Cancel
    /// As for [`Sender::send`].
    pub(crate) async fn send_bytes(
        &mut self,
        head: &[u8],
        body: impl IntoIterator<Item = Buf>,
    ) -> io::Result<()> {
        self.outgoing.clear();
        self.outgoing.push_bytes(head, body);
        self.flush().await
    }

    /// Sends heads and bodies that are not frames, in order.
    ///
    /// # Cancel
    /// As for [`Sender::send`].
    pub(crate) async fn send_messages(&mut self, messages: Vec<(Vec<u8>, Buf)>) -> io::Result<()> {
        self.outgoing.clear();
        for (head, body) in messages {
            self.outgoing.push_bytes(&head, [body]);
        }
        self.flush().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "an earlier send did not finish"));
        }
        // Most frames fit into the socket's buffer. Then one plain system call is enough.
        while !self.outgoing.is_empty() {
            match self.outgoing.write_now(self.socket.fd()) {
                Ok(sent) => self.outgoing.advance(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.write_waiting().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.broken = false;
        Ok(())
    }

    /// Passes the rest to the ring, which writes it when the socket's buffer has space.
    async fn write_waiting(&mut self) -> io::Result<()> {
        let outgoing = std::mem::take(&mut self.outgoing);
        // With `WAITALL` the ring itself continues short writes.
        let flags = SendFlags::NOSIGNAL | SendFlags::from_bits_retain(WAITALL);
        let send = SendVectored::new(self.socket.shared(), outgoing, flags);
        let BufResult(sent, send) = submit(send).await;
        self.outgoing = send.into_inner();
        self.outgoing.advance(sent?);
        Ok(())
    }
}

/// `MSG_WAITALL`. The kernel's ring accepts it for sending too (rustix names it for receiving only).
const WAITALL: u32 = rustix::net::RecvFlags::WAITALL.bits();

/// Frames in the form for vectored writes.
#[derive(Default)]
struct Outgoing {
    /// Headers and small records, concatenated.
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces written entirely.
    done: usize,
    /// Bytes written of the next piece.
    partly: usize,
}

enum Piece {
    Head(Range<usize>),
    Record(Vec<u8>),
    Payload(Buf),
}

impl Outgoing {
    fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
        self.done = 0;
        self.partly = 0;
    }

    fn push(&mut self, mut frame: Frame, seal: Option<&mut Seal>) -> io::Result<()> {
        let header = frame.encode_header(seal)?;
        let Frame { record, payload, .. } = frame;
        self.push_head(&header);
        let apart = record.len() > RECORD_COPIED;
        if !apart {
            self.push_head(&record);
        }
        if apart {
            self.pieces.push(Piece::Record(record));
        }
        if !payload.is_empty() {
            self.pieces.push(Piece::Payload(payload));
        }
        Ok(())
    }

    fn push_bytes(&mut self, head: &[u8], body: impl IntoIterator<Item = Buf>) {
        self.push_head(head);
        self.pieces.extend(body.into_iter().filter(|part| !part.is_empty()).map(Piece::Payload));
    }

    /// Copies bytes. Consecutive copies are one piece.
    fn push_head(&mut self, bytes: &[u8]) {
        let start = self.heads.len();
        self.heads.extend_from_slice(bytes);
        match self.pieces.last_mut() {
            Some(Piece::Head(range)) => range.end = self.heads.len(),
            _ => self.pieces.push(Piece::Head(start..self.heads.len())),
        }
    }

    fn is_empty(&self) -> bool {
        self.done == self.pieces.len()
    }

    /// Marks the next `len` bytes as written.
    fn advance(&mut self, len: usize) {
        self.partly += len;
        while let Some(piece) = self.pieces.get(self.done) {
            let len = self.bytes(piece).len();
            if self.partly < len {
                return;
            }
            self.partly -= len;
            self.done += 1;
        }
    }

    fn bytes<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        match piece {
            Piece::Head(range) => &self.heads[range.clone()],
            Piece::Record(record) => record,
            Piece::Payload(payload) => payload,
        }
    }

    /// Writes as much as the socket accepts without blocking.
    fn write_now(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slot, bytes) in slices.iter_mut().zip(self.iter_slice()) {
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags)
    }
}

impl IoVectoredBuf for Outgoing {
    fn iter_slice(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.pieces[self.done..].iter().take(PIECES_MAX).enumerate();
        rest.map(|(i, piece)| &self.bytes(piece)[if i == 0 { self.partly } else { 0 }..])
    }
}
