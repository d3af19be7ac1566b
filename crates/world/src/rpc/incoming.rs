//! Payloads on their way to this side: how much of them may be sent, and their pieces until they are whole. They are those of
//! answers at a caller, and of requests at a server (`announced.rs`).
//!
//! ```text
//!  caller (this file)                          server (`outgoing.rs`)
//!    | request; bulk: bytes that may come at once |
//!    |------------------------------------------->|
//!    |      answer, ANNOUNCED; bulk: bytes to come|   if they are more than that, and more than BULK_MIN
//!    |<-------------------------------------------|
//!    | Grant { bytes }                            |   as the window allows, or 0: not wanted any more
//!    |------------------------------------------->|
//!    |                         Piece, and so on   |
//!    |<-------------------------------------------|
//!
//!  caller (`outgoing.rs`)                      server (this file)
//!    | request, ANNOUNCED; bulk: bytes to come    |   if they are more than the server has said in the handshake, and its
//!    |                                            |   last answer was CROWDED; otherwise the request leaves as a whole
//!    |------------------------------------------->|
//!    |                            Grant { bytes } |   as the window allows
//!    |<-------------------------------------------|
//!    | Piece, and so on; or Grant { 0 }: given up |
//!    |------------------------------------------->|
//! ```
//!
//! All frames of one request have its number, and both kinds go either way: as a request those of the caller, as an answer
//! those of the server. So the direction tells what a grant or a piece is about.

mod arriving;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pace::{Member, Port, Receiver, Sender, Stats, Told, Transfer, WindowSetting};
use types::code_probe::{CodeProbe, hit};
use types::messages::session::Grant;
use types::messages::{PeerReport, WindowReport};
use types::wire::{self, Flags, Record};
use types::{Buf, ClusterId, Epoch};

use super::meter::{Meter, PeerCounters};
use super::send_queue::SendQueue;
use crate::{Frame, Losses, Notify, World};

pub(super) use self::arriving::{Arriving, BadPiece, announced_bytes};

/// Smallest piece, in bytes, but the last one: a grant has more. Each takes memory of its own.
const PIECE_MIN: usize = 4 << 10;

/// Where the grants of a transfer go: the connection's queue, the request there, and the cluster.
struct Way {
    send_queue: Weak<SendQueue>,
    request: u64,
    cluster: ClusterId,
    /// When the last grant was given.
    granted_us: u64,
    /// Whether it is an answer that comes.
    is_answer: bool,
}

impl Way {
    /// The way of an announcement.
    fn of(announcement: &Frame, send_queue: &Rc<SendQueue>) -> Way {
        let header = &announcement.header;
        Way {
            send_queue: Rc::downgrade(send_queue),
            request: header.request,
            cluster: header.cluster,
            granted_us: 0,
            is_answer: header.flags.is_reply(),
        }
    }

    /// Lets the sender send so many bytes; 0: nobody wants them any more.
    fn grant(&self, bytes: usize) {
        let Some(send_queue) = self.send_queue.upgrade() else { return };
        let record = wire::to_bytes(&Grant { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) });
        let (request, flags) = (self.request, if self.is_answer { Flags::REQUEST } else { Flags::REPLY });
        let frame = Frame::new(Grant::KIND, request, self.cluster, Epoch(0), flags, record, Buf::empty());
        send_queue.queue(frame);
    }
}

/// Refuses an answer that is announced to a call that has been given up: its server keeps it until it is told.
pub(super) fn refuse(announcement: &Frame, send_queue: &Rc<SendQueue>) {
    hit(CodeProbe::AnswerUnwanted);
    Way::of(announcement, send_queue).grant(0);
}

/// The receive window of a machine, as far as this process is concerned: its threads share it.
pub(crate) struct ReceivePort(Mutex<Shared>);

/// Other processes of this machine, which share the port of its switch.
pub(crate) trait Neighbours: Send {
    /// Tells them something, or takes back what they were told. Returns what they have told.
    fn exchange(&mut self, now_us: u64, told: Option<Told>) -> Vec<Told>;
}

/// Time between two looks at them while the window is too small, in microseconds.
const EXCHANGE_US: u64 = 20_000;

/// Most addresses that are told apart in reports. What comes from further ones is not told.
const PEERS_MAX: usize = 1024;

struct Shared {
    port: Port,
    /// What has come from others.
    peers: BTreeMap<String, Arc<PeerCounters>>,
    /// Wake those who wait for room.
    wakes: BTreeMap<Member, Notify>,
    neighbours: Option<Box<dyn Neighbours>>,
    /// When they were looked at last.
    exchanged_us: u64,
    /// Whether they have been told something.
    has_told: bool,
}

impl Shared {
    /// Looks at the other processes of the machine, if it is time to.
    fn exchange(&mut self, now_us: u64) {
        let Some(neighbours) = &mut self.neighbours else { return };
        if now_us < self.exchanged_us + EXCHANGE_US {
            return;
        }
        let told = self.port.told(now_us);
        if told.is_some() || self.has_told {
            self.exchanged_us = now_us;
            self.has_told = told.is_some();
            let others = neighbours.exchange(now_us, told);
            // Who needs no part of the window has all of it when it begins to.
            self.port.hear(now_us, if told.is_some() { others } else { Vec::new() });
        }
    }
}

/// The receive window of this process, and what came through it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveReport {
    /// What the window was made with.
    pub setting: WindowSetting,
    /// Bytes that may be on their way to this process at once.
    pub window: usize,
    /// Credit that was given and has not arrived, in bytes.
    pub held: usize,
    /// Answers on their way or expected, and large requests on their way.
    pub open: usize,
    /// How often the window became smaller because packets were lost.
    pub cuts: u64,
    /// Whether callers have to announce large requests now.
    pub is_crowded: bool,
    /// What happened since the start.
    pub stats: Stats,
    /// What has come from other processes and machines.
    pub peers: Vec<PeerReport>,
}

impl From<ReceiveReport> for WindowReport {
    fn from(report: ReceiveReport) -> WindowReport {
        let ReceiveReport { window, is_crowded, cuts, stats, peers, .. } = report;
        let Stats { lost, granted, free, .. } = stats;
        WindowReport { bytes: window as u64, is_crowded, cuts, lost, granted, free, peers }
    }
}

impl ReceivePort {
    /// Payloads of up to `bulk_min` bytes need no credit.
    pub(crate) fn new(
        setting: WindowSetting,
        bulk_min: usize,
        neighbours: Option<Box<dyn Neighbours>>,
    ) -> ReceivePort {
        ReceivePort(Mutex::new(Shared {
            port: Port::new(setting, bulk_min),
            peers: BTreeMap::new(),
            wakes: BTreeMap::new(),
            neighbours,
            exchanged_us: 0,
            has_told: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what comes from an address; `None` if there are too many of them.
    pub(super) fn counters(&self, address: &str) -> Option<Arc<PeerCounters>> {
        let peers = &mut self.lock().peers;
        if let Some(counters) = peers.get(address) {
            return Some(counters.clone());
        }
        if peers.len() >= PEERS_MAX {
            return None;
        }
        Some(peers.entry(address.to_owned()).or_default().clone())
    }

    pub(crate) fn report(&self) -> ReceiveReport {
        let shared = self.lock();
        let window = shared.port.window();
        ReceiveReport {
            setting: window.setting(),
            window: shared.port.bytes(),
            held: shared.port.held(),
            open: shared.port.open(),
            cuts: window.cuts(),
            is_crowded: window.is_needed(),
            stats: shared.port.stats(),
            peers: shared.peers.iter().map(|(address, counters)| counters.report(address)).collect(),
        }
    }
}

/// What comes to all connections of one [`Peers`](super::Peers), or of a server or one of its threads.
pub(super) struct Incoming {
    world: World,
    port: Arc<ReceivePort>,
    receiver: RefCell<Receiver>,
    ways: RefCell<BTreeMap<Transfer, Way>>,
    /// Connections so far.
    senders: Cell<u64>,
    /// Wakes the task that gives out credit that other threads, or time, have made free.
    wake: Notify,
    has_task: Cell<bool>,
    /// The task looks again before credit expires.
    has_timer: Cell<bool>,
}

impl Incoming {
    pub(super) fn new(world: World, port: Arc<ReceivePort>) -> Incoming {
        let wake = Notify::new();
        let mut shared = port.lock();
        let receiver = Receiver::new(&mut shared.port);
        shared.wakes.insert(receiver.member(), wake.clone());
        drop(shared);
        Incoming {
            world,
            port,
            receiver: RefCell::new(receiver),
            ways: RefCell::default(),
            senders: Cell::new(0),
            wake,
            has_task: Cell::new(false),
            has_timer: Cell::new(false),
        }
    }

    pub(super) fn report(&self) -> ReceiveReport {
        self.port.report()
    }

    /// Counts what comes through a connection from `address`.
    pub(super) fn meter(&self, address: String, losses: Losses) -> Meter {
        Meter::new(self.world.clone(), self.port.clone(), address, losses)
    }

    /// The other side of a new connection.
    pub(super) fn sender(&self) -> Sender {
        self.senders.set(self.senders.get() + 1);
        Sender(self.senders.get())
    }

    /// Whether nothing that comes needs credit.
    pub(super) fn is_off(&self) -> bool {
        self.port.lock().port.window().setting() == WindowSetting::Off
    }

    /// Whether large requests should be announced.
    pub(super) fn is_crowded(&self) -> bool {
        self.port.lock().port.window().is_needed()
    }

    /// A large request has come that was not announced; its caller's kernel had to send `lost` packets once more.
    pub(super) fn came_whole(&self, bytes: usize, lost: u32) {
        let now = self.now();
        self.port.lock().port.arrived_without_credit(now, bytes);
        self.lost_without_credit(lost);
    }

    /// Packets of such requests were lost.
    pub(super) fn lost_without_credit(&self, packets: u32) {
        let now = self.now();
        self.port.lock().port.lost_without_credit(now, u64::from(packets));
    }

    pub(super) fn now(&self) -> u64 {
        self.world.now()
    }

    /// When this turn began. Reads no clock.
    pub(super) fn turn_began(&self) -> u64 {
        self.world.turn_began()
    }

    /// Changes the state of this thread's transfers and of the port.
    fn change<T>(&self, change: impl FnOnce(&mut Receiver, &mut Port) -> T) -> T {
        change(&mut self.receiver.borrow_mut(), &mut self.port.lock().port)
    }

    /// Gives out what the window allows, here and in other threads.
    pub(super) fn pump(self: &Rc<Incoming>) {
        let now = self.world.now();
        while let Some(grant) = self.change(|receiver, port| receiver.grant(port, now)) {
            if let Some(way) = self.ways.borrow_mut().get_mut(&grant.transfer) {
                way.granted_us = now;
                way.grant(grant.bytes);
            }
        }
        let receiver = self.receiver.borrow();
        let shared = self.port.lock();
        for member in shared.port.relieved(receiver.member()) {
            shared.wakes.get(&member).into_iter().for_each(Notify::notify);
        }
        drop(shared);
        if receiver.wake_at().is_some() && !self.has_timer.replace(true) {
            self.wake.notify();
        }
    }

    /// Starts the task that gives out credit later, once.
    fn start(self: &Rc<Incoming>) {
        if !self.has_task.replace(true) {
            let watching = watch(self.world.clone(), self.wake.clone(), Rc::downgrade(self));
            self.world.spawn("credit", watching);
        }
    }
}

/// Gives out credit that other threads, or time, have made free.
async fn watch(world: World, wake: Notify, incoming: Weak<Incoming>) {
    loop {
        let woken = wake.wait();
        let Some(wake_at) = incoming.upgrade().map(|incoming| {
            incoming.pump();
            let wake_at = incoming.receiver.borrow().wake_at();
            incoming.has_timer.set(wake_at.is_some());
            wake_at
        }) else {
            return;
        };
        match wake_at {
            Some(at) => drop(world.timeout(at.saturating_sub(world.now()).max(1), woken).await),
            None => woken.await,
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut shared = self.port.lock();
        let mut receiver = self.receiver.borrow_mut();
        receiver.leave(&mut shared.port);
        shared.wakes.remove(&receiver.member());
        drop(shared);
        // Ends the task.
        self.wake.notify();
    }
}
