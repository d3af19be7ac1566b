//! One client: its requests are carried out side by side, and answered as they are done.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use futures_util::future::{Either, select};
use types::{Buf, BufMut};
use world::{Conn, Notify, StreamReceiver};

use super::credits::{Credit, Credits};
use super::dispatch::{Answer, answer_bytes};
use super::gate::Gate;
use super::wire::{Record, mark};
use crate::reply_queue::ReplyQueue;

/// Requests of one client that are under way at once.
const REQUESTS_MAX: usize = 64;
/// Bytes that they and their answers hold.
const BYTES_MAX: usize = 4 << 20;
/// Bytes of a small request and its answer.
const SMALL: usize = 64 << 10;
/// How long the rest of a record may take once it has begun, in microseconds: it holds memory.
const RECORD_US: u64 = 20_000_000;

/// What a connection's tasks share.
struct Connection {
    gate: Rc<Gate>,
    client: IpAddr,
    reply_queue: ReplyQueue<Room>,
    /// What this client may have under way.
    own: Rc<Credits>,
    /// What all clients of the thread may.
    all: Rc<Credits>,
    /// Nothing more can be heard or said.
    over: Cell<bool>,
    /// Given when that is so.
    ended: Notify,
}

/// What a request and its answer take of the bounds.
struct Room {
    _own: (Vec<Credit>, Credit),
    _all: Option<Credit>,
}

/// Serves a client until it goes.
pub(super) async fn serve(gate: Rc<Gate>, conn: Conn, client: IpAddr, all: Rc<Credits>) {
    let (sender, mut receiver) = conn.split_stream();
    let connection = Rc::new(Connection {
        reply_queue: ReplyQueue::new(gate.world.clone(), sender),
        gate,
        client,
        own: Credits::new(REQUESTS_MAX, BYTES_MAX),
        all,
        over: Cell::new(false),
        ended: Notify::new(),
    });
    tracing::debug!(%client, "a client is here");
    let why = connection.receive(&mut receiver).await;
    // What was begun is carried out, also for a client that no longer waits for the answer.
    connection.own.all_back().await;
    tracing::debug!(%client, "the client is gone: {why}");
}

impl Connection {
    /// Takes requests and has them carried out. Returns why there are no more.
    async fn receive(self: &Rc<Connection>, receiver: &mut StreamReceiver) -> &'static str {
        let shared = &self.gate.shared;
        loop {
            let (broken, closed) = (pin!(self.ended.wait()), pin!(shared.ended.wait()));
            let ended = select(broken, closed);
            if self.over.get() || shared.closing.load(Ordering::Acquire) {
                return "the gate has ended";
            }
            let (record, credits) = match select(pin!(self.next(receiver)), ended).await {
                Either::Left((Ok(next), _)) => next,
                Either::Left((Err(why), _)) => return why,
                // What has come of a request is of no use to anybody.
                Either::Right(_) => continue,
            };
            let bytes = answer_bytes(&record);
            let own = self.own.take(0, bytes).await;
            // Only now: whoever stops in the middle of a request holds its own room, and not that of others.
            let all = self.all_room(record.len() + bytes).await;
            if receiver.is_hung_up() {
                // It waited here for too long: its client may have asked again on another connection, and for more since.
                return "it hung up";
            }
            let connection = Rc::clone(self);
            let room = Room { _own: (credits, own), _all: all };
            self.gate.world.spawn("nfs request", async move { connection.carry_out(record, room).await });
        }
    }

    /// Room among all clients. A small request that is the client's only one gets by without: those who do not take their
    /// answers may hold all the room until their connections break, and the others shall at least not stand still.
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

    /// The next record, and the client's room that it takes; or why there is none.
    async fn next(&self, receiver: &mut StreamReceiver) -> Result<(Buf, Vec<Credit>), &'static str> {
        match receiver.head(4).await {
            Ok(Some(mark)) => {
                let record = self.record(mark, receiver).await;
                record.ok_or("it does not speak the protocol, or is too slow")
            }
            Ok(None) => Err("it closed the connection"),
            Err(_) => Err("the connection broke"),
        }
    }

    /// The record that begins with `mark`, and the client's room that it takes. `None` if the connection is of no further use.
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

    /// What comes in, if it comes in time.
    async fn in_time<T>(&self, receive: impl Future<Output = io::Result<T>>) -> Option<T> {
        self.gate.world.timeout(RECORD_US, receive).await?.ok()
    }

    /// The room is given back when the answer has left.
    async fn carry_out(&self, record: Buf, room: Room) {
        let answer = self.gate.answer(self.client, &record).await;
        // Whoever sends may be at it for long, for others too.
        drop(record);
        match answer {
            Ok(Some(answer)) => {
                if self.send(answer, room).await.is_err() {
                    self.end();
                }
            }
            Ok(None) => {}
            Err(_) => {
                tracing::debug!(client = %self.client, "a record that is no call");
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

    /// Takes no more requests.
    fn end(&self) {
        self.over.set(true);
        self.ended.notify();
    }
}
