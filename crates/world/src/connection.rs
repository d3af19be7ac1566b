//! Listening addresses and connections of either body: with frames, or as streams of bytes.

use std::io;
use std::sync::Arc;

use types::Buf;
use types::wire::Seal;

use crate::{Frame, either, real, sim};

/// A listening address that threads can share.
#[derive(Clone)]
pub struct ListenSocket(pub(crate) Arc<real::ListenSocket>);

/// Accepts connections.
pub struct Listener(pub(crate) ListenerBody);

pub(crate) enum ListenerBody {
    Real(real::Listener),
    Sim(sim::Listener),
}

impl Listener {
    /// The address to connect to, `host:port`, or the path.
    pub fn address(&self) -> String {
        either!(ListenerBody, &self.0, listener => listener.address())
    }

    /// A handle with which other threads accept here too. The address is freed when the last of them has ended.
    /// [`None`] in a simulated world, whose nodes have one thread.
    pub fn listen_socket(&self) -> Option<ListenSocket> {
        match &self.0 {
            ListenerBody::Real(listener) => Some(ListenSocket(listener.listen_socket())),
            ListenerBody::Sim(_) => None,
        }
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<Conn> {
        either!(ListenerBody, &self.0, listener => listener.accept().await, Conn(ConnBody))
    }
}

/// A connection. It carries whole frames in order until it breaks; or bytes, for foreign protocols.
pub struct Conn(pub(crate) ConnBody);

pub(crate) enum ConnBody {
    Real(real::Conn),
    Sim(sim::Conn),
}

impl Conn {
    /// The address of the other end, for logs.
    pub fn peer(&self) -> String {
        either!(ConnBody, &self.0, conn => conn.peer())
    }

    /// Whether both ends are on this machine: no switch is on the way.
    pub fn is_local(&self) -> bool {
        either!(ConnBody, &self.0, conn => conn.is_local())
    }

    /// What its network has lost. Does not keep it open.
    pub(crate) fn losses(&self) -> Losses {
        match &self.0 {
            ConnBody::Real(conn) => Losses(Some(conn.losses())),
            ConnBody::Sim(_) => Losses(None),
        }
    }

    /// Makes the connection survive a network outage of `silence_us` microseconds instead of a few seconds. No effect
    /// in a simulated world, which decides when connections break.
    ///
    /// # Errors
    /// If the connection is already broken.
    pub fn set_user_timeout(&self, silence_us: u64) -> io::Result<()> {
        match &self.0 {
            ConnBody::Real(conn) => conn.set_user_timeout(silence_us),
            ConnBody::Sim(_) => Ok(()),
        }
    }

    /// The two directions, for two tasks. The connection closes when both are dropped.
    pub fn split(self) -> (Sender, Receiver) {
        match self.0 {
            ConnBody::Real(conn) => {
                let (sender, receiver) = conn.split();
                (Sender(SenderBody::Real(sender)), Receiver(ReceiverBody::Real(receiver)))
            }
            ConnBody::Sim(conn) => {
                let (sender, receiver) = conn.split();
                (Sender(SenderBody::Sim(sender)), Receiver(ReceiverBody::Sim(receiver)))
            }
        }
    }
}

/// Knows what the kernel says of a connection.
#[derive(Clone)]
pub(crate) struct Losses(Option<real::Losses>);

/// What a connection has sent more than once since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Resent {
    /// Packets, without those of which the other end has said that they had come already.
    pub(crate) packets: u32,
    /// How often it waited for a timeout before.
    pub(crate) timeouts: u32,
}

impl Losses {
    /// What was sent once more. Nothing if the connection has ended, and in a simulated world.
    pub(crate) fn resent(&self) -> Resent {
        self.0.as_ref().map_or(Resent::default(), real::Losses::resent)
    }

    /// The smoothed round trip and the least one, in microseconds; 0 if the connection has ended, and in a simulated world.
    pub(crate) fn round_trips(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), real::Losses::round_trips)
    }
}

impl Conn {
    /// The two directions, as streams of bytes instead of frames.
    pub fn split_stream(self) -> (StreamSender, StreamReceiver) {
        match self.0 {
            ConnBody::Real(conn) => {
                let (sender, receiver) = conn.split();
                (StreamSender(SenderBody::Real(sender)), StreamReceiver(StreamReceiverBody::Real(receiver)))
            }
            ConnBody::Sim(conn) => {
                let (sender, receiver) = conn.split_stream();
                (StreamSender(SenderBody::Sim(sender)), StreamReceiver(StreamReceiverBody::Sim(receiver)))
            }
        }
    }
}

/// The sending direction of a stream of bytes.
///
/// # Cancel
/// A send that is dropped may have sent a part of its bytes: drop the connection too.
pub struct StreamSender(SenderBody);

impl StreamSender {
    /// Sends `head` (copied) and `body` (not copied) in as few writes as possible.
    pub async fn send(&mut self, head: &[u8], body: Buf) -> io::Result<()> {
        self.send_parts(head, [body]).await
    }

    /// Sends `head` (copied) and then `parts` (not copied) in as few writes as possible.
    pub async fn send_parts(&mut self, head: &[u8], parts: impl IntoIterator<Item = Buf>) -> io::Result<()> {
        either!(SenderBody, &mut self.0, sender => sender.send_bytes(head, parts).await)
    }

    /// Sends messages in order, each a head (copied) and a body (not copied), in as few writes as possible.
    pub async fn send_all(&mut self, messages: Vec<(Vec<u8>, Buf)>) -> io::Result<()> {
        either!(SenderBody, &mut self.0, sender => sender.send_messages(messages).await)
    }
}

/// The receiving direction of a stream of bytes.
///
/// # Cancel
/// A receive that is dropped may lose bytes: drop the connection too.
pub struct StreamReceiver(StreamReceiverBody);

enum StreamReceiverBody {
    Real(real::Receiver),
    Sim(sim::StreamReceiver),
}

/// Most bytes of [`StreamReceiver::head`].
pub const STREAM_HEAD_MAX: usize = 8 << 10;

impl StreamReceiver {
    /// The next `len` bytes, at most [`STREAM_HEAD_MAX`]; `None` if the other end closed before the first of them.
    pub async fn head(&mut self, len: usize) -> io::Result<Option<Vec<u8>>> {
        assert!(len <= STREAM_HEAD_MAX, "a head is small");
        either!(StreamReceiverBody, &mut self.0, receiver => receiver.recv_head(len).await)
    }

    /// True if the other end has closed the connection or its sending direction, or the connection is known to be
    /// broken. Bytes that were sent before may still be received.
    pub fn is_hung_up(&self) -> bool {
        either!(StreamReceiverBody, &self.0, receiver => receiver.is_hung_up())
    }

    /// Breaks the connection in both directions; sends under way fail.
    pub fn hang_up(&self) {
        either!(StreamReceiverBody, &self.0, receiver => receiver.hang_up());
    }

    /// The next `len` bytes, aligned.
    pub async fn body(&mut self, len: usize) -> io::Result<Buf> {
        either!(StreamReceiverBody, &mut self.0, receiver => receiver.recv_body(len).await)
    }
}

/// The sending direction of a connection.
///
/// # Cancel
/// A send that is dropped may have sent half a frame: drop the connection too.
pub struct Sender(SenderBody);

enum SenderBody {
    Real(real::Sender),
    Sim(sim::Sender),
}

impl Sender {
    /// From now on every frame has a tag.
    pub(crate) fn seal(&mut self, seal: Seal) {
        either!(SenderBody, &mut self.0, sender => sender.seal(seal));
    }

    /// Sends one frame, filling in the lengths, and checksums or the tag, of its header.
    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        either!(SenderBody, &mut self.0, sender => sender.send(frame).await)
    }

    /// Sends frames one after the other in as few writes as possible.
    pub async fn send_all(&mut self, frames: Vec<Frame>) -> io::Result<()> {
        either!(SenderBody, &mut self.0, sender => sender.send_all(frames).await)
    }

    /// Sends any bytes, even if they are not a frame; only in a simulated world.
    #[cfg(test)]
    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match &mut self.0 {
            SenderBody::Real(_) => Err(io::ErrorKind::Unsupported.into()),
            SenderBody::Sim(sender) => sender.send_bytes(&bytes, []).await,
        }
    }
}

/// The receiving direction of a connection.
///
/// # Cancel
/// A `recv` that is dropped may lose half a frame: drop the connection too.
pub struct Receiver(ReceiverBody);

enum ReceiverBody {
    Real(real::Receiver),
    Sim(sim::Receiver),
}

impl Receiver {
    /// From now on only frames with the right tag are received.
    pub(crate) fn seal(&mut self, seal: Seal) {
        either!(ReceiverBody, &mut self.0, receiver => receiver.seal(seal));
    }

    /// The next frame, with verified checksums or tag, and an aligned payload; `None` if the other end closed.
    ///
    /// # Errors `InvalidData` for bytes that are not a frame (with the [`HeaderError`](types::wire::HeaderError)
    /// inside if the header is wrong); anything else if the connection broke. After any error the connection cannot
    /// be used.
    pub async fn recv(&mut self) -> io::Result<Option<Frame>> {
        self.recv_within(usize::MAX).await
    }

    /// Like [`Receiver::recv`], for a peer that is not trusted yet: a frame with more than `most` bytes of record and
    /// payload is refused before memory is allocated for it.
    ///
    /// # Errors
    /// As [`Receiver::recv`].
    pub async fn recv_within(&mut self, most: usize) -> io::Result<Option<Frame>> {
        either!(ReceiverBody, &mut self.0, receiver => receiver.recv_within(most).await)
    }
}
