//! What is asked of a device, and what it is given.

use std::fmt;

/// Most bytes of one request.
pub const LENGTH_MAX: u64 = 1 << 30;
/// The lowest of the eight priorities; 0 is the highest, 4 is usual.
pub const PRIORITY_LOWEST: u8 = 7;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes what was written before it durable. It has no bytes.
    Flush,
}

/// The way of bytes. Policies treat reads and writes apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

    /// The other one.
    pub fn other(self) -> Direction {
        match self {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        }
    }
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What the owner calls it. The scheduler only hands it back.
    pub id: u64,
    /// What it does.
    pub operation: Operation,
    /// Its first byte on the device.
    pub offset: u64,
    /// Its bytes, 1 to [`LENGTH_MAX`]; 0 for a flush.
    pub length: u64,
    /// Who asks. `cfq` and `bfq` are fair between processes.
    pub process: u32,
    /// 0 to [`PRIORITY_LOWEST`]. `cfq` and `bfq` give more to lower numbers.
    pub priority: u8,
    /// Whether somebody waits for it: a read, an `fsync`. Otherwise it is write-back.
    pub waited_for: bool,
}

impl Request {
    /// Refuses what no device can do.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Request { operation, offset, length, priority, .. } = *self;
        if (operation == Operation::Flush) != (length == 0) {
            return refuse(format!("a request of {length} bytes: reads and writes have some, flushes none"));
        }
        if length > LENGTH_MAX {
            return refuse(format!("a request of {length} bytes: at most {LENGTH_MAX}"));
        }
        if offset.checked_add(length).is_none() {
            return refuse(format!("a request at {offset}: no device has so many bytes"));
        }
        if priority > PRIORITY_LOWEST {
            return refuse(format!("priority {priority}: 0 to {PRIORITY_LOWEST}"));
        }
        Ok(())
    }
}

/// Names something that was dispatched until it is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    pub(super) slot: u32,
    /// Slots are used again, numbers are not.
    pub(super) number: u64,
}

/// What the device has to do now: one request, or several that lie one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    /// For [`Scheduler::requests`](super::Scheduler::requests) and [`Scheduler::complete`](super::Scheduler::complete).
    pub token: Token,
    /// What it does.
    pub operation: Operation,
    /// Its first byte on the device.
    pub offset: u64,
    /// Its bytes, of all requests together.
    pub length: u64,
}

/// What a scheduler has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Requests that were put behind a waiting one.
    pub back_merges: u64,
    /// Requests that were put before a waiting one.
    pub front_merges: u64,
    /// Waiting requests that became one because another filled the gap between them.
    pub joins: u64,
    /// Dispatches of requests whose deadlines had passed.
    pub expiries: u64,
    /// Dispatched reads; merged ones count once.
    pub reads: u64,
    /// Dispatched writes; merged ones count once.
    pub writes: u64,
    /// Dispatched flushes.
    pub flushes: u64,
    /// Requests that had to wait for others which they overlap.
    pub held: u64,
}

/// Why a request, a name or a value is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub(super) String);

pub(super) fn refuse<T>(why: String) -> Result<T, Refusal> {
    Err(Refusal(why))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
