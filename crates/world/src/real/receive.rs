//! Receiving frames: one read gets a whole small frame; payloads are read directly into their aligned buffer.

use std::io;
use std::mem::MaybeUninit;
use std::rc::Rc;

use compio::buf::{BufResult, IntoInner, IoBuf, IoBufMut, SetLen};
use compio::driver::op::Recv;
use compio::runtime::submit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::RecvFlags;
use types::wire::{FrameHeader, HEADER_LEN, Seal, TAGGED_LEN};
use types::{Buf, BufMut};

use super::net::Socket;
use crate::Frame;

/// Most bytes that are read before the length of a frame is known: enough for a request or reply of 4 KiB in one read.
const STAGING: usize = crate::STREAM_HEAD_MAX;

/// The receiving direction of a connection.
pub(crate) struct Receiver {
    socket: Rc<Socket>,
    /// `staged[used..filled]` are the bytes that are read and not yet used. [`None`] during a read into it. It has room for a whole
    /// frame of the longest kind that was expected so far, up to [`STAGING`].
    staged: Option<BufMut>,
    used: usize,
    filled: usize,
    /// What authenticates the frames, once the handshake is done.
    seal: Option<Seal>,
    broken: bool,
}

impl Receiver {
    pub(super) fn new(socket: Rc<Socket>) -> Receiver {
        Receiver { socket, staged: Some(BufMut::dirty(0)), used: 0, filled: 0, seal: None, broken: false }
    }

    /// From now on only frames with the right tag are received.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// The next frame, its checksums or tag verified; `None` if the other end closed the connection between frames. Every
    /// error is final, including that of a frame with more than `most` bytes.
    ///
    /// # Cancel
    /// If it is dropped, bytes may be lost: the connection cannot be used any more, and every later call
    /// fails.
    pub(crate) async fn recv_within(&mut self, most: usize) -> io::Result<Option<Frame>> {
        self.begin(most.saturating_add(HEADER_LEN))?;
        if !self.stage(TAGGED_LEN).await? {
            self.broken = false;
            return Ok(None);
        }
        if self.staged().len() < HEADER_LEN {
            // A whole frame of an older version can be shorter than a header of this one.
            let tagged = self.staged().first_chunk().expect("it was staged");
            FrameHeader::check_version(tagged)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.stage(HEADER_LEN).await?;
        }
        let (header, head) = self.take_header(most)?;
        let record = self.take_record(header.record_len as usize).await?;
        let payload = match header.payload_len as usize {
            0 => Buf::empty(),
            len => self.take_payload(len).await?,
        };
        let frame = Frame::from_parts((header, &head), record, payload, self.seal.as_mut())?;
        self.broken = false;
        Ok(Some(frame))
    }

    /// The next `len` bytes of a stream without frames; `None` if the other end closed before them.
    ///
    /// # Cancel
    /// As for [`Receiver::recv_within`].
    pub(crate) async fn recv_head(&mut self, len: usize) -> io::Result<Option<Vec<u8>>> {
        self.begin(STAGING)?;
        let head = if self.stage(len).await? { Some(self.take_record(len).await?) } else { None };
        self.broken = false;
        Ok(head)
    }

    /// The next `len` bytes of a stream without frames, aligned.
    ///
    /// # Cancel
    /// As for [`Receiver::recv_within`].
    pub(crate) async fn recv_body(&mut self, len: usize) -> io::Result<Buf> {
        self.begin(STAGING)?;
        let body = if len == 0 { Buf::empty() } else { self.take_payload(len).await? };
        self.broken = false;
        Ok(body)
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let mut socket = [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::RDHUP)];
        // An error of `poll` says nothing about the connection; the next receive will show its state.
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut socket, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn hang_up(&self) {
        self.socket.hang_up();
    }

    /// A receive, of at most `most` bytes at once, marks the connection as broken until it has succeeded.
    fn begin(&mut self, most: usize) -> io::Result<()> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "an earlier receive did not finish"));
        }
        if self.staged.as_ref().is_some_and(|staged| staged.len() < most.min(STAGING)) {
            let mut wider = BufMut::dirty(most.min(STAGING));
            let staged = self.staged();
            let len = staged.len();
            wider[..len].copy_from_slice(staged);
            (self.staged, self.used, self.filled) = (Some(wider), 0, len);
        }
        Ok(())
    }

    fn staged(&self) -> &[u8] {
        let staged = self.staged.as_ref().expect("the staging buffer is away only during a read");
        &staged[self.used..self.filled]
    }

    /// Reads until `len` bytes are staged. False if the connection was closed before them.
    async fn stage(&mut self, len: usize) -> io::Result<bool> {
        while self.filled - self.used < len {
            let mut staged = self.staged.take().expect("the staging buffer is away only during a read");
            if self.used > 0 {
                staged.copy_within(self.used..self.filled, 0);
                self.filled -= self.used;
                self.used = 0;
            }
            let (read, staged) = self.read_into(staged, self.filled, RecvFlags::empty()).await?;
            self.staged = Some(staged);
            self.filled += read;
            match (read, self.filled) {
                (0, 0) => return Ok(false),
                (0, _) => return Err(cut_off()),
                _ => {}
            }
        }
        Ok(true)
    }

    fn take_header(&mut self, most: usize) -> io::Result<(FrameHeader, [u8; HEADER_LEN])> {
        let head = *self.staged().first_chunk().expect("the header was staged");
        let header = Frame::decode_header(&head, most)?;
        self.used += HEADER_LEN;
        Ok((header, head))
    }

    /// The next `len` bytes of the stream, as a record.
    async fn take_record(&mut self, len: usize) -> io::Result<Vec<u8>> {
        if len > STAGING {
            return Ok(self.take_payload(len).await?.to_vec());
        }
        if !self.stage(len).await? {
            return Err(cut_off());
        }
        let record = self.staged()[..len].to_vec();
        self.used += len;
        Ok(record)
    }

    /// The next `len` bytes of the stream, aligned.
    async fn take_payload(&mut self, len: usize) -> io::Result<Buf> {
        let mut payload = BufMut::dirty(len);
        let mut filled = len.min(self.filled - self.used);
        payload[..filled].copy_from_slice(&self.staged()[..filled]);
        self.used += filled;
        while filled < len {
            // With `WAITALL` the ring itself waits for all bytes.
            let (read, back) = self.read_into(payload, filled, RecvFlags::WAITALL).await?;
            if read == 0 {
                return Err(cut_off());
            }
            payload = back;
            filled += read;
        }
        Ok(payload.freeze())
    }

    /// One read into `buf[from..]`.
    async fn read_into(&self, buf: BufMut, from: usize, flags: RecvFlags) -> io::Result<(usize, BufMut)> {
        let BufResult(read, recv) =
            submit(Recv::new(self.socket.shared(), ReadBuf { buf, from }, flags)).await;
        Ok((read?, recv.into_inner().buf))
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "connection closed in the middle of a frame")
}

/// The part of a buffer from `from` on, in the form that compio's operations need: space without content. Disks use
/// it too.
pub(super) struct ReadBuf {
    pub(super) buf: BufMut,
    pub(super) from: usize,
}

impl IoBuf for ReadBuf {
    fn as_init(&self) -> &[u8] {
        &[]
    }
}

impl SetLen for ReadBuf {
    unsafe fn set_len(&mut self, _len: usize) {
        // The buffer's bytes are always initialised, and the reader counts them itself.
    }
}

impl IoBufMut for ReadBuf {
    fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        let room = &mut self.buf[self.from..];
        let (start, len) = (room.as_mut_ptr().cast(), room.len());
        // SAFETY: the same bytes with a weaker type; operations write only initialised bytes there.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}
