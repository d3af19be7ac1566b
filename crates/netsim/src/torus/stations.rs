//! What a slice goes through: a link in one direction, a node that computes, a brick.

use crate::packet::{HEADERS, PAYLOAD};
use crate::time::{Rate, SECOND, Time};

/// The number of a station.
pub(crate) type StationId = u32;

/// It serves slices one by one, first in, first out. There is room for all that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Station {
    /// Picoseconds for 1 KiB.
    kib: Time,
    /// From the end of the service until the slice is at the next station.
    delay: Time,
    /// Bytes of headers that each packet has here.
    headers: u64,
    free_at: Time,
    /// Bytes served while it was observed, with those of headers.
    pub(crate) served: u64,
    /// The longest wait of a slice that came while it was observed.
    pub(crate) wait_most: Time,
}

impl Station {
    /// A station for so many bytes per second.
    pub(crate) fn new(bytes_per_second: f64, delay: Time) -> Station {
        let kib = (1024.0 * SECOND as f64 / bytes_per_second).round() as Time;
        Station { kib, delay, headers: 0, free_at: 0, served: 0, wait_most: 0 }
    }

    /// A cable in one direction: headers take their part of its rate.
    pub(crate) fn link(rate: Rate, delay: Time) -> Station {
        Station::new(rate.payload(), delay)
    }

    /// The same, whose packets are counted one by one, with their headers.
    pub(crate) fn wire(rate: Rate, delay: Time) -> Station {
        Station { headers: HEADERS.into(), ..Station::new(rate.0 as f64 / 8.0, delay) }
    }

    /// What so many bytes are here, with the headers of their packets.
    pub(crate) fn with_headers(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(PAYLOAD.into()) * self.headers
    }

    /// How long it serves so many bytes.
    pub(crate) fn span(&self, bytes: u64) -> Time {
        (self.with_headers(bytes) * self.kib) >> 10
    }

    /// Serves bytes on the wire for which nobody waits: they take their part of the rate.
    pub(crate) fn carry(&mut self, now: Time, bytes: u64) {
        self.free_at = self.free_at.max(now) + ((bytes * self.kib) >> 10);
        self.served += bytes;
    }

    /// A slice comes. Returns when it is at the next station.
    pub(crate) fn take(&mut self, now: Time, bytes: u64) -> Time {
        let begin = self.free_at.max(now);
        self.wait_most = self.wait_most.max(begin - now);
        self.free_at = begin + self.span(bytes);
        self.free_at + self.delay
    }

    /// Forgets what was observed.
    pub(crate) fn observe(&mut self) {
        (self.served, self.wait_most) = (0, 0);
    }
}
