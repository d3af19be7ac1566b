//! A cluster on a [fabric](crate::fabric) that lives on in the background, for people to try things with.
//!
//! ```text
//!   shoal lab up ──▶ owner ──pipe──▶ first process ──▶ server ──▶ daemons at the nodes
//!                    holds the       of the sandbox,   answers at
//!                    lab's directory collects what     the control   ◀── shoal lab cut, kill, watch, ...
//!                    and its lock    has ended         socket
//! ```
//!
//! The owner waits, outside of the [sandbox](crate::sandbox); if it ends, by whatever signal, everything else does. The first
//! process makes the socket while it still sees the machine's `/run`, and hands it to the server as standard input.
//!
//! | module | what |
//! |---|---|
//! | [`plan`] | what a lab is to be, and whether this machine can be that |
//! | [`place`] | a lab's directory on the machine, and who has it |
//! | [`owner`] | the owner |
//! | [`first`] | the first process of its sandbox |
//! | [`server`] | makes the lab and carries out requests |
//! | [`request`] | requests and their answers, lines of JSON |
//! | [`look`] | what is seen of a lab at one moment |
//! | [`slow`] | a process that is stopped again and again |
//! | [`visit`] | a program at a node, started from outside |

pub mod first;
pub mod look;
pub mod owner;
pub mod place;
pub mod plan;
pub mod request;
pub mod server;
pub mod slow;
pub mod visit;

pub use look::{BrickState, Look};
pub use place::Place;
pub use plan::LabPlan;
pub use request::{Request, ask};
