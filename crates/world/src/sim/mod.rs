//! The simulated body: a whole cluster in one thread. The same seed repeats the same run.
//!
//! Tasks of all nodes share one executor. The seed decides which of the ready tasks runs next. Time is virtual: it
//! moves to the next event when no task is ready. So a second of cluster time takes only as long as the work in it,
//! and a failing seed fails again under a debugger.
//!
//! A turn keeps its node's thread busy for the time that [`types::cost`] has counted: no other task of the node runs
//! meanwhile, and a turn that takes too long ends the run with a panic. Frames that a turn sends, and timers that it
//! sets, count from the start of the turn.
//!
//! # Fault model
//!
//! **Injected**, by calls or by [`SimOptions`], each counted as a [`Fault`]:
//! - any order of tasks that are ready at the same time; a random duration of each frame, read, write and sync;
//! - `kill`: tasks end at any await; connections break, and the last frames in flight may be lost; writes stay in the
//!   page cache. `kill_at`: the same before one given poll, so also between two steps at the same time;
//! - `power_cut`: as `kill`, and each sector written since the last completed sync may have any of its versions
//!   afterwards. The machine does not answer until it is started again. Sectors have 512 bytes or 4 KiB, fixed for a
//!   run;
//! - `partition`, `cut_one_way` and broken connections: the last bytes in flight are lost, perhaps from the middle of
//!   a frame on. Each end notices at a different time, and everything sent before it notices is lost;
//! - the same for one of several addresses of a node (`add_rail`);
//! - `tamper`: a server sends other bytes, another record, a false answer, or sends late; or it dies at a certain frame;
//! - `slow_link`, `slow_disk`: everything takes longer, nothing fails;
//! - `rot`, `damage`: bits flipped at rest; [`DiskFaults`]: reads that fail, writes that go to a wrong place, a sync
//!   that fails, no space left; `fail_disk`: every operation fails;
//! - clocks with an offset that run too fast or too slow; full connections that make their sender wait.
//!
//! How faults of messages in a datagram network appear here, where messages travel in streams:
//!
//! | message | here |
//! |---|---|
//! | lost | the connection breaks before the message: a request may have been handled although its answer never comes |
//! | late | stalls and slow links delay all frames of a connection, never a single one |
//! | out of order | frames of two connections between the same nodes, and of the two directions, may overtake each other |
//! | doubled | the sender, which cannot know, repeats it on a new connection; the network itself duplicates nothing |
//! | damaged | only by its sender (`tamper`): TCP and the checksums of a frame detect the rest |
//!
//! **Guaranteed**, because the real machine guarantees it: frames of one connection arrive whole, in order and once,
//! or the connection breaks; a sector is written whole or not at all; a write that ended before a sync began is
//! durable when the sync succeeds; a new file stays, with its length; only one holder can open a disk, and may
//! share it.
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
mod tamper;
mod world;

#[cfg(test)]
mod tests;

pub use faults::{DiskFaults, Fault};
pub use options::SimOptions;
pub use recording::{DiskEvent, DiskImage, Recording};
pub use simulation::Simulation;
pub use tamper::{Forgery, Passing, Tampering};

pub(crate) use disk::{Disk, SharedDisk};
pub(crate) use world::{Conn, Listener, Receiver, Sender, StreamReceiver, World};
