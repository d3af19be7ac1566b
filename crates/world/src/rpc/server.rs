//! The server's side: answers requests.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use types::limits::{CALL_TIMEOUT_US, NET_PROBE_MAX};
use types::messages::session::{Grant, NetProbe, NetProbed, Piece, Role};
use types::messages::{Refused, task_name};
use types::wire::{self, Flags, Record};
use types::{Buf, BufMut, Epoch, Refusal};

use super::announced::Announced;
use super::handshake::{Bulk, HANDSHAKE_US, respond};
use super::incoming::{BadPiece, Incoming};
use super::latch::Latch;
use super::outgoing::Outgoing;
use super::room::{Bounds, Payloads, Place, Room};
use super::send_queue::SendQueue;
use super::unproved::Handshaking;
use super::{Answer, Call, Handler, Identity, LocalBoxFuture};
use crate::{Conn, Frame, LineLimit, Listener, Receiver, World};

/// Most requests of one connection that are announced or in progress, or whose answers are not yet sent. Then the server reads
/// no further one.
const IN_FLIGHT_MAX: usize = 256;
/// Most bytes of unsent answers of one connection. Then none of its requests is begun until it has read some answers.
const ANSWERS_MAX: usize = 16 << 20;
/// Pause after a failed accept, in microseconds. A scarce resource, such as file descriptors, needs time to become
/// free.
const ACCEPT_PAUSE_US: u64 = 10_000;
/// Lines about callers that break the protocol, of all servers of this process.
static BROKEN: LineLimit = LineLimit::new();

struct Server {
    world: World,
    identity: Identity,
    handler: Handler,
    /// Room for clients' payloads.
    payloads: Rc<Payloads>,
    /// Bytes of answers that wait for credit.
    answers: Rc<Cell<usize>>,
    /// Large requests on their way. Their window is that of the process: what its own callers wait for comes through it, too.
    incoming: Rc<Incoming>,
    /// Set when [`serve`] is dropped.
    stopped: Latch,
}

/// Accepts connections for ever and passes every call to `handler`. It gets the requests of one connection in the
/// order of arrival, and is polled once for each before the next one is read.
///
/// A request that was announced (`announced.rs`) arrives with its last piece. So one that was sent later may be before it, and
/// two that were announced may change places. A caller that needs an order waits for the answer to the first request; it must
/// do so anyway, because a request whose connection breaks goes on here while its repetition comes over the next connection.
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
    let mut identity = identity;
    if identity.name.is_empty() {
        identity.name = listener.address();
    }
    let server = Server {
        world: world.clone(),
        identity,
        handler,
        payloads: Rc::new(Payloads::new(&bounds)),
        answers: Rc::default(),
        incoming: Rc::new(Incoming::new(world.clone(), world.receive_port())),
        stopped: Latch::default(),
    };
    let stop = Stop(Rc::new(server));
    loop {
        match listener.accept().await {
            Ok(conn) => {
                let handshaking = bounds.unproved.admit(host(&conn.peer()), world.now());
                world.spawn("connection", attend(stop.0.clone(), conn, handshaking));
            }
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
    send_queue: Rc<SendQueue>,
    outgoing: Outgoing,
    room: Rc<Room>,
    announced: Rc<Announced>,
    /// Larger payloads of requests are announced while the window is small.
    bulk: usize,
    role: Role,
    peer: String,
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
    /// Of a request whose payload is large if it has more than `bulk` bytes.
    fn by(frame: &Frame, bulk: usize) -> Asked {
        let header = &frame.header;
        let is_large = header.flags.is_announced() || frame.payload.len() > bulk;
        let credit = if is_large { 0 } else { header.bulk };
        Asked { request: header.request, epoch: header.epoch, credit }
    }
}

async fn attend(server: Rc<Server>, conn: Conn, handshaking: Handshaking) {
    let (peer, losses) = (conn.peer(), conn.losses());
    let is_free = conn.is_local() || server.incoming.is_off();
    let bulk = if is_free { usize::MAX } else { server.world.bulk_min() };
    let (mut sender, mut receiver) = conn.split();
    let now = Bulk { bytes: bulk, is_crowded: !is_free && server.incoming.is_crowded() };
    let hearing = respond(&server.world, &server.identity, now, &mut sender, &mut receiver);
    let hearing = handshaking.unless_closed(server.world.timeout(HANDSHAKE_US, hearing));
    let role = match server.stopped.or(hearing).await {
        Some(Some(Some(Ok(role)))) => role,
        Some(Some(Some(Err(reason)))) => return tracing::debug!(peer, %reason, "turned away"),
        Some(Some(None)) => return tracing::debug!(peer, "no handshake in time"),
        Some(None) => return tracing::debug!(peer, "too many have not proved the key"),
        None => return,
    };
    let world = server.world.clone();
    let outgoing = Outgoing::new(world.clone(), losses.clone(), server.answers.clone());
    let send_queue = Rc::new(SendQueue::new(sender));
    let room = Rc::new(Room::new(server.payloads.clone(), role == Role::Client));
    let meter = server.incoming.meter(host(&peer).to_owned(), losses);
    let announced = Rc::new(Announced::new(server.incoming.clone(), send_queue.clone(), room.clone(), meter));
    room.set_announced(&announced);
    let session = Rc::new(Session { server, send_queue, outgoing, room, announced, bulk, role, peer });
    let writer = session.clone();
    world.spawn("answers", async move { writer.send_queue.write(|| writer.room.wake_reader()).await });
    session.server.stopped.or(session.send_queue.broken().or(session.read(receiver))).await;
    session.send_queue.close();
    // Requests in progress may have the session for long.
    session.announced.end();
}

/// An address without its port, which each connection has anew.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

impl Session {
    async fn read(self: &Rc<Session>, mut receiver: Receiver) {
        loop {
            let frame = match self.receive(&mut receiver).await {
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
            if let Err(error) = self.take(frame).await {
                if let Some(left_out) = BROKEN.admits(self.server.world.now()) {
                    tracing::warn!(
                        peer = self.peer,
                        left_out,
                        "the connection is closed, because the caller breaks the protocol: {error}"
                    );
                }
                return;
            }
        }
    }

    /// The next frame. While announced requests have room that others wait for, a caller that sends nothing for as long as a
    /// call may take counts as gone: its calls are.
    async fn receive(&self, receiver: &mut Receiver) -> io::Result<Option<Frame>> {
        let world = &self.server.world;
        let Some(end) = self.announced.end_us() else { return receiver.recv().await };
        let patience = end.saturating_sub(world.now()).clamp(1, CALL_TIMEOUT_US);
        let received = world.timeout(patience, receiver.recv()).await;
        received.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Takes a frame of the caller.
    async fn take(self: &Rc<Session>, frame: Frame) -> Result<(), BadPiece> {
        match frame.header.kind {
            Grant::KIND => self.granted(&frame).await,
            // It has room since its announcement.
            Piece::KIND => match self.announced.piece(frame)? {
                Some((request, place)) => {
                    self.room_to_send().await;
                    self.begin(request, Some(place)).await;
                    Ok(())
                }
                None => Ok(()),
            },
            // Where nothing is large nothing is bounded as large.
            _ if frame.header.flags.is_announced() && self.bulk == usize::MAX => {
                Err(BadPiece::Announcement(frame.header.bulk as usize))
            }
            _ if frame.header.flags.is_announced() => {
                self.room(0).await;
                self.announced.announce(frame)
            }
            kind => {
                if frame.payload.len() > self.bulk {
                    self.announced.came_whole(&frame)?;
                }
                self.room(frame.payload.len()).await;
                if kind == NetProbe::KIND {
                    self.send_queue.queue(self.frame(Asked::by(&frame, self.bulk), self.probed(&frame)));
                } else {
                    self.begin(frame, None).await;
                }
                Ok(())
            }
        }
    }

    /// Sends what a grant allows, or forgets the call that is given up.
    async fn granted(&self, frame: &Frame) -> Result<(), BadPiece> {
        let Grant { bytes } = wire::from_bytes(&frame.record)?;
        if bytes == 0 && self.announced.give_up(frame.header.request) {
            return Ok(());
        }
        self.room_to_send().await;
        self.outgoing.granted(frame)?.into_iter().for_each(|piece| self.send_queue.queue(piece));
        Ok(())
    }

    /// Waits until another request, with `bytes` of payload, may be in progress.
    ///
    /// It waits for requests that are begun, because fewer than [`IN_FLIGHT_MAX`] can be announced, and for the caller, who
    /// takes answers. For payloads it does not wait while pieces may come: they may be what makes room. So on such a connection
    /// small payloads may exceed the bound, by [`IN_FLIGHT_MAX`] times the largest of them; large ones do not come there.
    async fn room(&self, bytes: usize) {
        self.until(|cx| {
            let many = self.room.requests() + self.send_queue.unsent() >= IN_FLIGHT_MAX
                || self.send_queue.unsent_bytes() >= ANSWERS_MAX;
            let much = self.room.in_progress() > 0 && !self.room.fits(bytes) && !self.announced.is_arriving();
            if many || much {
                self.room.wait(cx.waker(), much);
            }
            !many && !much
        })
        .await;
    }

    /// Waits until another piece may wait to be sent. The caller makes this room by reading.
    async fn room_to_send(&self) {
        self.until(|cx| {
            let has_room =
                self.send_queue.unsent() < IN_FLIGHT_MAX && self.send_queue.unsent_bytes() < ANSWERS_MAX;
            if !has_room {
                self.room.wait(cx.waker(), false);
            }
            has_room
        })
        .await;
    }

    /// Reads nothing until it may go on. Meanwhile nobody takes what the caller was granted; others get its credit.
    async fn until(&self, mut may_go_on: impl FnMut(&mut Context<'_>) -> bool) {
        poll_fn(|cx| {
            if may_go_on(cx) {
                return Poll::Ready(());
            }
            self.announced.stop();
            Poll::Pending
        })
        .await;
        self.announced.go_on();
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

    /// Polls the request once here, to keep the order. If it is not finished then, it continues in its own task. One that was
    /// announced has its place already.
    async fn begin(self: &Rc<Session>, frame: Frame, place: Option<Place>) {
        let asked = Asked::by(&frame, self.bulk);
        let (name, world) = (task_name(frame.header.kind), &self.server.world);
        let (bytes, sealed) = (frame.payload.len(), frame.is_sealed());
        let mut answering = (self.server.handler)(Call {
            kind: frame.header.kind,
            epoch: asked.epoch,
            record: frame.record,
            payload: frame.payload,
            covered: frame.header.flags.is_covered(),
            sealed,
            traced: frame.header.flags.is_traced(),
            class: crate::direct::from_the_wire(frame.header.flags.class()),
            role: self.role,
            peer: self.peer.clone(),
        });
        match poll_fn(|cx| Poll::Ready(world.part(name, || answering.as_mut().poll(cx)))).await {
            // Leave it to the writer task: answers to requests that have already arrived are sent together.
            Poll::Ready(answer) => self.send_queue.queue(self.frame(asked, answer)),
            Poll::Pending => {
                let place = place.unwrap_or_else(|| {
                    let place = Place::new(&self.room);
                    place.take(bytes);
                    place
                });
                world.spawn(name, self.clone().finish(asked, place, answering));
            }
        }
    }

    async fn finish(
        self: Rc<Session>,
        asked: Asked,
        place: Place,
        answering: LocalBoxFuture<'static, Result<Answer, Refusal>>,
    ) {
        let finishing = async {
            let answer = answering.await;
            self.send_queue.send(self.frame(asked, answer)).await;
        };
        self.server.stopped.or(finishing).await;
        drop(place);
    }

    /// The answer, or its announcement.
    fn frame(&self, asked: Asked, answer: Result<Answer, Refusal>) -> Frame {
        let Asked { request, epoch, credit } = asked;
        let cluster = self.server.identity.cluster;
        // Who has no window here does not have to know.
        let is_crowded = self.bulk < usize::MAX && self.server.incoming.is_crowded();
        let crowded = if is_crowded { Flags::CROWDED } else { Flags(0) };
        match answer {
            Ok(answer) => {
                let (kind, flags, record, payload) = answer.encoded();
                let frame = Frame::new(kind, request, cluster, epoch, flags.with(crowded), record, payload);
                self.outgoing.admit(frame, credit)
            }
            Err(reason) => {
                let record = wire::to_bytes(&Refused { reason });
                let flags = Flags::REFUSED.with(crowded);
                Frame::new(Refused::KIND, request, cluster, epoch, flags, record, Buf::empty())
            }
        }
    }
}
