//! The caller's side: one connection per address, shared by all calls over it.

mod doubts;
mod link;
mod links;
mod reading;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures_util::future::{select, select_all};
use types::limits::CALL_TIMEOUT_US;
use types::messages::Refused;
use types::messages::session::Meant;
use types::wire::{self, Codec, DecodeError, Flags, Reader, Record, Request, Served};
use types::{Buf, ClusterId, Epoch, RAIL, Refusal};

pub(super) use self::link::Link;
use self::link::{Open, Stage, Ticket, UnderWay};
use self::links::Links;
use super::connect::{LIST, Opened, connect, is_followed};
use super::handshake::HANDSHAKE_US;
use super::incoming::{Incoming, ReceivePort, ReceiveReport};
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
    links: RefCell<Links>,
    /// Of servers with several addresses.
    rails: RefCell<BTreeMap<String, Rc<Rails>>>,
    incoming: Rc<Incoming>,
    /// Where a connection could not be made, and when that was tried last.
    failed: RefCell<BTreeMap<String, u64>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.links.borrow().each().for_each(|link| link.close(CallError::Unreachable));
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
            let known = chosen.get().map(|link| &link.address).filter(|known| known.as_ref() == address);
            let address = known.map_or_else(|| address.into(), Rc::clone);
            let (credit_us, served) = (credit_us.get(), served.map(Box::new));
            let kind = SpanKind::Call { address, request: R::NAME, credit_us, served };
            trace.add(Span { kind, from, until: self.0.world.turn_began() });
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
        let is_open = |rail: &&str| links.to(rail).any(|link| link.open().is_ok());
        let open: Vec<String> = address.split(RAIL).filter(is_open).map(str::to_owned).collect();
        if open.is_empty() { vec![address.to_owned()] } else { open }
    }

    /// Drops the connections to the server at `address`; calls on them fail with [`CallError::Unreachable`].
    pub fn forget(&self, address: &str) {
        self.0.rails.borrow_mut().remove(address);
        for rail in address.split(RAIL) {
            for &meant in Meant::ALL {
                let link = self.0.links.borrow_mut().remove(meant, rail);
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
        if let Some(link) = self.0.links.borrow().get(meant, address) {
            return link.clone();
        }
        let (sender, now) = (self.0.incoming.sender(), self.0.world.now());
        let link = Rc::new(Link::new(meant, address, sender, rail, now));
        self.0.links.borrow_mut().insert(link.clone());
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
        if links.get(link.meant, &link.address).is_some_and(|other| Rc::ptr_eq(other, link)) {
            links.remove(link.meant, &link.address);
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
    // The server has compared the bytes that it sends, and a tag shows what happened to them on the way.
    if !answer.is_sealed() && !covered::is_whole(&reply, &answer.payload) {
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
