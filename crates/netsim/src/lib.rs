//! Two networks in virtual time. One has switches whose ports keep few bytes, and clients that read records striped over many
//! bricks: packet by packet, below. The other, [`torus`], has no switches, and hundreds of nodes that forward for each other:
//! slice by slice. What decides is different: there lost packets, here links. So they share clock, queue and chance only.
//!
//! The receive window is the product's own code ([`pace`]); TCP, the ports and the hosts are modelled. So what the
//! window does can be seen with ports and rates that no lab has. docs/network-model.md has what it predicts, and how it
//! was checked.
//!
//! ```text
//!  client                                                             brick
//!    tasks --> threads --> frames --------- packets ---------------->   reads a unit, one after the other
//!                |                                                         |
//!             window  <--- frames <-- acknowledges <-- ports <-- window <- frames, with credit or announced
//!            (pace)        whole       (tcp)         drop what    (tcp)
//!                                                   does not fit
//! ```
//!
//! | file | what |
//! |---|---|
//! | `setup.rs` | what is modelled, and what is refused |
//! | `topology.rs` | hosts, switches, cables and ways, as data |
//! | `simulation.rs` | the events, one after the other |
//! | `port.rs`, `packet.rs` | an output port and its buffer; what it carries |
//! | `tcp/` | the connections' congestion control |
//! | `connection.rs`, `brick.rs`, `client.rs` | frames, announcements, grants: the glue around the window |
//! | `report.rs` | what was seen |
//! | `torus/` | the other model |
//!
//! There is no clock, no I/O, and no chance but that of a seed: the same setup gives the same report.

#![forbid(unsafe_code)]

mod brick;
mod client;
mod connection;
mod event;
mod packet;
mod port;
mod random;
mod report;
mod setup;
mod simulation;
mod tcp;
mod time;
mod topology;
pub mod torus;

pub use pace::WindowSetting;
pub use report::{Report, Spread};
pub use setup::{Delays, Refused, Setup, Shape};
pub use simulation::Simulation;
pub use time::Rate;
