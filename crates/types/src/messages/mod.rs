//! Every message, by the server that it is sent to: session (any), brick, cluster (the arbiter), names (the name
//! space).
//!
//! Numbers are never reused. A new field comes last and has a default: see `docs/formats.md`.

pub mod brick;
mod brick_report;
mod clients;
pub mod cluster;
mod fences;
mod map;
mod map_fetch;
pub mod names;
pub mod notes;
mod opens;
mod placement;
pub mod proxy;
pub mod queue;
pub mod reach;
pub mod recovery;
pub mod replica;
pub mod session;
pub mod shards;
mod tasks;
mod tiers;
mod units;
mod volumes;

pub use tasks::task_name;

use crate::records;

records! {
    /// The longest turn of one kind of task in the last hour.
    part LongTurn {
        /// The kind of the task.
        task: String,
        /// Time on the clock, in microseconds.
        wall_us: u64,
        /// Upper bound of the thread's own work in it, in microseconds; during the rest, other processes had the CPU.
        cpu_us: u64,
        /// How long ago the minute in which it happened began, in microseconds.
        age_us: u64,
    }
    /// What has come from another process or machine since the start, and how long its packets take.
    #[derive(Default)]
    part PeerReport {
        /// Its address; of those that call this process, without the port.
        address: String,
        /// Bytes of large messages.
        bytes: u64,
        /// Packets of them that were lost.
        lost: u64,
        /// How often it waited for a timeout of TCP meanwhile, as it has said with messages in pieces.
        timeouts: u64,
        /// The round trip of its newest connection, smoothed, in microseconds. What is above the least one is time in queues.
        round_trip_us: u64,
        /// The least round trip, in microseconds.
        least_us: u64,
        /// Bytes of messages that had to wait for credit.
        credit_bytes: u64,
        /// For how long there were such messages on their way, waiting included, in microseconds.
        credit_us: u64,
    }
    /// The receive window of a process, and what came through it since the start.
    #[derive(Default)]
    part WindowReport {
        /// Bytes that may be on their way at once.
        bytes: u64,
        /// Whether large requests have to be announced now.
        is_crowded: bool,
        /// How often it became smaller because packets were lost.
        cuts: u64,
        /// Packets that were lost.
        lost: u64,
        /// Bytes that were granted after an announcement.
        granted: u64,
        /// Bytes of large requests that needed no credit.
        free: u64,
        /// Those from whom large messages came, over the network.
        peers: Vec<PeerReport>,
    }
    /// Done.
    1 Done {};
    /// A refusal; the frame's flags say so too.
    2 Refused {
        /// Why.
        reason: crate::Refusal,
    };
}

#[cfg(test)]
mod tests;
