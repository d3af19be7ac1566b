//! Real links between network namespaces of one machine, loads, and the papers' experiments on them.
//!
//! Nothing here is needed to run Shoal: its programs are started as anybody starts them, by their command lines.
//!
//! | module | what |
//! |---|---|
//! | [`sandbox`] | namespaces that the kernel clears away, however their owner ends |
//! | [`topology`] | nodes on a switch, as the commands that make them: plain text |
//! | [`network`] | those commands carried out; bytes that went over each link |
//! | [`node`] | programs and connections at a node |
//! | [`load`] | Bonnie's four items, on files, disks over NBD and files over NFS |
//! | [`cluster`] | Shoal's own daemons on the nodes |
//! | [`meter`] | how busy the machine was |
//! | [`paper001`] | single I/O space of network block devices, software RAID and NFS |
//! | [`chart`] | plain SVG |

#![forbid(unsafe_code)]

pub mod chart;
pub mod cluster;
mod error;
pub mod load;
pub mod meter;
pub mod network;
pub mod node;
pub mod paper001;
pub mod sandbox;
pub mod topology;

pub use error::{LabError, Result, doing};
