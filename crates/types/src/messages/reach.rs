//! Failure reports: which bricks members and clients cannot reach.

use crate::{BrickId, ClientId, records};

records! {
    /// A reporter's bricks, at most [`REPORTED_MAX`](crate::limits::REPORTED_MAX) in each list. It replaces what the same reporter
    /// has said before.
    #[derive(Default)]
    part ReachReport {
        /// Bricks that do not answer it.
        unreached: Vec<BrickId>,
        /// Of the bricks about which the metadata service has asked, those that answer it.
        reached: Vec<BrickId>,
    }
    /// A brick that somebody cannot reach, or that was put Out for it.
    part UnreachedBrick {
        /// The brick.
        brick: BrickId,
        /// Bricks that do not reach it, or that it does not reach.
        bricks: Vec<BrickId>,
        /// Clients that do not reach it.
        clients: Vec<ClientId>,
        /// Bricks that reach it.
        reached_by: Vec<BrickId>,
        /// It gets no lease for so long, in microseconds, and after that not before others reach it; [`None`] if it may have one.
        held_us: Option<u64>,
    }
}
