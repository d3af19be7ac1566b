//! In which order the requests of one device go to it.
//!
//! ```text
//!  add ---> overlaps an earlier one? held until that is complete
//!             | no
//!             v
//!           touches one that waits? merged with it, behind or before
//!             | no
//!             v
//!           policy: noop, deadline, cfq, bfq, kyber, slq-nearest, slq-lisf-first, slq-auto
//!             |
//! dispatch <--'   at most `depth` in flight                                      complete ---> held ones go to the policy
//! ```
//!
//! | file | what |
//! |---|---|
//! | `scheduler.rs` | merging, dependencies and flushes: the same for all policies |
//! | `parameters.rs` | names of policies; what can be tuned at run time, and its ranges |
//! | `request.rs` | what goes in and out |
//! | `item.rs`, `slots.rs` | what waits, and orders of it |
//! | `policy.rs` | one face for the policies |
//! | `slq.rs`, `auto.rs` | by size, around a dispatch priority; how that is found |
//! | `noop.rs`, `deadline.rs`, `kyber.rs` | policies of Linux that do not know processes |
//! | `process_queue.rs`, `cfq.rs`, `bfq.rs` | those that do |
//!
//! # What is promised
//!
//! - **Nothing is lost or doubled.** Each request is in exactly one dispatch.
//! - **What overlaps keeps its order.** A write that overlaps an earlier read or write, and a read that overlaps an earlier
//!   write, go to the device only after that one is complete. Reads may overlap.
//! - **A flush follows the writes before it.** It goes when all writes that were added before it are complete, and then
//!   before everything else. What was added after it does not wait for it: who needs that waits for the flush, as file
//!   systems on Linux do.
//! - **No starvation with `slq`.** From its deadline on (`read-expiry`, `write-expiry` after it was added), only requests
//!   with earlier deadlines go before a request, and these had been added before that time. A held request counts from its release,
//!   by its old deadline. `deadline` promises less: when a batch begins in a direction, the oldest request of that direction
//!   goes first if it has expired; writes get a batch after `reads-per-write` batches of reads. `noop` and `kyber` are first
//!   in, first out, for reads and for writes; of `cfq` and `bfq` each busy process gets its turn.
//! - **The same calls give the same answers.** There is no clock and no chance.
//!
//! Adding, dispatching and completing take O(log n) steps for n waiting requests, and one more for each request that must
//! be waited for. Only a write also looks at waiting reads that begin within the length of the longest one before it.
//! Nothing is allocated in the steady state but nodes of the trees.

mod auto;
mod bfq;
mod cfq;
mod deadline;
mod item;
mod kyber;
mod noop;
mod parameters;
mod policy;
mod process_queue;
mod request;
mod scheduler;
mod slots;
mod slq;

pub use parameters::{DISPATCH_PRIORITY_MAX, Parameters, PolicyName};
pub use request::{
    Counters, Direction, Dispatch, LENGTH_MAX, Operation, PRIORITY_LOWEST, Refusal, Request, Token,
};
pub use scheduler::Scheduler;

#[cfg(test)]
mod tests;
