//! The server's side: answers requests.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use types::limits::NET_PROBE_MAX;
use types::messages::session::{Grant, NetProbe, NetProbed, Role};
use types::messages::{Refused, task_name};
use types::wire::{self, Flags, Record};
use types::{Buf, BufMut, Epoch, Refusal};

use super::handshake::{HANDSHAKE_US, respond};
use super::latch::{Latch, wake};
use super::outgoing::Outgoing;
use super::send_queue::SendQueue;
use super::{Answer, Call, Handler, Identity, LocalBoxFuture};
use crate::{Conn, Frame, Listener, Receiver, World};

/// Most requests of one connection that are in progress, or whose answers are not yet sent. Then the server reads no
/// further one.
const IN_FLIGHT_MAX: usize = 256;
/// Most bytes of payloads in progress from all clients together; beyond it, a client's next request waits. The number
/// of clients is not bounded. Payloads from servers do not count: clients' requests wait for them, and each server
/// bounds what it accepts from clients. A connection may always have one request in progress.
const PAYLOADS_MAX: usize = 32 << 20;
/// Most bytes of unsent answers of one connection. Then none of its requests is begun until it has read some answers.
const ANSWERS_MAX: usize = 16 << 20;
/// Pause after a failed accept, in microseconds. A scarce resource, such as file descriptors, needs time to become
/// free.
const ACCEPT_PAUSE_US: u64 = 10_000;

/// What the connections of one thread may have in progress.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// See [`PAYLOADS_MAX`].
    payloads: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { payloads: PAYLOADS_MAX }
    }
}

impl Bounds {
    /// Those of one of `threads` threads.
    pub(super) fn of_one_in(threads: usize) -> Bounds {
        Bounds { payloads: PAYLOADS_MAX / threads }
    }
}

struct Server {
    world: World,
    identity: Identity,
    handler: Handler,
    bounds: Bounds,
    /// Bytes of clients' payloads in progress.
    payloads: Cell<usize>,
    /// Bytes of answers that wait for credit.
    answers: Rc<Cell<usize>>,
    /// Readers that wait until `payloads` becomes smaller.
    crowded: RefCell<Vec<Waker>>,
    /// Set when [`serve`] is dropped.
    stopped: Latch,
}

/// Accepts connections for ever and passes every call to `handler`. It gets the requests of one connection in the
/// order of arrival, and is polled once for each before the next one is read.
///
/// A caller whose handshake fails is rejected. If a connection ends, its requests go on. Dropping this future drops
/// all connections and all requests.
pub async fn serve(world: World, listener: Listener, identity: Identity, handler: Handler) {
    serve_within(world, listener, identity, handler, Bounds::default()).await;
}

/// As [`serve`], with bounds.
pub(super) async fn serve_within(
    world: World,
    listener: Listener,
    identity: Identity,
    handler: Handler,
    bounds: Bounds,
) {
    let server = Server {
        world: world.clone(),
        identity,
        handler,
        bounds,
        payloads: Cell::new(0),
        answers: Rc::default(),
        crowded: RefCell::default(),
        stopped: Latch::default(),
    };
    let stop = Stop(Rc::new(server));
    loop {
        match listener.accept().await {
            Ok(conn) => world.spawn("connection", attend(stop.0.clone(), conn)),
            Err(error) => {
                tracing::debug!(%error, "cannot accept");
                world.sleep(ACCEPT_PAUSE_US).await;
            }
        }
    }
}

struct Stop(Rc<Server>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stopped.set();
    }
}

/// A connection after the handshake.
struct Session {
    server: Rc<Server>,
    send_queue: SendQueue,
    outgoing: Outgoing,
    role: Role,
    peer: String,
    /// Requests that continue in their own tasks.
    in_progress: Cell<usize>,
    /// The reader, while it waits for room.
    reader: Cell<Option<Waker>>,
}

/// What an answer needs of its request.
#[derive(Clone, Copy)]
struct Asked {
    request: u64,
    epoch: Epoch,
    /// Bytes of the payload that may be sent without an announcement.
    credit: u32,
}

impl Asked {
    fn by(frame: &Frame) -> Asked {
        let header = &frame.header;
        Asked { request: header.request, epoch: header.epoch, credit: header.bulk }
    }
}

async fn attend(server: Rc<Server>, conn: Conn) {
    let (peer, losses) = (conn.peer(), conn.losses());
    let (mut sender, mut receiver) = conn.split();
    let hearing = respond(&server.world, &server.identity, &mut sender, &mut receiver);
    let role = match server.stopped.or(server.world.timeout(HANDSHAKE_US, hearing)).await {
        Some(Some(Ok(role))) => role,
        Some(Some(Err(reason))) => return tracing::debug!(peer, %reason, "turned away"),
        Some(None) => return tracing::debug!(peer, "no handshake in time"),
        None => return,
    };
    let world = server.world.clone();
    let outgoing = Outgoing::new(world.clone(), losses, server.answers.clone());
    let session = Rc::new(Session {
        server,
        outgoing,
        send_queue: SendQueue::new(sender),
        role,
        peer,
        in_progress: Cell::new(0),
        reader: Cell::default(),
    });
    let writer = session.clone();
    world.spawn("answers", async move { writer.send_queue.write(|| wake(&writer.reader)).await });
    session.server.stopped.or(session.send_queue.broken().or(session.read(receiver))).await;
    session.send_queue.close();
}

impl Session {
    async fn read(self: &Rc<Session>, mut receiver: Receiver) {
        loop {
            let frame = match receiver.recv().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => return tracing::debug!(peer = self.peer, %error, "cannot receive"),
            };
            if frame.header.cluster != self.server.identity.cluster || frame.header.flags.is_reply() {
                return tracing::debug!(
                    peer = self.peer,
                    "a frame of another cluster, or an answer where a request is expected"
                );
            }
            if frame.header.kind == Grant::KIND {
                self.room_to_send().await;
                match self.outgoing.granted(&frame) {
                    Ok(Some(piece)) => self.send_queue.queue(piece),
                    Ok(None) => {}
                    Err(error) => return tracing::debug!(peer = self.peer, %error, "not a grant"),
                }
                continue;
            }
            self.room(frame.payload.len()).await;
            if frame.header.kind == NetProbe::KIND {
                self.send_queue.queue(self.frame(Asked::by(&frame), self.probed(&frame)));
                continue;
            }
            self.begin(frame).await;
        }
    }

    /// Waits until another request, with `bytes` of payload, may be in progress.
    async fn room(&self, bytes: usize) {
        poll_fn(|cx| {
            let many = self.in_progress.get() + self.send_queue.unsent() >= IN_FLIGHT_MAX
                || self.send_queue.unsent_bytes() >= ANSWERS_MAX;
            let much = self.bytes_of(bytes) > 0
                && self.in_progress.get() > 0
                && self.server.payloads.get() + bytes > self.server.bounds.payloads;
            if !many && !much {
                return Poll::Ready(());
            }
            if much {
                self.server.crowded.borrow_mut().push(cx.waker().clone());
            }
            self.reader.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Waits until another piece may wait to be sent. The caller makes this room by reading.
    async fn room_to_send(&self) {
        poll_fn(|cx| {
            if self.send_queue.unsent() < IN_FLIGHT_MAX && self.send_queue.unsent_bytes() < ANSWERS_MAX {
                return Poll::Ready(());
            }
            self.reader.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Bytes of a payload that count against [`PAYLOADS_MAX`].
    fn bytes_of(&self, payload: usize) -> usize {
        if self.role == Role::Client { payload } else { 0 }
    }

    /// The answer to a probe of the network, of which no handler hears.
    fn probed(&self, frame: &Frame) -> Result<Answer, Refusal> {
        let NetProbe { bytes } = wire::from_bytes(&frame.record).map_err(|_| Refusal::Malformed)?;
        if bytes as usize > NET_PROBE_MAX {
            return Err(Refusal::Malformed);
        }
        let zeros = BufMut::zeroed(bytes as usize).freeze();
        Ok(Answer::new(&NetProbed { resent: self.outgoing.resent() }, zeros))
    }

    /// Polls the request once here, to keep the order. If it is not finished then, it continues in its own task.
    async fn begin(self: &Rc<Session>, frame: Frame) {
        let asked = Asked::by(&frame);
        let (name, world) = (task_name(frame.header.kind), &self.server.world);
        let bytes = self.bytes_of(frame.payload.len());
        let mut answering = (self.server.handler)(Call {
            kind: frame.header.kind,
            epoch: asked.epoch,
            record: frame.record,
            payload: frame.payload,
            covered: frame.header.flags.is_covered(),
            traced: frame.header.flags.is_traced(),
            role: self.role,
            peer: self.peer.clone(),
        });
        match poll_fn(|cx| Poll::Ready(world.part(name, || answering.as_mut().poll(cx)))).await {
            // Leave it to the writer task: answers to requests that have already arrived are sent together.
            Poll::Ready(answer) => self.send_queue.queue(self.frame(asked, answer)),
            Poll::Pending => {
                self.in_progress.set(self.in_progress.get() + 1);
                self.server.payloads.set(self.server.payloads.get() + bytes);
                world.spawn(name, self.clone().finish(asked, bytes, answering));
            }
        }
    }

    async fn finish(
        self: Rc<Session>,
        asked: Asked,
        bytes: usize,
        answering: LocalBoxFuture<'static, Result<Answer, Refusal>>,
    ) {
        let finishing = async {
            let answer = answering.await;
            self.send_queue.send(self.frame(asked, answer)).await;
        };
        self.server.stopped.or(finishing).await;
        self.in_progress.set(self.in_progress.get() - 1);
        self.server.payloads.set(self.server.payloads.get() - bytes);
        if bytes > 0 {
            self.server.crowded.take().into_iter().for_each(Waker::wake);
        }
        wake(&self.reader);
    }

    /// The answer, or its announcement.
    fn frame(&self, asked: Asked, answer: Result<Answer, Refusal>) -> Frame {
        let Asked { request, epoch, credit } = asked;
        let cluster = self.server.identity.cluster;
        match answer {
            Ok(answer) => {
                let (kind, flags, record, payload) = answer.encoded();
                let frame = Frame::new(kind, request, cluster, epoch, flags, record, payload);
                self.outgoing.admit(frame, credit)
            }
            Err(reason) => {
                let record = wire::to_bytes(&Refused { reason });
                Frame::new(Refused::KIND, request, cluster, epoch, Flags::REFUSED, record, Buf::empty())
            }
        }
    }
}
