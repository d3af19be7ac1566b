//! The papers' experiments, with loads on real links between network namespaces of one machine.
//!
//! Shoal does not need this room to run. The lab starts Shoal's programs by their command lines, as a user would.
//!
//! | module | what |
//! |---|---|
//! | [`sandbox`] | namespaces that the kernel removes when their owner ends, for any reason |
//! | [`topology`] | nodes on a switch: the commands that make them, as plain text |
//! | [`network`] | carries out these commands, and counts the bytes on each link |
//! | [`node`] | programs and connections on a node |
//! | [`load`] | Bonnie's four items, on files, on disks over NBD and on files over NFS |
//! | [`cluster`] | Shoal's daemons on the nodes |
//! | [`meter`] | measures how busy the machine was |
//! | [`paper001`] | paper 001: a single I/O space of network block devices, software RAID and NFS |
//! | [`chart`] | charts as plain SVG |

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
