//! Every message, by the server that it is sent to: session (any), brick, cluster (the arbiter), names (the name
//! space).
//!
//! Numbers are never reused. A new field means a new wire version.

pub mod brick;
pub mod cluster;
mod map_fetch;
pub mod names;
pub mod session;
mod tasks;
mod tiers;

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
