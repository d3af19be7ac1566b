//! One client: its requests are carried out concurrently, and each is answered when it is done.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{Either, select};
use types::{Buf, BufMut};
use world::{Conn, Notify, StreamReceiver};

use super::credits::{Credit, Credits};
use super::dispatch::{Answer, answer_bytes};
use super::gate::Gate;
use super::reply_cache::Origin;
use super::wire::{Record, mark};
use crate::reply_queue::ReplyQueue;
use crate::seats::Seat;

/// Most requests of one client in progress.
const REQUESTS_MAX: usize = 64;
/// Most bytes of these requests and their answers.
const BYTES_MAX: usize = 4 << 20;
/// Most bytes of a small request and its answer.
const SMALL: usize = 64 << 10;
/// How long a record that has begun may take to arrive, in microseconds, because it holds memory.
const RECORD_US: u64 = 20_000_000;
/// How long a client may take for its first request, in microseconds.
const FIRST_US: u64 = 60_000_000;

/// What a connection's tasks share.
struct Connection {
    gate: Rc<Gate>,
    origin: Arc<Origin>,
    seat: Seat,
    reply_queue: ReplyQueue<Room>,
    /// The limit for this client.
    own: Rc<Credits>,
    /// The limit for all clients of the thread.
    all: Rc<Credits>,
    /// The connection has ended.
    over: Cell<bool>,
    /// Notified when it has ended.
    ended: Notify,
}

/// The credits of a request and its answer.
struct Room {
    _own: (Vec<Credit>, Credit),
    _all: Option<Credit>,
}

/// Serves a client until it disconnects, or its seat is needed.
pub(super) async fn serve(gate: Rc<Gate>, conn: Conn, client: SocketAddr, seat: Seat, all: Rc<Credits>) {
    let (sender, mut receiver) = conn.split_stream();
    let connection = Rc::new(Connection {
        reply_queue: ReplyQueue::new(gate.world.clone(), sender),
        gate,
        origin: Origin::new(client),
        seat,
        own: Credits::new(REQUESTS_MAX, BYTES_MAX),
        all,
        over: Cell::new(false),
        ended: Notify::new(),
    });
    tracing::debug!(%client, "a client has connected");
    let why = connection.receive(&mut receiver).await;
    connection.origin.end(connection.gate.world.now());
    // Requests that were begun are finished, even if the client no longer waits for the answers.
    connection.own.all_back().await;
    tracing::debug!(%client, "the client is gone: {why}");
}

impl Connection {
    /// Receives requests and starts them. Returns why there are no more.
    async fn receive(self: &Rc<Connection>, receiver: &mut StreamReceiver) -> &'static str {
        let shared = &self.gate.shared;
        let mut is_first = true;
        loop {
            let (broken, closed) = (pin!(self.ended.wait()), pin!(shared.ended.wait()));
            let (needed, silent) = (pin!(self.seat.over()), pin!(self.silence(is_first)));
            let ended = select(select(broken, closed), select(needed, silent));
            if self.seat.is_over() {
                return "it was idle for longest, and its seat is needed";
            }
            if self.over.get() || shared.closing.load(Ordering::Acquire) {
                return "the gate has ended";
            }
            let (record, credits) = match select(pin!(self.next(receiver)), ended).await {
                Either::Left((Ok(next), _)) => next,
                Either::Left((Err(why), _)) => return why,
                Either::Right((Either::Right((Either::Right(_), _)), _)) => {
                    return "it has never asked for anything";
                }
                // Drop the incomplete request.
                Either::Right(_) => continue,
            };
            is_first = false;
            let bytes = answer_bytes(&record);
            let own = self.own.take(0, bytes).await;
            // Not earlier: a client that stops in the middle of a request must hold only its own credits, not those
            // of all clients.
            let all = self.all_room(record.len() + bytes).await;
            if receiver.is_hung_up() {
                // The request waited too long. Its client may have repeated it on another connection, and sent
                // further requests since.
                return "it hung up";
            }
            let connection = Rc::clone(self);
            let room = Room { _own: (credits, own), _all: all };
            self.gate.world.spawn("nfs request", async move { connection.carry_out(record, room).await });
        }
    }

    /// Ends when a client that has not asked yet has had its time.
    async fn silence(&self, is_first: bool) {
        if !is_first {
            std::future::pending::<()>().await;
        }
        self.gate.world.sleep(FIRST_US).await;
    }

    /// Takes credits of all clients. A small request that is its client's only one needs none: clients that do not
    /// read their answers may hold all credits until their connections break, and the others must not stop completely
    /// meanwhile.
    async fn all_room(&self, bytes: usize) -> Option<Credit> {
        loop {
            let freed = self.own.freed();
            if bytes <= SMALL && self.own.requests() == 1 {
                return None;
            }
            if let Either::Left((room, _)) = select(pin!(self.all.take(1, bytes)), pin!(freed)).await {
                return Some(room);
            }
        }
    }

    /// The next record, with its credits; or why there is none.
    async fn next(&self, receiver: &mut StreamReceiver) -> Result<(Buf, Vec<Credit>), &'static str> {
        match receiver.head(4).await {
            Ok(Some(mark)) => {
                self.seat.touch();
                let record = self.record(mark, receiver).await;
                record.ok_or("it does not speak the protocol, or is too slow")
            }
            Ok(None) => Err("it closed the connection"),
            Err(_) => Err("the connection broke"),
        }
    }

    /// The record that begins with `mark`, with its credits. `None` if the connection must end.
    async fn record(&self, mark: Vec<u8>, receiver: &mut StreamReceiver) -> Option<(Buf, Vec<Credit>)> {
        let mut bounds = Record::default();
        let mut mark: [u8; 4] = mark.try_into().ok()?;
        let mut whole: Option<Vec<u8>> = None;
        let mut credits = Vec::new();
        loop {
            let (len, last) = bounds.fragment(mark)?;
            credits.push(self.own.take(credits.is_empty().into(), len).await);
            let fragment = self.in_time(receiver.body(len)).await?;
            if last && whole.is_none() {
                return Some((fragment, credits));
            }
            let joined = whole.get_or_insert_default();
            joined.extend_from_slice(&fragment);
            if last {
                return Some((BufMut::copy_of(joined).freeze(), credits));
            }
            mark = self.in_time(receiver.head(4)).await??.try_into().ok()?;
        }
    }

    /// Receives something within the time limit.
    async fn in_time<T>(&self, receive: impl Future<Output = io::Result<T>>) -> Option<T> {
        self.gate.world.timeout(RECORD_US, receive).await?.ok()
    }

    /// Carries out a request. The credits are returned after the answer was sent.
    async fn carry_out(&self, record: Buf, room: Room) {
        let _request = self.seat.begin();
        let answer = self.gate.answer(&self.origin, &record).await;
        // Free the record now: this task may send for a long time, also for other tasks.
        drop(record);
        match answer {
            Ok(Some(answer)) => {
                if self.send(answer, room).await.is_err() {
                    self.end();
                }
            }
            Ok(None) => {}
            Err(_) => {
                let client = self.origin.client();
                tracing::debug!(%client, "a record that is not a call: the connection ends");
                self.end();
            }
        }
    }

    async fn send(&self, answer: Answer, room: Room) -> io::Result<()> {
        let mut head = mark(answer.len()).to_vec();
        head.extend_from_slice(&answer.head);
        let zeros = (answer.zeros > 0).then(|| (vec![0; answer.zeros], Buf::empty()));
        self.reply_queue.send([(head, answer.data)].into_iter().chain(zeros), room).await
    }

    /// Ends the connection: no more requests are received.
    fn end(&self) {
        self.over.set(true);
        self.ended.notify();
    }
}
