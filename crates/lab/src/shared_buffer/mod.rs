//! A switch whose ports share one memory, as most real ones do. The kernel has no queue like that, so a thread is one.
//!
//! ```text
//!   servers ─▶ router ─▶ shared (tun) ─▶ thread: a queue for each port, one memory ─▶ shared (tun) ─▶ router ─▶ clients
//! ```
//!
//! | file | what |
//! |---|---|
//! | `ports` | the queues, without I/O; the same rule as a memory of the model has (`shoal sim net --shared-buffer`) |
//! | `tun` | packets as bytes, in and out |
//! | `forward` | the thread |
//!
//! A packet that comes while the thread waits for a CPU is queued, or dropped, when the thread has one.

mod forward;
mod ports;
mod tun;

pub use forward::SharedBuffer;
