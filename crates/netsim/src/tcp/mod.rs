//! TCP as the bricks of a cluster send with it, in segments instead of bytes: slow start and Cubic, losses found by
//! selective acknowledgements and by time, probes for lost tails, timeouts.
//!
//! | file | what |
//! |---|---|
//! | `sender.rs` | what may be sent, and when something must be sent again |
//! | `recovery.rs` | which segments are lost |
//! | `cubic.rs` | how large the congestion window is |
//! | `receiver.rs` | what is acknowledged |
//!
//! Sources: RFC 5681 and 9438 (the window), 2018 and 2883 (selective acknowledgements), 6298 (timeouts), 6937 (the rate
//! while losses are repaired), 8985 (losses found by time, probes), 9406 (the end of slow start).

mod cubic;
mod receiver;
mod recovery;
mod sender;

pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;
