//! Every message, by the pair that speaks: session (any two), brick, cluster (the arbiter), names (the name space).
//!
//! Numbers are never reused. A new field means a new wire version.

pub mod brick;
pub mod cluster;
pub mod names;
pub mod session;
mod tasks;

pub use tasks::task_name;

use crate::records;

records! {
    /// The longest turn of a kind of tasks in the last hour: one of them kept its thread for so long.
    part LongTurn {
        /// The kind of the task.
        task: String,
        /// Time on the clock, in microseconds.
        wall_us: u64,
        /// At most so much of it was the thread's own work, in microseconds; the rest is that of other processes.
        cpu_us: u64,
        /// How long ago its minute began, in microseconds.
        age_us: u64,
    }
    /// Done; there is nothing more to say.
    1 Done {};
    /// A refusal; the frame's flags say so too.
    2 Refused {
        /// Why.
        reason: crate::Refusal,
    };
}

#[cfg(test)]
mod tests;
