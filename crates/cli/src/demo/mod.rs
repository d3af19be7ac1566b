//! `shoal demo`, with real processes, real mounts and real files.
//!
//! | file | what |
//! |---|---|
//! | `phases.rs` | the phases, in order |
//! | `cluster.rs` | directory, cluster and mounts of the demo, and their removal |
//! | `files.rs` | selects, copies and compares files |
//! | `victims.rs` | which bricks are killed |
//! | `report.rs` | the result, as text and as JSON |

mod cluster;
mod files;
mod phases;
mod report;
mod victims;

pub(crate) use phases::{DemoOptions, run_demo};
