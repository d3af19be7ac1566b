//! A network of any shape of [`layout::topology`], on this machine: its cables have a rate and a queue, and can be cut and
//! mended while it runs.
//!
//! ```text
//!   node1 ──────── node2      Each node and each switch is a network namespace with one address, and each cable a pair of
//!    lo: 198.18.0.1  │        virtual interfaces, named after the neighbour at their other end. A token bucket at each end
//!     │   │          │        limits what that end sends. The interfaces have no addresses of their own: routes lead to
//!   node3 ──────── node4      the address of a node by way of a neighbour, as `Topology::next_hop` says.
//! ```
//!
//! Switches are routers and not bridges, for the reasons that [`star`](crate::star) gives: a queue has to hold packets, one by
//! one, that the sender's socket does not count as its own any more. Nodes of a shape without switches forward packets of
//! others, as routers do.
//!
//! | module | what |
//! |---|---|
//! | [`shape`] | a topology from a number of nodes and the name of a shape, or why there is none |
//! | [`cable`] | the names of cables |
//! | [`commands`] | the commands that make it, as plain text |
//! | [`routes`] | who sends packets for whom to which neighbour, with some cables cut |
//! | [`running`] | carries the commands out, cuts, mends and counts |

pub mod cable;
pub mod commands;
pub mod routes;
pub mod running;
pub mod shape;

pub use cable::Cable;
pub use commands::CablePlan;
pub use running::{CableLoad, Fabric, check_kernel};
