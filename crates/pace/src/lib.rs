//! How many bytes may be on their way to a receiver at once, who answers too late, and what a disk does next.
//!
//! A switch port keeps few bytes: about 100 KB for 10 Gbit/s. Many bricks that answer one client, or many clients that write to
//! one brick, fill it in no time; packets are lost, and TCP waits up to 200 ms until it notices. TCP on each connection cannot
//! know of the others. The receiver does: everything comes to it. So it gives out *credit*, bytes that others may send, and
//! never more than a *window*.
//!
//! ```text
//!  receiver                              sender
//!     | (of an answer: the request, with    |
//!     |  credit if any)                     |
//!     |------------------------------------>|
//!     |     announcement: so many bytes     |   the bytes are in RAM: no credit waits for a disk
//!     |<------------------------------------|
//!     | grant                               |   while granted and not arrived <= window
//!     |------------------------------------>|
//!     |                       piece         |
//!     |<------------------------------------|
//! ```
//!
//! [`Receiver`] decides who may send how much to one thread, [`Port`] how much each thread, and each process of a machine, has
//! of the [`Window`], and the window how much that is in all. [`LossCounter`] tells the window what was lost. [`Latencies`] says whose answers are late, and
//! when to ask in another way. [`Classes`] says which class of requests a disk serves next, and [`device`] in which order those
//! of a class go. [`Reach`] says who cannot be reached. All are plain state: no I/O, and time is passed in, in microseconds of any clock that never goes back.
//!
//! Sources: Phanishayee et al., FAST 2008 (reads from many servers collapse when their windows exceed the port's buffer);
//! Montazeri et al., SIGCOMM 2018 (Homa: grants by the receiver); 3FS (requests to send).

mod classes;
pub mod device;
mod latency;
mod losses;
mod port;
mod reach;
mod receiver;
mod window;

pub use classes::{Classes, IoClass, LIMIT_MIN, Next, Share, WEIGHT_MAX, WHOLE};
pub use latency::{Ask, Latencies, Slow};
pub use losses::LossCounter;
pub use port::{Member, Port, Stats, Told};
pub use reach::{PROBE_US, Reach};
pub use receiver::{Grant, Receiver, Sender, Transfer};
pub use window::{LATE_US, WINDOW_MAX, WINDOW_MIN, Window, WindowSetting};

/// Payloads of at most so many bytes are sent without credit. Answers of that size count against the window all the same.
pub const BULK_MIN: usize = 16 << 10;
