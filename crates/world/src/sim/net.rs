//! The simulated network: listeners, and connections that carry frames in order until they break.
//!
//! Headers and records are encoded and decoded, so that the codecs run; a payload shares its sender's memory. Each
//! end of a connection has a queue of what is in flight to it, and a queue of what has arrived and waits for `recv`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::task::{Context, Poll, Waker};

use types::Buf;
use types::wire::{FrameHeader, HEADER_LEN, Seal};

use super::executor::Event;
use super::faults::Fault;
use super::prng::Prng;
use super::state::{State, Traced};
use super::tamper::Forgery;
use crate::Frame;

/// A connection. Slots are reused, generations are not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkId {
    slot: u32,
    generation: u32,
}

/// One end of a connection: 0 connected, 1 accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkEnd {
    pub(super) link: LinkId,
    pub(super) end: usize,
}

impl LinkEnd {
    pub(super) fn other(self) -> LinkEnd {
        LinkEnd { link: self.link, end: 1 - self.end }
    }
}

/// What arrives at an end of a connection.
pub(super) enum Arrival {
    /// A frame as bytes.
    Frame { head: [u8; HEADER_LEN], record: Vec<u8>, payload: Buf },
    /// Bytes that are not a whole frame.
    Bytes(Vec<u8>),
    /// The other end closed.
    Closed,
    /// The connection broke.
    Reset,
}

impl Arrival {
    fn size(&self) -> usize {
        match self {
            Arrival::Frame { record, payload, .. } => HEADER_LEN + record.len() + payload.len(),
            Arrival::Bytes(bytes) => bytes.len(),
            Arrival::Closed | Arrival::Reset => 0,
        }
    }
}

struct End {
    node: u32,
    /// In flight to this end, each with its time of arrival.
    flight: VecDeque<(u64, Arrival)>,
    /// Arrived and not yet received.
    inbox: VecDeque<Arrival>,
    /// Bytes in `flight` and `inbox`, and bytes lost when the connection broke.
    waiting: usize,
    /// When the last item of `flight` arrives; the next one must not arrive earlier.
    last: u64,
    /// Number of handles (sender and receiver); 0 if this end is closed.
    halves: u8,
    /// Nothing arrives at this end any more, except the `Reset`.
    deaf: bool,
    /// This end has noticed that the connection is broken.
    reset: bool,
    /// What authenticates the frames that this end sends.
    seal: Option<Seal>,
    receiver: Option<Waker>,
    sender: Option<Waker>,
}

impl End {
    fn new(node: u32) -> End {
        End {
            node,
            flight: VecDeque::new(),
            inbox: VecDeque::new(),
            waiting: 0,
            last: 0,
            halves: 2,
            deaf: false,
            reset: false,
            seal: None,
            receiver: None,
            sender: None,
        }
    }

    fn wake(&mut self) {
        [self.receiver.take(), self.sender.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

struct Link {
    ends: [End; 2],
    /// By what a cut names the ends: their nodes, or the rail that was called.
    cut_as: [u32; 2],
    /// The connection is broken, although the ends may not have noticed yet.
    severed: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    link: Option<Link>,
}

struct Queue {
    id: u64,
    /// Connections not yet accepted, each with its peer's address.
    waiting: VecDeque<(LinkEnd, String)>,
    waker: Option<Waker>,
}

pub(super) struct Net {
    prng: Prng,
    listeners: BTreeMap<(u32, u16), Queue>,
    /// Names of listeners in the file systems of their nodes.
    names: BTreeMap<(u32, String), u16>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Links that are cut: from, to.
    cuts: BTreeSet<(u32, u32)>,
    /// Most extra time of frames between two nodes; the key has the lower node first.
    slow: BTreeMap<(u32, u32), u64>,
    count: u64,
}

impl Net {
    pub(super) fn new(seed: u64) -> Net {
        Net {
            prng: Prng::new(seed, "net"),
            listeners: BTreeMap::new(),
            names: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            cuts: BTreeSet::new(),
            slow: BTreeMap::new(),
            count: 0,
        }
    }

    /// Takes a port of `node` (0: any free one). Returns the port and the listener's number.
    pub(super) fn listen(&mut self, node: u32, port: u16) -> io::Result<(u16, u64)> {
        let free = |port: &u16| !self.listeners.contains_key(&(node, *port));
        let chosen = if port == 0 { (20_000..=u16::MAX).find(free) } else { Some(port).filter(free) };
        let port = chosen.ok_or(io::ErrorKind::AddrInUse)?;
        self.count += 1;
        let queue = Queue { id: self.count, waiting: VecDeque::new(), waker: None };
        self.listeners.insert((node, port), queue);
        Ok((port, self.count))
    }

    /// Takes any port of `node` and gives it a name, unless a listener already uses this name.
    pub(super) fn listen_as(&mut self, node: u32, name: &str) -> io::Result<(u16, u64)> {
        if self.named_port(node, name).is_some_and(|port| self.listeners.contains_key(&(node, port))) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (port, id) = self.listen(node, 0)?;
        self.names.insert((node, name.to_owned()), port);
        Ok((port, id))
    }

    /// The port of `node` with this name.
    pub(super) fn named_port(&self, node: u32, name: &str) -> Option<u16> {
        self.names.get(&(node, name.to_owned())).copied()
    }

    /// Frees the port, if it still belongs to this listener.
    pub(super) fn unlisten(&mut self, state: &State, node: u32, port: u16, id: u64) {
        if self.listeners.get(&(node, port)).is_some_and(|queue| queue.id == id)
            && let Some(queue) = self.listeners.remove(&(node, port))
        {
            queue.waiting.into_iter().for_each(|(end, _)| self.close(state, end, 2));
        }
    }

    /// The next connection of a listener, with its peer.
    pub(super) fn accept(
        &mut self,
        cx: &mut Context<'_>,
        node: u32,
        port: u16,
        id: u64,
    ) -> Poll<io::Result<(LinkEnd, String)>> {
        let Some(queue) = self.listeners.get_mut(&(node, port)).filter(|queue| queue.id == id) else {
            return Poll::Ready(super::state::dead());
        };
        if let Some(next) = queue.waiting.pop_front() {
            return Poll::Ready(Ok(next));
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn is_cut(&self, a: u32, b: u32) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    /// Frames between two nodes take up to `us` microseconds longer.
    pub(super) fn slow_link(&mut self, a: u32, b: u32, us: u64) {
        self.slow.insert((a.min(b), a.max(b)), us);
    }

    /// Connects `node` to a listener. Returns the caller's end.
    pub(super) fn connect(
        &mut self,
        state: &State,
        node: u32,
        to: (u32, u16),
        called: u32,
    ) -> io::Result<LinkEnd> {
        let nodes = state.nodes.borrow();
        let queue = self.listeners.get_mut(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        self.count += 1;
        let peer = format!("{}:{}", nodes.at(node).name, 32_768 + self.count % 28_000);
        let cut_as = [node, called];
        let link = Link { ends: [End::new(node), End::new(to.0)], cut_as, severed: false };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 connections at a time")
        });
        let entry = &mut self.slots[slot as usize];
        entry.link = Some(link);
        let link = LinkId { slot, generation: entry.generation };
        queue.waiting.push_back((LinkEnd { link, end: 1 }, peer));
        queue.waker.take().into_iter().for_each(Waker::wake);
        Ok(LinkEnd { link, end: 0 })
    }

    /// Travel time of the next frame between two nodes.
    pub(super) fn latency(&self, state: &State, a: u32, b: u32) -> u64 {
        let options = &state.options;
        let stall = if self.prng.hits(options.stall_per_million) {
            state.faults.add(Fault::Stall, 1);
            self.prng.within(&options.stall_us)
        } else {
            0
        };
        let slow = self.slow.get(&(a.min(b), a.max(b))).copied().unwrap_or(0);
        let slow = if slow > 0 { self.prng.below(slow) } else { 0 };
        self.prng.within(&options.latency_us) + stall + slow
    }

    /// Travel time of the next frame to an end of a connection.
    fn latency_to(&mut self, state: &State, to: LinkEnd) -> u64 {
        let nodes = find(&mut self.slots, to).map(|link| (link.ends[0].node, link.ends[1].node));
        nodes.map_or(0, |(a, b)| self.latency(state, a, b))
    }

    /// Waits until `from` may send, because the window may be full; an error if it cannot send any more.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        from: LinkEnd,
        window: usize,
    ) -> Poll<io::Result<()>> {
        let Some(link) = find(&mut self.slots, from) else { return Poll::Ready(broken()) };
        if link.ends[from.end].reset || link.ends[from.end].halves == 0 {
            return Poll::Ready(broken());
        }
        if link.ends[from.other().end].waiting >= window {
            link.ends[from.end].sender = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends something from the end `from`.
    pub(super) fn send(&mut self, state: &State, from: LinkEnd, what: Arrival) {
        if self.prng.hits(state.options.break_per_million) {
            self.sever(state, from.link);
        }
        let delay = self.latency_to(state, from.other());
        self.send_after(state, from.other(), delay, what);
    }

    /// From now on every frame that the end `from` sends has a tag.
    pub(super) fn seal(&mut self, from: LinkEnd, seal: Seal) {
        if let Some(link) = find(&mut self.slots, from) {
            link.ends[from.end].seal = Some(seal);
        }
    }

    /// Sends a frame from the end `from`. It gets its tag here, so that tags are in the order in which frames leave.
    ///
    /// # Errors
    /// `InvalidInput` if the frame is larger than a receiver accepts.
    pub(super) fn send_frame(
        &mut self,
        state: &State,
        from: LinkEnd,
        mut frame: Frame,
        forgery: Option<Forgery>,
    ) -> io::Result<()> {
        let seal = find(&mut self.slots, from).and_then(|link| link.ends[from.end].seal.as_mut());
        let is_sealed = seal.is_some();
        let head = frame.encode_header(seal)?;
        let Frame { header, record, payload } = frame;
        let what = |head, record: &Vec<u8>, payload: &Buf| Arrival::Frame {
            head,
            record: record.clone(),
            payload: payload.clone(),
        };
        match forgery {
            None => self.send(state, from, Arrival::Frame { head, record, payload }),
            Some(Forgery::LeaveOut) => {}
            Some(Forgery::Repeat) => {
                self.send(state, from, what(head, &record, &payload));
                self.send(state, from, Arrival::Frame { head, record, payload });
            }
            Some(Forgery::Reflect) => {
                self.send(state, from.other(), Arrival::Frame { head, record, payload });
            }
            Some(Forgery::Flip) => {
                let (head, record, payload) = flipped(header, record, payload, is_sealed);
                self.send(state, from, Arrival::Frame { head, record, payload });
            }
        }
        Ok(())
    }

    /// Sends a frame from the end `from`, if it is still open.
    pub(super) fn send_if_open(&mut self, state: &State, from: LinkEnd, frame: Frame) {
        let end = find(&mut self.slots, from).map(|link| &link.ends[from.end]);
        if end.is_some_and(|end| end.halves > 0 && !end.reset) {
            // It was of a size that can be sent.
            let _ = self.send_frame(state, from, frame, None);
        }
    }

    /// The nodes of an end and of the other one.
    pub(super) fn nodes_of(&mut self, end: LinkEnd) -> Option<[u32; 2]> {
        let link = find(&mut self.slots, end)?;
        Some([end, end.other()].map(|end| link.ends[end.end].node))
    }

    fn send_after(&mut self, state: &State, to: LinkEnd, delay: u64, what: Arrival) {
        let Some(link) = find(&mut self.slots, to) else { return };
        let end = &mut link.ends[to.end];
        end.waiting += what.size();
        // Only a `Reset` still arrives at a deaf end. Anything else is lost, but still counts against the window.
        if end.deaf && !matches!(what, Arrival::Reset) {
            state.faults.add(Fault::LostFrame, u64::from(matches!(what, Arrival::Frame { .. })));
            return;
        }
        let arrives = state.executor.now() + delay;
        // A `Reset` keeps its time of arrival, even if something is sent after it was scheduled.
        let reset = end.flight.pop_back_if(|(_, what)| matches!(what, Arrival::Reset));
        if let Some((when, news)) = reset {
            let last = end.flight.back().map_or(0, |(when, _)| *when).max(arrives);
            if last < when {
                end.flight.push_back((last, what));
                state.executor.schedule(last, Event::Arrival(to));
            }
            end.flight.push_back((when, news));
            return;
        }
        end.last = end.last.max(arrives);
        end.flight.push_back((end.last, what));
        state.executor.schedule(end.last, Event::Arrival(to));
    }

    /// The next item in flight arrives at `to`.
    pub(super) fn arrive(&mut self, state: &State, to: LinkEnd) {
        let now = state.executor.now();
        let Some(link) = find(&mut self.slots, to) else { return };
        let end = &mut link.ends[to.end];
        // The item may have been lost since it was scheduled.
        let Some((_, what)) = end.flight.pop_front_if(|(when, _)| *when <= now) else { return };
        match &what {
            Arrival::Frame { head, .. } => {
                let sum = u64::from(types::checksum::crc(head)) | (what.size() as u64) << 32;
                state.trace(end.node, Traced::Frame, sum);
            }
            Arrival::Bytes(bytes) => {
                state.trace(end.node, Traced::Frame, types::checksum::crc(bytes).into());
            }
            Arrival::Closed => {}
            Arrival::Reset => end.reset = true,
        }
        if end.halves == 0 {
            end.waiting -= what.size();
            if !link.severed && matches!(what, Arrival::Frame { .. } | Arrival::Bytes(_)) {
                let delay = self.latency_to(state, to.other());
                self.send_after(state, to.other(), delay, Arrival::Reset);
            }
            return;
        }
        end.inbox.push_back(what);
        end.receiver.take().into_iter().for_each(Waker::wake);
        if end.reset {
            end.wake();
        }
    }

    /// The next arrival. `Closed` and `Reset` stay in the inbox for later calls.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        at: LinkEnd,
    ) -> Poll<io::Result<Option<Arrival>>> {
        let Some(link) = find(&mut self.slots, at) else { return Poll::Ready(broken()) };
        let end = &mut link.ends[at.end];
        if end.halves == 0 {
            return Poll::Ready(broken());
        }
        match end.inbox.front() {
            None => {
                end.receiver = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Some(Arrival::Closed) => return Poll::Ready(Ok(None)),
            Some(Arrival::Reset) => return Poll::Ready(broken()),
            Some(Arrival::Frame { .. } | Arrival::Bytes(_)) => {}
        }
        let what = end.inbox.pop_front();
        end.waiting -= what.as_ref().map_or(0, Arrival::size);
        link.ends[at.other().end].sender.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(what))
    }

    /// Breaks a connection at one end, which knows it at once.
    pub(super) fn hang_up(&mut self, state: &State, at: LinkEnd) {
        let Some(link) = find(&mut self.slots, at) else { return };
        let end = &mut link.ends[at.end];
        end.reset = true;
        end.inbox.push_back(Arrival::Reset);
        end.wake();
        let delay = self.latency_to(state, at.other());
        self.send_after(state, at.other(), delay, Arrival::Reset);
    }

    /// Whether this end has learned that the other end has closed or that the connection is broken.
    pub(super) fn is_hung_up(&mut self, at: LinkEnd) -> bool {
        let end = find(&mut self.slots, at).map(|link| &link.ends[at.end]);
        end.is_none_or(|end| end.reset || matches!(end.inbox.back(), Some(Arrival::Closed | Arrival::Reset)))
    }

    /// Drops `halves` handles of an end. After the last one, the other end is told that this end closed.
    pub(super) fn close(&mut self, state: &State, at: LinkEnd, halves: u8) {
        let Some(link) = find(&mut self.slots, at) else { return };
        let end = &mut link.ends[at.end];
        if end.halves == 0 {
            return;
        }
        end.halves -= halves;
        if end.halves == 0 {
            // As with TCP, closing with unread bytes resets the connection.
            let unread = end.inbox.iter().any(|what| what.size() > 0);
            end.inbox.clear();
            let notice = if unread { Arrival::Reset } else { Arrival::Closed };
            let delay = self.latency_to(state, at.other());
            self.send_after(state, at.other(), delay, notice);
            self.free_if_closed(at.link);
        }
    }

    fn free_if_closed(&mut self, id: LinkId) {
        let slot = &mut self.slots[id.slot as usize];
        if slot.link.as_ref().is_some_and(|link| link.ends.iter().all(|end| end.halves == 0)) {
            slot.link = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    /// Breaks a connection in both directions.
    fn sever(&mut self, state: &State, id: LinkId) {
        self.sever_ways(state, id, [true, true]);
    }

    /// Breaks a connection. An end that becomes `deaf` loses a part of what is in flight to it, and nothing more
    /// arrives there. Each end notices the break at a different time.
    fn sever_ways(&mut self, state: &State, id: LinkId, deaf: [bool; 2]) {
        let Some(link) = find(&mut self.slots, LinkEnd { link: id, end: 0 }) else { return };
        let before = std::mem::replace(&mut link.severed, true);
        if !before {
            state.faults.add(Fault::Break, 1);
        }
        for end in [0, 1].map(|end| LinkEnd { link: id, end }) {
            if deaf[end.end] {
                self.deafen(state, end);
            }
            if before {
                continue;
            }
            let delay = self.prng.within(&state.options.break_us);
            self.send_after(state, end, delay, Arrival::Reset);
        }
    }

    fn deafen(&mut self, state: &State, at: LinkEnd) {
        if find(&mut self.slots, at).is_some_and(|link| !std::mem::replace(&mut link.ends[at.end].deaf, true))
        {
            self.lose_flight(state, at);
        }
    }

    /// Loses the last items in flight, perhaps from the middle of a frame on, but never a `Reset`.
    fn lose_flight(&mut self, state: &State, to: LinkEnd) {
        let Some(link) = find(&mut self.slots, to) else { return };
        let end = &mut link.ends[to.end];
        let news = end.flight.pop_back_if(|(_, what)| matches!(what, Arrival::Reset));
        let kept = self.prng.below(end.flight.len() as u64 + 1) as usize;
        // Lost bytes still count as waiting, because the sender does not know until it notices the break.
        let lost = end.flight.split_off(kept);
        let frames = lost.iter().filter(|(_, what)| matches!(what, Arrival::Frame { .. })).count();
        state.faults.add(Fault::LostFrame, frames as u64);
        if let Some((when, Arrival::Frame { head, .. })) = lost.front()
            && self.prng.coin()
        {
            let beginning = 1 + self.prng.below(HEADER_LEN as u64 - 1) as usize;
            end.flight.push_back((*when, Arrival::Bytes(head[..beginning].to_vec())));
            state.faults.add(Fault::HalfFrame, 1);
        }
        end.last = end.flight.back().map_or(0, |(when, _)| *when);
        end.flight.extend(news);
    }

    /// All connections of a node end with its process. After a power cut the other ends are not told.
    pub(super) fn node_died(&mut self, state: &State, node: u32, power_cut: bool) {
        let gone = self.listeners.extract_if((node, 0)..=(node, u16::MAX), |_, _| true);
        // Wake tasks outside the node that accept here, so that they notice its death.
        gone.filter_map(|(_, queue)| queue.waker).for_each(Waker::wake);
        for slot in 0..self.slots.len() {
            let generation = self.slots[slot].generation;
            let Some(link) = &self.slots[slot].link else { continue };
            let mine = [0, 1].map(|end| link.ends[end].node == node);
            let slot = u32::try_from(slot).expect("connect keeps the number of slots below 2^32");
            let id = LinkId { slot, generation };
            if mine == [false, false] {
                continue;
            }
            if power_cut {
                self.sever(state, id);
            }
            // On a severed link the notice below is lost, as intended.
            for at in [0, 1].map(|end| LinkEnd { link: id, end }).into_iter().filter(|at| mine[at.end]) {
                self.end_died(state, at);
            }
            self.free_if_closed(id);
        }
    }

    fn end_died(&mut self, state: &State, at: LinkEnd) {
        let Some(link) = find(&mut self.slots, at) else { return };
        let reset = !link.severed && self.prng.coin();
        if reset {
            self.lose_flight(state, at.other());
        }
        let Some(link) = find(&mut self.slots, at) else { return };
        let end = &mut link.ends[at.end];
        // As at any close, unread bytes reset the connection.
        let reset = reset || end.inbox.iter().any(|what| what.size() > 0);
        end.halves = 0;
        end.inbox.clear();
        end.wake();
        let delay = self.latency_to(state, at.other());
        self.send_after(state, at.other(), delay, if reset { Arrival::Reset } else { Arrival::Closed });
    }

    /// Cuts or restores the link from one node or rail to another.
    pub(super) fn partition(&mut self, state: &State, from: u32, to: u32, cut: bool) {
        if !cut {
            self.cuts.remove(&(from, to));
            return;
        }
        self.cuts.insert((from, to));
        for slot in 0..self.slots.len() {
            let entry = &self.slots[slot];
            let Some(link) = &entry.link else { continue };
            let hears = |end: usize| link.cut_as[end] == to && link.cut_as[1 - end] == from;
            let deaf = [hears(0), hears(1)];
            if deaf != [false, false] {
                let slot = u32::try_from(slot).expect("connect keeps the number of slots below 2^32");
                self.sever_ways(state, LinkId { slot, generation: entry.generation }, deaf);
            }
        }
    }
}

/// A frame with a flipped bit, and right checksums if it has any.
fn flipped(
    mut header: FrameHeader,
    mut record: Vec<u8>,
    payload: Buf,
    is_sealed: bool,
) -> ([u8; HEADER_LEN], Vec<u8>, Buf) {
    let mut bytes = payload.to_vec();
    match bytes.last_mut().or(record.last_mut()) {
        Some(byte) => *byte ^= 1,
        None => header.request ^= 1,
    }
    if !is_sealed {
        header.record_crc = types::checksum::crc(&record);
        header.payload_crc = if header.flags.is_covered() { 0 } else { types::checksum::crc(&bytes) };
    }
    (header.encode(), record, Buf::copy_of(&bytes))
}

fn find(slots: &mut [Slot], end: LinkEnd) -> Option<&mut Link> {
    let slot = &mut slots[end.link.slot as usize];
    if slot.generation == end.link.generation { slot.link.as_mut() } else { None }
}

fn broken<T>() -> io::Result<T> {
    Err(io::Error::from(io::ErrorKind::ConnectionReset))
}
