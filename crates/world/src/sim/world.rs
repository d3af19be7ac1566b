//! A node's view of the simulation. [`crate::World`] forwards its calls to this.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use types::Buf;
use types::wire::{HEADER_LEN, Seal};

use super::disk::{Disk, SharedDisk};
use super::net::{Arrival, LinkEnd};
use super::state::{State, dead};
use super::tamper;
use crate::Frame;
use crate::rpc::ReceivePort;

/// The wall clock at the start: 2026-01-01.
const WALL_START_NS: i64 = 1_767_225_600_000_000_000;

/// How long work on another thread may take, in microseconds: a commit on a slow disk.
const OFF_THREAD_MAX_US: u64 = 50_000;

/// One life of one node.
#[derive(Clone)]
pub(crate) struct World {
    state: Rc<State>,
    node: u32,
    life: u32,
}

impl World {
    pub(super) fn new(state: Rc<State>, node: u32, life: u32) -> World {
        World { state, node, life }
    }

    fn check(&self) -> io::Result<()> {
        if self.state.is_alive(self.node, self.life) { Ok(()) } else { dead() }
    }

    pub(crate) fn block_on<F: Future>(&self, f: F) -> F::Output {
        self.state.block_on(f)
    }

    pub(crate) fn is_here(&self, host: &str) -> bool {
        self.state.nodes.borrow().find_host(host).is_some_and(|(node, _)| node == self.node)
    }

    pub(crate) fn now(&self) -> u64 {
        let nodes = self.state.nodes.borrow();
        let node = nodes.at(self.node);
        let passed = i128::from(self.state.executor.now());
        let shown = passed + passed * i128::from(node.drift_ppm) / 1_000_000;
        node.offset_us
            + u64::try_from(shown).expect("a drift of less than a million millionths keeps the sign")
    }

    pub(crate) fn wall(&self) -> i64 {
        WALL_START_NS.saturating_add_unsigned(self.now().saturating_mul(1_000))
    }

    pub(crate) async fn sleep(&self, us: u64) {
        let drift = self.state.nodes.borrow().at(self.node).drift_ppm;
        let rate = u128::try_from(1_000_000 + drift).expect("a clock never stands still");
        let exact = u128::from(us) * 1_000_000;
        // At least 1 us, so that a sleep always lets others run. Saturates at the end of time.
        let true_us = u64::try_from(exact.div_ceil(rate)).unwrap_or(u64::MAX).max(1);
        self.state.executor.until(self.state.executor.now().saturating_add(true_us)).await;
    }

    pub(crate) async fn timeout<F: Future>(&self, us: u64, f: F) -> Option<F::Output> {
        let (mut f, mut end) = (pin!(f), pin!(self.sleep(us)));
        poll_fn(|cx| match f.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => end.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    pub(crate) fn random(&self) -> u64 {
        self.state.nodes.borrow().at(self.node).prng.next_u64()
    }

    pub(crate) fn random_bytes(&self, out: &mut [u8]) {
        self.state.nodes.borrow().at(self.node).prng.fill(out);
    }

    pub(crate) fn spawn(&self, name: &'static str, f: impl Future<Output = ()> + 'static) {
        // A dead node starts no tasks.
        if self.check().is_ok() {
            self.state.executor.spawn(self.node, name, Box::pin(f));
        }
    }

    pub(crate) fn part<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        self.state.executor.part(name, work)
    }

    pub(crate) async fn off_thread<T>(&self, f: impl FnOnce() -> T) -> T {
        let us = self.state.nodes.borrow().at(self.node).prng.below(OFF_THREAD_MAX_US);
        self.state.executor.until(self.state.executor.now() + us).await;
        types::cost::uncounted(f)
    }

    pub(crate) fn claim(&self, what: &'static str, of: &[u64], by: u64) {
        self.state.claim(what, of, by);
    }

    pub(crate) async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// The receive window of this life, which all that runs in it shares.
    pub(crate) fn receive_port(&self) -> Arc<ReceivePort> {
        let new = || Arc::new(ReceivePort::new(self.state.options.receive_window, self.bulk_min(), None));
        self.state.nodes.borrow_mut().receive_port(self.node, self.life, new)
    }

    pub(crate) fn bulk_min(&self) -> usize {
        self.state.options.bulk_min
    }

    fn is_own_name(&self, host: &str) -> bool {
        matches!(host, "" | "localhost" | "127.0.0.1" | "0.0.0.0") || self.is_here(host)
    }

    pub(crate) async fn listen(&self, address: &str) -> io::Result<Listener> {
        self.check()?;
        let (host, port) = split_address(address)?;
        if !self.is_own_name(host) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let (port, id) = self.state.net.borrow_mut().listen(self.node, port)?;
        Ok(Listener { world: self.clone(), port, id })
    }

    /// Listens at a name of this node. The name stays after the listener ends, like the file of a socket.
    pub(crate) async fn listen_at_path(&self, path: &str) -> io::Result<Listener> {
        self.check()?;
        let (port, id) = self.state.net.borrow_mut().listen_as(self.node, path)?;
        Ok(Listener { world: self.clone(), port, id })
    }

    pub(crate) async fn connect_to_path(&self, path: &str) -> io::Result<Conn> {
        let port = self.state.net.borrow().named_port(self.node, path).ok_or(io::ErrorKind::NotFound)?;
        self.connect(&format!("localhost:{port}")).await
    }

    pub(crate) async fn connect(&self, address: &str) -> io::Result<Conn> {
        self.check()?;
        let (host, port) = split_address(address)?;
        let found = self.state.nodes.borrow().find_host(host);
        let target = if self.is_own_name(host) { Some((self.node, self.node)) } else { found };
        let Some((target, called)) = target else { return Err(io::ErrorKind::HostUnreachable.into()) };
        self.travel(target).await;
        let powered_off = self.state.nodes.borrow().at(target).powered_off;
        // A connect needs both directions, because its answer must arrive.
        if powered_off || self.state.net.borrow().is_cut(self.node, called) {
            let us = self.state.options.connect_timeout_us;
            self.state.executor.until(self.state.executor.now() + us).await;
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.check()?;
        let connected = self.state.net.borrow_mut().connect(&self.state, self.node, (target, port), called);
        // Made before the way back, so that a caller that gives up closes it.
        let conn = connected.map(|end| Conn::new(self.state.clone(), end, address.to_owned()));
        self.travel(target).await;
        self.check()?;
        conn
    }

    async fn travel(&self, target: u32) {
        let delay = self.state.net.borrow().latency(&self.state, self.node, target);
        self.state.executor.until(self.state.executor.now() + delay).await;
    }

    pub(crate) async fn open_disk(&self, path: &str) -> io::Result<Disk> {
        self.check()?;
        let (file, holder) = self.state.disks.borrow().open(self.node, path)?;
        Ok(Disk::new(self.state.clone(), self.node, self.life, file, holder))
    }

    pub(crate) fn disk_of(&self, shared: &SharedDisk) -> io::Result<Disk> {
        self.check()?;
        let (file, holder) = self.state.disks.borrow().open_shared(self.node, shared)?;
        Ok(Disk::new(self.state.clone(), self.node, self.life, file, holder))
    }

    pub(crate) async fn create_disk(&self, path: &str, len: u64) -> io::Result<Disk> {
        self.check()?;
        self.state.disks.borrow_mut().create(self.node, path, len)?;
        self.open_disk(path).await
    }
}

fn split_address(address: &str) -> io::Result<(&str, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an address is host:port"))
}

pub(crate) struct Listener {
    world: World,
    port: u16,
    id: u64,
}

impl Listener {
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.world.state.nodes.borrow().at(self.world.node).name, self.port)
    }

    pub(crate) async fn accept(&self) -> io::Result<Conn> {
        let state = &self.world.state;
        let accept =
            |cx: &mut Context<'_>| state.net.borrow_mut().accept(cx, self.world.node, self.port, self.id);
        let (end, peer) = poll_fn(accept).await?;
        Ok(Conn::new(state.clone(), end, peer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let state = &self.world.state;
        state.net.borrow_mut().unlisten(state, self.world.node, self.port, self.id);
    }
}

pub(crate) struct Conn {
    peer: String,
    sender: Sender,
    receiver: Receiver,
}

impl Conn {
    fn new(state: Rc<State>, end: LinkEnd, peer: String) -> Conn {
        let half = || Half { state: state.clone(), end };
        Conn { peer, sender: Sender(half()), receiver: Receiver { half: half(), seal: None } }
    }

    pub(crate) fn peer(&self) -> String {
        self.peer.clone()
    }

    /// Never: every connection of a simulation has a network.
    pub(crate) fn is_local(&self) -> bool {
        false
    }

    pub(crate) fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    pub(crate) fn split_stream(self) -> (Sender, StreamReceiver) {
        (self.sender, StreamReceiver { half: self.receiver.half, staged: Vec::new() })
    }
}

struct Half {
    state: Rc<State>,
    end: LinkEnd,
}

impl Drop for Half {
    fn drop(&mut self) {
        self.state.net.borrow_mut().close(&self.state, self.end, 1);
    }
}

pub(crate) struct Sender(Half);

impl Sender {
    pub(crate) async fn send(&mut self, frame: Frame) -> io::Result<()> {
        let Half { state, end } = &self.0;
        let Some((frame, forgery)) = tamper::pass(state, *end, frame)? else { return Ok(()) };
        self.until_free().await?;
        state.net.borrow_mut().send_frame(state, *end, frame, forgery)
    }

    /// From now on every frame has a tag.
    pub(crate) fn seal(&mut self, seal: Seal) {
        let Half { state, end } = &self.0;
        state.net.borrow_mut().seal(*end, seal);
    }

    pub(crate) async fn send_all(&mut self, frames: Vec<Frame>) -> io::Result<()> {
        for frame in frames {
            self.send(frame).await?;
        }
        Ok(())
    }

    /// Sends any bytes, even if they are not a frame.
    pub(crate) async fn send_bytes(
        &mut self,
        head: &[u8],
        body: impl IntoIterator<Item = Buf>,
    ) -> io::Result<()> {
        let mut bytes = head.to_vec();
        body.into_iter().for_each(|part| bytes.extend_from_slice(&part));
        self.put(Arrival::Bytes(bytes)).await
    }

    pub(crate) async fn send_messages(&mut self, messages: Vec<(Vec<u8>, Buf)>) -> io::Result<()> {
        for (head, body) in messages {
            self.send_bytes(&head, [body]).await?;
        }
        Ok(())
    }

    async fn put(&mut self, what: Arrival) -> io::Result<()> {
        self.until_free().await?;
        let Half { state, end } = &self.0;
        state.net.borrow_mut().send(state, *end, what);
        Ok(())
    }

    async fn until_free(&self) -> io::Result<()> {
        let Half { state, end } = &self.0;
        poll_fn(|cx| state.net.borrow_mut().poll_send(cx, *end, state.options.window_bytes)).await
    }
}

pub(crate) struct Receiver {
    half: Half,
    /// What authenticates the frames, once the handshake is done.
    seal: Option<Seal>,
}

impl Receiver {
    /// From now on only frames with the right tag are received.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    pub(crate) async fn recv_within(&mut self, most: usize) -> io::Result<Option<Frame>> {
        let Half { state, end } = &self.half;
        let seal = self.seal.as_mut();
        match poll_fn(|cx| state.net.borrow_mut().poll_receive(cx, *end)).await? {
            Some(Arrival::Frame { head, record, payload }) => {
                Frame::from_parts((Frame::decode_header(&head, most)?, &head), record, payload, seal)
                    .map(Some)
            }
            Some(Arrival::Bytes(bytes)) => frame_of(&bytes, most, seal).map(Some),
            _ => Ok(None),
        }
    }
}

/// The receiving direction of a stream of bytes.
pub(crate) struct StreamReceiver {
    half: Half,
    /// Bytes that have arrived and are not yet taken.
    staged: Vec<u8>,
}

impl StreamReceiver {
    pub(crate) async fn recv_head(&mut self, len: usize) -> io::Result<Option<Vec<u8>>> {
        while self.staged.len() < len {
            let Half { state, end } = &self.half;
            match poll_fn(|cx| state.net.borrow_mut().poll_receive(cx, *end)).await? {
                Some(Arrival::Bytes(bytes)) => self.staged.extend(bytes),
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None if self.staged.is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(Some(self.staged.drain(..len).collect()))
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        let Half { state, end } = &self.half;
        state.net.borrow_mut().is_hung_up(*end)
    }

    pub(crate) fn hang_up(&self) {
        let Half { state, end } = &self.half;
        state.net.borrow_mut().hang_up(state, *end);
    }

    pub(crate) async fn recv_body(&mut self, len: usize) -> io::Result<Buf> {
        let bytes = self.recv_head(len).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Buf::copy_of(&bytes))
    }
}

/// The frame at the start of `bytes`, read as from a stream.
fn frame_of(bytes: &[u8], most: usize, seal: Option<&mut Seal>) -> io::Result<Frame> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(io::ErrorKind::UnexpectedEof)?;
    let header = Frame::decode_header(head, most)?;
    let (record, rest) =
        rest.split_at_checked(header.record_len as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
    let payload = rest.get(..header.payload_len as usize).ok_or(io::ErrorKind::UnexpectedEof)?;
    Frame::from_parts((header, head), record.to_vec(), Buf::copy_of(payload), seal)
}
