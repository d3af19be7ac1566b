//! The simulated body: a whole cluster in one thread, the same run for the same seed.
//!
//! Tasks of all nodes share one executor; which of those that can run goes next is drawn from the seed. Time is
//! virtual: it moves to the next event when nothing can run. So a second of cluster time takes as long as the work in
//! it, and a failing seed fails again under the debugger.
//!
//! # Fault model
//!
//! **Injected**, by call or by [`SimOptions`]:
//! - any order of tasks that are ready at the same moment; any time for each frame, read, write and sync;
//! - `kill`: tasks end at any await; connections break, of the frames in flight a tail may be lost; writes stay in the
//!   page cache;
//! - `power_cut`: as `kill`, and of every 512-byte sector written since the last completed sync any version may be the
//!   one that is found again; the machine answers nothing until it is started again;
//! - `partition` and broken connections: a tail of what is in flight is lost, each end notices at a time of its own,
//!   and what was sent in between is gone;
//! - `damage`: bits flipped at rest; `fail_disk`: every operation fails; `slow_disk`;
//! - clocks that stand apart and run too fast or too slow; full connections that make their sender wait.
//!
//! **Promised**, because the real machine promises it: frames of one connection arrive whole, in order and once, or
//! the connection breaks; a sector is written whole or not at all; a write that ended before a sync began is durable
//! when the sync ends well; a file once made stays, with its length; disks are opened by one holder.
//!
//! **Not injected** yet: frames damaged on the wire (TCP and the checksums of a frame stand before that), one-way
//! partitions, misdirected writes, a full disk, reads torn by an overlapping write, memory running out, a wall clock
//! that jumps.

mod chance;
mod disk;
mod executor;
mod net;
mod options;
mod recording;
mod simulation;
mod sparse;
mod state;
mod world;

#[cfg(test)]
mod tests;

pub use options::SimOptions;
pub use recording::{DiskEvent, DiskImage, Recording};
pub use simulation::Simulation;

pub(crate) use disk::Disk;
pub(crate) use world::{Conn, Listener, Receiver, Sender, World};
