//! An SSD in virtual time, and programs that use it: what the order of requests does.
//!
//! The scheduler is the product's own code ([`pace::device`]); the device, the page cache and the programs are modelled. So
//! a policy can be compared with others, and with what a paper has measured, without its device and within seconds.
//! docs/scheduler-model.md has what it predicts, and how it was fitted.
//!
//! ```text
//!  program ---- reads, direct I/O, fsync ----.
//!     |                                      v
//!     '-- writes --> page cache --> write-back --> scheduler (pace) --> SSD: link, buffer, channels
//!                                  journal ---'
//! ```
//!
//! | file | what |
//! |---|---|
//! | `setup.rs` | what is modelled, and what is refused |
//! | `simulation.rs`, `events.rs` | the events, one after the other |
//! | `device.rs` | the SSD |
//! | `probe.rs` | single reads of it |
//! | `cache.rs` | bytes that programs have written and the device has not |
//! | `workload/` | the programs of the paper |
//! | `trace/` | requests that were recorded elsewhere |
//! | `report.rs` | what was seen |
//! | `table3.rs` | the paper's comparison, repeated |
//!
//! There is no clock, no I/O, and no chance but that of a seed: the same setup gives the same report.

#![forbid(unsafe_code)]

mod cache;
mod device;
mod events;
mod probe;
mod random;
mod report;
mod setup;
mod simulation;
pub mod table3;
mod time;
pub mod trace;
mod workload;

pub use probe::{Probe, probe};
pub use report::{Kind, Latencies, Report};
pub use setup::{Refused, Setup, Ssd};
pub use simulation::Simulation;
pub use workload::WorkloadName;
