//! What comes from each other process or machine, for reports.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::messages::PeerReport;
use types::messages::session::Piece;
use types::wire::Record;

use super::incoming::ReceivePort;
use crate::{Frame, Losses, World};

/// A connection asks the kernel for its round trips this seldom, in microseconds.
const ASK_US: u64 = 100_000;

/// What has come from one address, through the connections of all threads.
#[derive(Default)]
pub(super) struct PeerCounters {
    bytes: AtomicU64,
    lost: AtomicU64,
    timeouts: AtomicU64,
    /// The round trip when it was asked for last, and the least one, in microseconds; 0 if it is not known.
    round_trip_us: AtomicU64,
    least_us: AtomicU64,
    /// What came in pieces, and how long something did.
    credit_bytes: AtomicU64,
    credit_us: AtomicU64,
    /// Messages that are announced and not whole, and since when there have been some.
    awaited: Mutex<(u32, u64)>,
}

impl PeerCounters {
    pub(super) fn report(&self, address: &str) -> PeerReport {
        PeerReport {
            address: address.to_owned(),
            bytes: self.bytes.load(Relaxed),
            lost: self.lost.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            round_trip_us: self.round_trip_us.load(Relaxed),
            least_us: self.least_us.load(Relaxed),
            credit_bytes: self.credit_bytes.load(Relaxed),
            credit_us: self.credit_us.load(Relaxed),
        }
    }

    fn awaited(&self) -> MutexGuard<'_, (u32, u64)> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measured(&self, (round_trip_us, least_us): (u64, u64)) {
        if least_us == 0 {
            return;
        }
        self.round_trip_us.store(round_trip_us, Relaxed);
        // A new least one, or the first.
        let lower = |least: u64| (least == 0 || least_us < least).then_some(least_us);
        let _ = self.least_us.fetch_update(Relaxed, Relaxed, lower);
    }
}

/// Counts what comes through one connection.
pub(super) struct Meter {
    world: World,
    port: Arc<ReceivePort>,
    address: String,
    losses: Losses,
    /// From the first thing that counts; `None` if too many addresses are told apart.
    counters: OnceCell<Option<Arc<PeerCounters>>>,
    /// When the round trips were asked for.
    asked_us: Cell<Option<u64>>,
    /// What the sender has said of the whole connection.
    said: Cell<Said>,
}

/// A message that is announced and not whole.
pub(super) struct Awaited {
    world: World,
    counters: Option<Arc<PeerCounters>>,
}

#[derive(Clone, Copy, Default)]
struct Said {
    lost: u32,
    timeouts: u32,
}

impl Meter {
    /// Of the connection with these losses, from `address`.
    pub(super) fn new(world: World, port: Arc<ReceivePort>, address: String, losses: Losses) -> Meter {
        let (asked_us, said) = (Cell::default(), Cell::default());
        Meter { world, port, address, losses, counters: OnceCell::new(), asked_us, said }
    }

    fn counters(&self) -> Option<&Arc<PeerCounters>> {
        self.counters.get_or_init(|| self.port.counters(&self.address)).as_ref()
    }

    /// A frame has come. Only large messages count.
    pub(super) fn came(&self, frame: &Frame) {
        let bytes = frame.payload.len();
        if frame.header.kind != Piece::KIND && bytes <= self.world.bulk_min() {
            return;
        }
        let Some(counters) = self.counters() else { return };
        counters.bytes.fetch_add(bytes as u64, Relaxed);
        if frame.header.kind == Piece::KIND {
            counters.credit_bytes.fetch_add(bytes as u64, Relaxed);
        }
        let now = self.world.now();
        if self.asked_us.get().is_none_or(|asked| now >= asked + ASK_US) {
            self.asked_us.set(Some(now));
            counters.measured(self.losses.round_trips());
        }
    }

    /// The sender says how many packets it has lost since the connection began. Returns how many of them are new.
    pub(super) fn lost(&self, lost: u32) -> u32 {
        let mut said = self.said.get();
        let new = lost.saturating_sub(said.lost);
        said.lost += new;
        self.said.set(said);
        if new > 0
            && let Some(counters) = self.counters()
        {
            counters.lost.fetch_add(new.into(), Relaxed);
        }
        new
    }

    /// The sender says how often it has waited for a timeout since the connection began.
    pub(super) fn timeouts(&self, timeouts: u32) {
        let mut said = self.said.get();
        let new = timeouts.saturating_sub(said.timeouts);
        said.timeouts += new;
        self.said.set(said);
        if new > 0
            && let Some(counters) = self.counters()
        {
            counters.timeouts.fetch_add(new.into(), Relaxed);
        }
    }
    /// A message is announced, until what this returns is dropped.
    pub(super) fn awaited(&self) -> Awaited {
        let counters = self.counters().cloned();
        if let Some(counters) = &counters {
            let mut awaited = counters.awaited();
            if awaited.0 == 0 {
                awaited.1 = self.world.now();
            }
            awaited.0 += 1;
        }
        Awaited { world: self.world.clone(), counters }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Some(counters) = &self.counters else { return };
        let mut awaited = counters.awaited();
        awaited.0 -= 1;
        if awaited.0 == 0 {
            counters.credit_us.fetch_add(self.world.now().saturating_sub(awaited.1), Relaxed);
        }
    }
}
