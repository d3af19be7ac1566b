//! The caller's side: one connection per address, shared by all calls over it.

mod doubts;
mod reading;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures_util::future::{select, select_all};
use types::limits::CALL_TIMEOUT_US;
use types::messages::Refused;
use types::messages::session::Meant;
use types::wire::{self, Codec, DecodeError, Flags, Reader, Record, Request, Served};
use types::{Buf, ClusterId, Epoch, RAIL, Refusal};

use super::connect::{LIST, Opened, connect, is_followed};
use super::handshake::HANDSHAKE_US;
use super::incoming::{Arriving, Incoming, ReceivePort, ReceiveReport};
use super::latch::Latch;
use super::meter::Meter;
use super::outgoing::Requests;
use super::rails::{Rail, Rails, is_cut};
use super::send_queue::SendQueue;
use super::{CallError, Identity, covered};
use crate::trace::{Span, SpanKind, Trace};
use crate::{Frame, World};

/// Whether something of an answer has come: all of it, or the announcement that it will. Then its server has it.
#[derive(Clone, Default, Debug)]
pub struct Begun(Rc<Cell<bool>>);

impl Begun {
    /// Whether something has come.
    pub fn is_set(&self) -> bool {
        self.0.get()
    }
}

/// The outgoing connections of one world: one per address, each shared by any number of calls. A server may have several
/// addresses, joined by `+`: then it has a connection over each, and calls are spread over those that work.
///
/// Each connection has a task that reads. A call on a quiet connection sends its request itself. Under load, requests
/// are queued and the connection's writer task sends them in batches. A large payload leaves as the server grants it, and the
/// requests of other calls may be there before it. Dropping the last clone closes all connections, when the
/// world runs next.
#[derive(Clone)]
pub struct Peers(Rc<Inner>);

struct Inner {
    world: World,
    identity: Identity,
    /// Zeros until it is known.
    cluster: Cell<ClusterId>,
    /// By address, and by the server that is meant there: a metadata server that others call at its own address is sure to be it.
    links: RefCell<BTreeMap<(String, Meant), Rc<Link>>>,
    /// Of servers with several addresses.
    rails: RefCell<BTreeMap<String, Rc<Rails>>>,
    incoming: Rc<Incoming>,
    /// Where a connection could not be made, and when that was tried last.
    failed: RefCell<BTreeMap<String, u64>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.links.borrow().values().for_each(|link| link.close(CallError::Unreachable));
    }
}

impl Peers {
    /// No connections yet.
    pub fn new(world: World, identity: Identity) -> Peers {
        let port = world.receive_port();
        Peers::at(world, identity, port)
    }

    /// As [`Peers::new`], with this receive window.
    pub(super) fn at(world: World, identity: Identity, port: Arc<ReceivePort>) -> Peers {
        let cluster = Cell::new(identity.cluster);
        let incoming = Rc::new(Incoming::new(world.clone(), port));
        let (links, rails, failed) = Default::default();
        Peers(Rc::new(Inner { world, identity, cluster, links, rails, incoming, failed }))
    }

    /// The window for what comes from other machines, which the threads of a process share, and what came through it.
    pub fn receive_report(&self) -> ReceiveReport {
        self.0.incoming.report()
    }

    /// Calls the server at `address`, or, of several with commas between them, the one that leads, and connects first if
    /// necessary. Gives up after [`CALL_TIMEOUT_US`].
    pub async fn call<R: Request>(
        &self,
        address: &str,
        epoch: Epoch,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        self.call_within(CALL_TIMEOUT_US, address, epoch, request, payload).await
    }

    /// As [`Peers::call`], with a timeout of `us` microseconds. A call that times out while it waits for its answer
    /// breaks the connection, so all other calls on it fail too.
    ///
    /// # Cancel
    /// The answer of a dropped call is ignored. A large request of which a part has not left never begins. A call that is
    /// dropped while it sends breaks the connection.
    pub async fn call_within<R: Request>(
        &self,
        us: u64,
        address: &str,
        epoch: Epoch,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        self.call_seen(us, None, address, epoch, request, payload).await
    }

    /// As [`Peers::call_within`], for a caller that looks meanwhile whether something of the answer has come.
    ///
    /// # Cancel
    /// As [`Peers::call_within`].
    pub async fn call_seen<R: Request>(
        &self,
        us: u64,
        begun: Option<&Begun>,
        address: &str,
        epoch: Epoch,
        request: &R,
        payload: Buf,
    ) -> Result<(R::Reply, Buf), CallError> {
        let chosen = OnceCell::new();
        let bytes = payload.len().max(request.reply_bytes());
        let class = crate::direct::on_the_wire();
        let traced = Trace::current_since(&self.0.world);
        let (is_traced, credit_us) = (traced.is_some(), Cell::new(0));
        let asking = async {
            let link = self.way(Meant::by(R::KIND), address, bytes).await?;
            let link = chosen.get_or_init(|| link);
            link.settled.wait().await;
            let open = link.open()?;
            // A large request has no credit for its answer.
            let is_large = open.requests.is_large(payload.len());
            let expected = if is_large { None } else { Some(request.reply_bytes()) };
            let (ticket, credit) = Ticket::new(link, &open, &self.0.incoming, expected, begun);
            let _under_way = UnderWay::new(link, bytes);
            let record = wire::to_bytes(request);
            let kind = if is_traced { Flags::REQUEST.with(Flags::TRACED) } else { Flags::REQUEST };
            let flags = covered::flags(request, kind.with(Flags::of_class(class)));
            let mut frame = Frame::new(R::KIND, ticket.id, open.cluster, epoch, flags, record, payload);
            frame.header.bulk = credit;
            if let Some(frame) = open.requests.admit(frame) {
                open.send_queue.send(frame).await;
            }
            let answer = ticket.answer().await;
            credit_us.set(ticket.credit_us());
            answer
        };
        let answer = self.0.world.timeout(us, asking).await;
        let (answer, served) = match answer {
            Some(Ok(frame)) => match parse::<R>(frame) {
                Ok((reply, payload, served)) => (Some(Ok((reply, payload))), served),
                Err(error) => (Some(Err(error)), None),
            },
            Some(Err(error)) => (Some(Err(error)), None),
            None => (None, None),
        };
        if let Some((trace, from)) = traced {
            let (address, credit_us) = (address.into(), credit_us.get());
            let served = served.map(Box::new);
            let kind = SpanKind::Call { address, request: R::NAME, credit_us, served };
            trace.add(Span { kind, from, until: self.0.world.now() });
        }
        match answer {
            // The next call goes to the one that leads then.
            Some(Err(CallError::Refused(Refusal::NotLeader))) if address.contains(LIST) => {
                if let Some(link) = chosen.get() {
                    self.0.remove(link, CallError::Unreachable);
                }
                Err(CallError::Unreachable)
            }
            Some(answer) => answer,
            None => {
                // If the connection is still being made, other calls may wait for it: leave it.
                if let Some(link) = chosen.get().filter(|link| link.settled.is_set()) {
                    tracing::debug!(address = &*link.address, kind = R::NAME, "no answer in time");
                    self.0.remove(link, CallError::Unreachable);
                }
                Err(CallError::Unreachable)
            }
        }
    }

    /// The addresses of a server over which there is a connection; all that there are, if there is none.
    pub fn connected(&self, address: &str) -> Vec<String> {
        let links = self.0.links.borrow();
        let is_open = |rail: &&str| links_to(&links, rail).any(|link| link.open().is_ok());
        let open: Vec<String> = address.split(RAIL).filter(is_open).map(str::to_owned).collect();
        if open.is_empty() { vec![address.to_owned()] } else { open }
    }

    /// Drops the connections to the server at `address`; calls on them fail with [`CallError::Unreachable`].
    pub fn forget(&self, address: &str) {
        self.0.rails.borrow_mut().remove(address);
        for rail in address.split(RAIL) {
            for &meant in Meant::ALL {
                let link = self.0.links.borrow_mut().remove(&(rail.to_owned(), meant));
                if let Some(link) = link {
                    link.close(CallError::Unreachable);
                }
            }
        }
    }

    /// The cluster of the identity. If that was zeros: the cluster of the first server reached (zeros until then).
    pub fn cluster(&self) -> ClusterId {
        self.0.cluster.get()
    }

    /// The connection for a call with so many bytes, which may still have to be made. Of a server with several addresses it is one
    /// that is made, and only if there is none, the call waits for the first.
    async fn way(&self, meant: Meant, address: &str, bytes: usize) -> Result<Rc<Link>, CallError> {
        if !address.contains(RAIL) || address.contains(LIST) {
            return Ok(self.link(meant, address, None));
        }
        let (rails, now) = (self.0.rails_of(address), self.0.world.now());
        let link = |rail: Rail| self.link(meant, rail.address(), Some(rail.clone()));
        // Those that are not connected are, meanwhile, by tasks of their own.
        let links: Vec<Rc<Link>> = rails.each().filter(|rail| rail.is_usable(now)).map(link).collect();
        if let Some(link) = rails.choose(&are_open(&links), now, bytes > self.0.world.bulk_min()) {
            return Ok(link.clone());
        }
        // What has failed may work again now.
        let links: Vec<Rc<Link>> = rails.each().map(link).collect();
        loop {
            if let Some(link) = are_open(&links).first() {
                return Ok(link.clone());
            }
            let opening = links.iter().filter(|link| !link.settled.is_set());
            let opening: Vec<_> = opening.map(|link| Box::pin(link.settled.wait())).collect();
            if opening.is_empty() {
                return Err(links.iter().find_map(|link| link.refused()).unwrap_or(CallError::Unreachable));
            }
            select_all(opening).await;
        }
    }

    fn link(&self, meant: Meant, address: &str, rail: Option<Rail>) -> Rc<Link> {
        let key = (address.to_owned(), meant);
        if let Some(link) = self.0.links.borrow().get(&key) {
            return link.clone();
        }
        let (sender, now) = (self.0.incoming.sender(), self.0.world.now());
        let link = Rc::new(Link::new(meant, address, sender, rail, now));
        self.0.links.borrow_mut().insert(key, link.clone());
        // In its own task, so that a caller that gives up does not end the connection attempt for the others.
        self.0.world.spawn("connect", open(Rc::downgrade(&self.0), address.to_owned(), link.clone()));
        link
    }
}

impl Inner {
    fn rails_of(&self, address: &str) -> Rc<Rails> {
        if let Some(rails) = self.rails.borrow().get(address) {
            return rails.clone();
        }
        self.rails
            .borrow_mut()
            .entry(address.to_owned())
            .or_insert_with(|| Rc::new(Rails::new(address)))
            .clone()
    }

    /// Closes `link` and removes it, unless another one has already replaced it.
    fn remove(&self, link: &Rc<Link>, error: CallError) {
        let mut links = self.links.borrow_mut();
        let key = (link.address().to_owned(), link.meant);
        if links.get(&key).is_some_and(|other| Rc::ptr_eq(other, link)) {
            links.remove(&key);
            if let Some(rail) = &link.rail {
                rail.failed(self.world.now());
            }
        }
        drop(links);
        link.close(error);
    }

    /// Learns the cluster from the first server reached.
    fn learn(&self, theirs: ClusterId) -> Result<(), CallError> {
        if self.cluster.get() == ClusterId::default() {
            self.cluster.set(theirs);
        }
        if self.cluster.get() == theirs { Ok(()) } else { Err(CallError::WrongCluster { theirs }) }
    }
}

/// A connection, from the first request for it to its end.
pub(super) struct Link {
    address: Rc<str>,
    /// When somebody wanted it first.
    since_us: u64,
    /// The server that is meant there.
    meant: Meant,
    /// Which of its server's addresses that is, if it has several.
    rail: Option<Rail>,
    stage: RefCell<Stage>,
    /// Set once the stage is no longer `Opening`.
    settled: Latch,
    requests: Cell<u64>,
    pending: RefCell<BTreeMap<u64, Pending>>,
    /// Answers need no credit: no switch is on the way, or there is no window.
    is_free: Cell<bool>,
    /// Its server, to the receive window.
    sender: pace::Sender,
    /// When the server was heard last, or a call began while no other one waited.
    heard_us: Cell<u64>,
    /// Bytes of calls that are not answered: of the request or of the answer, whichever has more.
    under_way: Cell<usize>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Opening,
    Open(Rc<Open>),
    Closed(CallError),
}

/// What an open connection has for its calls.
struct Open {
    send_queue: Rc<SendQueue>,
    requests: Requests,
    meter: Meter,
    cluster: ClusterId,
}

/// A call that waits for its answer.
#[derive(Default)]
struct Pending {
    waker: Option<Waker>,
    answer: Option<Result<Frame, CallError>>,
    /// Its credit, and pieces that have come.
    arriving: Option<Rc<Arriving>>,
    /// Set when something comes.
    begun: Option<Begun>,
}

impl Pending {
    fn put(&mut self, answer: Result<Frame, CallError>) {
        self.answer = Some(answer);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Link {
    fn new(meant: Meant, address: &str, sender: pace::Sender, rail: Option<Rail>, since_us: u64) -> Link {
        Link {
            address: address.into(),
            since_us,
            meant,
            rail,
            stage: RefCell::default(),
            settled: Latch::default(),
            requests: Cell::new(0),
            pending: RefCell::default(),
            is_free: Cell::new(false),
            sender,
            heard_us: Cell::new(0),
            under_way: Cell::new(0),
        }
    }

    /// The address of its server.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The server that is meant there.
    pub(super) fn meant(&self) -> Meant {
        self.meant
    }

    /// Bytes of calls that are not answered.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.get()
    }

    /// Whether calls wait, and nothing has come for so long.
    pub(super) fn is_silent(&self, now_us: u64, silence_us: u64) -> bool {
        now_us >= self.heard_us.get() + silence_us && !self.pending.borrow().is_empty()
    }

    /// Why it is closed, if that is not that nobody is there.
    fn refused(&self) -> Option<CallError> {
        match &*self.stage.borrow() {
            Stage::Closed(error) if *error != CallError::Unreachable => Some(*error),
            _ => None,
        }
    }

    fn open(&self) -> Result<Rc<Open>, CallError> {
        match &*self.stage.borrow() {
            Stage::Opening => Err(CallError::Unreachable),
            Stage::Open(open) => Ok(open.clone()),
            Stage::Closed(error) => Err(*error),
        }
    }

    /// Closes it for all calls. The first reason is kept.
    fn close(&self, error: CallError) {
        let mut stage = self.stage.borrow_mut();
        if matches!(*stage, Stage::Closed(_)) {
            return;
        }
        let old = std::mem::replace(&mut *stage, Stage::Closed(error));
        drop(stage);
        if let Stage::Open(open) = old {
            open.send_queue.close();
        }
        self.settled.set();
        self.pending.borrow_mut().values_mut().for_each(|pending| pending.put(Err(error)));
    }
}

/// Counts the bytes of a call at its connection until it is dropped.
struct UnderWay<'a>(&'a Link, usize);

impl<'a> UnderWay<'a> {
    fn new(link: &'a Link, bytes: usize) -> UnderWay<'a> {
        link.under_way.set(link.under_way.get() + bytes);
        UnderWay(link, bytes)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - self.1);
    }
}

/// A waiting call's entry in `pending`, and what waits of a large request; removed when dropped.
struct Ticket<'a> {
    link: &'a Link,
    open: &'a Open,
    id: u64,
    is_large: bool,
}

impl<'a> Ticket<'a> {
    /// Also returns how many bytes of the answer, which has up to `expected`, may be sent without an announcement: none if a
    /// large request expects it.
    fn new(
        link: &'a Link,
        open: &'a Open,
        incoming: &Rc<Incoming>,
        expected: Option<usize>,
        begun: Option<&Begun>,
    ) -> (Ticket<'a>, u32) {
        let id = link.requests.get() + 1;
        link.requests.set(id);
        let mut pending = Pending { begun: begun.cloned(), ..Pending::default() };
        let is_large = expected.is_none();
        let credit = if link.is_free.get() && !is_large {
            u32::MAX
        } else {
            let (arriving, credit) = Arriving::new(incoming, link.sender, expected.unwrap_or(0));
            pending.arriving = Some(Rc::new(arriving));
            u32::try_from(credit).unwrap_or(u32::MAX)
        };
        if link.pending.borrow().is_empty() {
            link.heard_us.set(incoming.now());
        }
        link.pending.borrow_mut().insert(id, pending);
        (Ticket { link, open, id, is_large }, credit)
    }

    /// How long the answer waited for credit, in microseconds.
    fn credit_us(&self) -> u64 {
        let pending = self.link.pending.borrow();
        pending
            .get(&self.id)
            .and_then(|pending| pending.arriving.as_ref())
            .map_or(0, |arriving| arriving.credit_us())
    }

    async fn answer(&self) -> Result<Frame, CallError> {
        poll_fn(|cx| {
            let mut pending = self.link.pending.borrow_mut();
            let Some(place) = pending.get_mut(&self.id) else {
                return Poll::Ready(Err(CallError::Unreachable));
            };
            if let Some(answer) = place.answer.take() {
                return Poll::Ready(answer);
            }
            place.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // Its credit goes back outside of the borrow.
        let gone = self.link.pending.borrow_mut().remove(&self.id);
        drop(gone);
        if self.is_large {
            self.open.requests.give_up(self.id, &self.open.send_queue);
        }
    }
}

/// The record of an answer, its payload, and what the server tells about its time.
type Parsed<T> = (T, Buf, Option<Served>);

fn parse<R: Request>(answer: Frame) -> Result<Parsed<R::Reply>, CallError> {
    let flags = answer.header.flags;
    if flags.is_refusal() {
        let refused = wire::from_bytes::<Refused>(&answer.record).map_err(|_| CallError::BadReply)?;
        return Err(CallError::Refused(refused.reason));
    }
    if answer.header.kind != R::Reply::KIND {
        return Err(CallError::BadReply);
    }
    let (served, record) = untimed(&answer.record, flags).map_err(|_| CallError::BadReply)?;
    let reply = wire::from_bytes(record).map_err(|_| CallError::BadReply)?;
    if !covered::matches_header(&reply, flags.is_covered()) {
        return Err(CallError::BadReply);
    }
    if !covered::is_whole(&reply, &answer.payload) {
        tracing::warn!(
            kind = R::Reply::NAME,
            "the payload of an answer does not match its checksums: the answer is ignored"
        );
        return Err(CallError::Unreachable);
    }
    Ok((reply, answer.payload, served))
}

/// What is in front of the record of an answer that took long, and the record.
fn untimed(bytes: &[u8], flags: Flags) -> Result<(Option<Served>, &[u8]), DecodeError> {
    if !flags.is_timed() {
        return Ok((None, bytes));
    }
    let mut reader = Reader::new(bytes);
    let served = Served::decode(&mut reader)?;
    let rest = reader.remaining();
    Ok((Some(served), reader.bytes(rest)?))
}

/// The connections to an address.
fn links_to<'a>(
    links: &'a BTreeMap<(String, Meant), Rc<Link>>,
    address: &str,
) -> impl Iterator<Item = &'a Rc<Link>> {
    Meant::ALL.iter().filter_map(move |meant| links.get(&(address.to_owned(), *meant)))
}

fn are_open(links: &[Rc<Link>]) -> Vec<Rc<Link>> {
    links.iter().filter(|link| link.open().is_ok()).cloned().collect()
}

/// Connects, then delivers the connection's answers until it ends.
async fn open(peers: Weak<Inner>, address: String, link: Rc<Link>) {
    let Some((world, identity)) = peers.upgrade().map(|peers| {
        let identity = Identity { cluster: peers.cluster.get(), ..peers.identity.clone() };
        (peers.world.clone(), identity)
    }) else {
        return;
    };
    let opening = world.timeout(HANDSHAKE_US, connect(&world, &identity, link.meant, &address));
    let opened = opening.await.unwrap_or(Err(CallError::Unreachable));
    let opened = opened.and_then(|opened| {
        let peers = peers.upgrade().ok_or(CallError::Unreachable)?;
        peers.learn(opened.cluster)?;
        if link.rail.as_ref().is_some_and(|rail| !rail.leads_to(&opened.name)) {
            return Err(CallError::Unreachable);
        }
        link.is_free.set(opened.is_local || peers.incoming.is_off());
        let meter = peers.incoming.meter(address.clone(), opened.losses.clone());
        Ok((opened, meter))
    });
    let error = match opened {
        Ok((Opened { sender, receiver, cluster, losses, bulk, server, .. }, meter)) => {
            let send_queue = Rc::new(SendQueue::new(sender));
            let requests = Requests::new(world.clone(), losses, bulk);
            let opened = Rc::new(Open { send_queue: send_queue.clone(), requests, meter, cluster });
            // The connection was dropped while it was being made.
            if link.settled.is_set() {
                return;
            }
            *link.stage.borrow_mut() = Stage::Open(opened.clone());
            link.settled.set();
            if let Some(peers) = peers.upgrade() {
                peers.tried(&address, true);
            }
            if let Some(rail) = &link.rail {
                rail.opened(world.now());
            }
            let writer = send_queue.clone();
            world.spawn("requests out", async move { writer.write(|| {}).await });
            let identity = Identity { cluster, ..identity };
            let reading = reading::read(&world, receiver, &link, &opened);
            if address.contains(LIST) {
                let followed = is_followed(&world, &identity, &link, &server);
                let ends = select(Box::pin(reading), Box::pin(followed));
                send_queue.broken().or(ends).await;
            } else if let Some(rail) = &link.rail {
                let cut = is_cut(&world, &identity, &link, rail);
                let ends = select(Box::pin(reading), Box::pin(cut));
                send_queue.broken().or(ends).await;
            } else {
                send_queue.broken().or(reading).await;
            }
            CallError::Unreachable
        }
        Err(error) => {
            if let Some(peers) = peers.upgrade() {
                peers.tried(&address, false);
            }
            error
        }
    };
    tracing::debug!(address, %error, "connection ended");
    match peers.upgrade() {
        Some(peers) => peers.remove(&link, error),
        None => link.close(error),
    }
}
