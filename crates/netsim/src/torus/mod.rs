//! A network without switches in virtual time: what writes, reads and rebuilds cost where each node forwards for others.
//!
//! Hundreds of nodes are too many for packets and TCP, and neither decides here: no port drops anything, because a node keeps
//! what it forwards in its RAM. What decides is how many bytes cross which cables. So the grain is a slice, 64 KiB, that goes
//! from node to node. docs/torus-model.md has what is predicted, and how the model was checked.
//!
//! ```text
//!  operation (a stripe written, read; a unit rebuilt)
//!     = transfers that wait for each other, slice by slice
//!          = a way through stations: [cable of the client] link link link [brick]      or a node that computes
//!               = first in, first out; a rate; a delay behind it
//! ```
//!
//! | file | what |
//! |---|---|
//! | `setup.rs` | what is modelled, and what is refused |
//! | `stations.rs` | what a slice goes through |
//! | `network.rs` | the stations of a torus, ways in it, what is lost of it |
//! | `plan.rs` | an operation: its transfers |
//! | `writes.rs`, `reads.rs`, `rebuilds.rs` | the operations by route |
//! | `engine.rs` | the events, one after the other |
//! | `groups.rs` | which nodes hold a stripe: the product's own tables |
//! | `load.rs` | who does what, and when |
//! | `messages.rs` | the product's small messages, where they are counted |
//! | `job.rs` | a client that reads or writes given stripes once, as in the lab |
//! | `model.rs` | the experiments, and what was measured |
//!
//! Placement and routing are the product's own code ([`layout`]).

mod engine;
mod groups;
mod job;
mod load;
mod messages;
mod model;
mod network;
mod plan;
mod reads;
mod rebuilds;
mod setup;
mod stations;
mod writes;

pub use groups::PlacementName;
pub use job::{Done, Job, Lane, Piece, Work};
pub use load::ClientPlace;
pub use model::{Baseline, DegradedReads, Latency, Links, Model, Reads, Rebuild, Writes};
pub use network::Failure;
pub use reads::ReadRoute;
pub use rebuilds::RebuildRoute;
pub use setup::Setup;
pub use writes::WriteRoute;

#[cfg(test)]
mod known_results;
