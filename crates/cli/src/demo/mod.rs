//! The story of `shoal demo`, told by real processes, real mounts and real files.
//!
//! | file | what |
//! |---|---|
//! | `phases.rs` | the phases, in order |
//! | `cluster.rs` | the cluster on its stage: directory, processes, mounts; and clearing the stage, whatever happens |
//! | `files.rs` | which files; copying them in; comparing them |
//! | `victims.rs` | which bricks are killed |
//! | `report.rs` | what came of it, in words and as JSON |

mod cluster;
mod files;
mod phases;
mod report;
mod victims;

pub(crate) use phases::{DemoOptions, run_demo};
