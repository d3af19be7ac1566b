//! What a direct disk has in place of the kernel's page cache and I/O scheduler: a cache of blocks, and a queue in which
//! requests of different classes take turns.
//!
//! ```text
//!  read --> blocks in memory? -- yes --------------------------------> answer
//!             | no
//!             v
//!  write --> queue: whose turn is it? (pace::Classes) --> the device --> answer, and blocks for the next read
//! ```
//!
//! A sync does not wait in the queue: it covers what has been written, and whoever asks for one has waited for that.
//!
//! # Invariants
//! - The cache has no bytes of a block that was written since they were read, as long as nobody else writes the device.
//! - At most `depth` requests are at the device, besides those of the journal. Neighbours that go together count as one.
//! - A request that is given up leaves the queue, and frees its place at the device.
//! - A write that is given up keeps its place and its blocks until the device has done it.
//! - Requests of one class that overlap keep their order, also when the policy changes. Of two classes, a read that is asked for before an overlapping write is
//!   answered has the old bytes or the new ones, as with any disk.

mod blocks;
mod class;
mod device;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use blocks::joined;
pub use class::in_class;
pub(crate) use class::{from_the_wire, on_the_wire};
pub(crate) use device::Direct;
pub use device::{DEPTH, DEPTH_MAX, DirectCounts, DirectOptions, QueueChange, QueueSettings};
