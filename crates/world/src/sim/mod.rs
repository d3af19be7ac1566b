//! The simulated body: a whole cluster in one thread, the same run for the same seed.
//!
//! Tasks of all nodes share one executor; which of those that can run goes next is drawn from the seed. Time is
//! virtual: it moves to the next event when nothing can run. So a second of cluster time takes as long as the work in
//! it, and a failing seed fails again under the debugger.
//!
//! What a task does in a turn keeps its node's thread busy for as long as [`types::cost`] says: no other task of the node
//! runs before, and a turn that takes too long ends the run. What the turn sends and sets leaves at its beginning.
//!
//! # Fault model
//!
//! **Injected**, by call or by [`SimOptions`], each counted as a [`Fault`]:
//! - any order of tasks that are ready at the same moment; any time for each frame, read, write and sync;
//! - `kill`: tasks end at any await; connections break, of the frames in flight a tail may be lost; writes stay in the
//!   page cache. `kill_at`: the same before one certain poll, so also between two steps of one moment;
//! - `power_cut`: as `kill`, and of every sector written since the last completed sync any version may be the one that
//!   is found again; the machine answers nothing until it is started again. A run's sectors have 512 bytes or 4 KiB;
//! - `partition`, `cut_one_way` and broken connections: a tail of what is in flight is lost, perhaps in the middle of a
//!   frame; each end notices at a time of its own, and what was sent in between is gone;
//! - `slow_link`, `slow_disk`: everything takes longer, nothing fails;
//! - `rot`, `damage`: bits flipped at rest; [`DiskFaults`]: reads that fail, writes that go elsewhere, a sync that
//!   fails, no space left; `fail_disk`: every operation fails;
//! - clocks that stand apart and run too fast or too slow; full connections that make their sender wait.
//!
//! What a datagram network does to messages, a stream does to connections:
//!
//! | message | here |
//! |---|---|
//! | lost | the connection breaks before it: a request may have been handled although its answer never comes |
//! | late | stalls and slow links hold up a connection, never a frame alone |
//! | out of order | frames of two connections between the same nodes, and of two directions, overtake one another |
//! | doubled | its sender asks again on a new connection, because it cannot know; the wire itself doubles nothing |
//! | damaged | not injected: TCP and the checksums of a frame stand before that |
//!
//! **Promised**, because the real machine promises it: frames of one connection arrive whole, in order and once, or
//! the connection breaks; a sector is written whole or not at all; a write that ended before a sync began is durable
//! when the sync ends well; a file once made stays, with its length; disks are opened by one holder.
//!
//! **Not injected**: reads torn by an overlapping write, memory running out, a wall clock that jumps.

mod disk;
mod executor;
mod faults;
mod net;
mod options;
mod prng;
mod recording;
mod simulation;
mod sparse;
mod state;
mod world;

#[cfg(test)]
mod tests;

pub use faults::{DiskFaults, Fault};
pub use options::SimOptions;
pub use recording::{DiskEvent, DiskImage, Recording};
pub use simulation::Simulation;

pub(crate) use disk::Disk;
pub(crate) use world::{Conn, Listener, Receiver, Sender, StreamReceiver, World};
