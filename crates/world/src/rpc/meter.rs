//! What comes from each other process or machine, for reports.

use std::cell::Cell;
use std::sync::Arc;

use types::messages::session::Piece;
use types::wire::Record;

use super::incoming::ReceivePort;
use crate::{Frame, Losses, World};

/// A connection keeps what it has counted for itself for so long, in microseconds.
const TELL_US: u64 = 100_000;

/// Counts what comes through one connection.
pub(super) struct Meter {
    world: World,
    port: Arc<ReceivePort>,
    address: String,
    losses: Losses,
    /// Not told yet.
    news: Cell<News>,
    told_us: Cell<u64>,
    /// What the sender has said of the whole connection.
    said: Cell<Said>,
}

/// What has come since the last time.
#[derive(Clone, Copy, Default)]
pub(super) struct News {
    pub(super) bytes: u64,
    pub(super) lost: u64,
    pub(super) timeouts: u64,
    /// The round trip now, and the least one, in microseconds; 0 if it is not known.
    pub(super) round_trip_us: u64,
    pub(super) least_us: u64,
}

#[derive(Clone, Copy, Default)]
struct Said {
    lost: u32,
    timeouts: u32,
}

impl Meter {
    /// Of the connection with these losses, from `address`.
    pub(super) fn new(world: World, port: Arc<ReceivePort>, address: String, losses: Losses) -> Meter {
        let told_us = Cell::new(world.now());
        Meter { world, port, address, losses, news: Cell::default(), told_us, said: Cell::default() }
    }

    /// A frame has come. Only large messages count.
    pub(super) fn came(&self, frame: &Frame) {
        let bytes = frame.payload.len();
        if frame.header.kind != Piece::KIND && bytes <= self.world.bulk_min() {
            return;
        }
        let mut news = self.news.get();
        news.bytes += bytes as u64;
        self.news.set(news);
        if self.world.now() >= self.told_us.get() + TELL_US {
            self.tell();
        }
    }

    /// The sender says how many packets it has lost since the connection began. Returns how many of them are new.
    pub(super) fn lost(&self, lost: u32) -> u32 {
        let (mut said, mut news) = (self.said.get(), self.news.get());
        let new = lost.saturating_sub(said.lost);
        said.lost += new;
        news.lost += u64::from(new);
        self.said.set(said);
        self.news.set(news);
        new
    }

    /// The sender says how often it has waited for a timeout since the connection began.
    pub(super) fn timeouts(&self, timeouts: u32) {
        let (mut said, mut news) = (self.said.get(), self.news.get());
        let new = timeouts.saturating_sub(said.timeouts);
        said.timeouts += new;
        news.timeouts += u64::from(new);
        self.said.set(said);
        self.news.set(news);
    }

    fn tell(&self) {
        self.told_us.set(self.world.now());
        let (round_trip_us, least_us) = self.losses.round_trips();
        let news = News { round_trip_us, least_us, ..self.news.take() };
        self.port.tell(&self.address, news);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let News { bytes, lost, timeouts, .. } = self.news.get();
        if bytes + lost + timeouts > 0 {
            self.tell();
        }
    }
}
