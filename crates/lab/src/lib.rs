//! Clusters on real links between network namespaces of one machine: the papers' experiments, with loads, and labs for people.
//!
//! Shoal does not need this room to run. The lab starts Shoal's programs by their command lines, as a user would.
//!
//! | module | what |
//! |---|---|
//! | [`sandbox`] | namespaces that the kernel removes when their owner ends, for any reason |
//! | [`iproute`] | runs iproute2, one command or many at once, and reads the counters of its token buckets |
//! | [`star`] | nodes on a switch or a router: the commands that make them, as plain text |
//! | [`network`] | carries out these commands, and counts the bytes on each link |
//! | [`shared_buffer`] | a router's ports with one memory for all of them |
//! | [`fabric`] | the same for a network of any shape, whose cables can be cut and mended |
//! | [`node`] | programs and connections on a node |
//! | [`load`] | Bonnie's four items, on files, on disks over NBD and on files over NFS; several readers, or tasks with records, for a fixed time |
//! | [`cluster`] | Shoal's daemons on the nodes |
//! | [`live`] | a cluster on a fabric that lives on in the background, for people |
//! | [`gluster`] | GlusterFS on the nodes, to compare |
//! | [`meter`] | measures how busy the machine was |
//! | [`paper`] | the papers whose experiments can be repeated |
//! | [`paper000`] | paper 000: the translators of GlusterFS on SSDs |
//! | [`paper001`] | paper 001: a single I/O space of network block devices, software RAID and NFS |
//! | [`paper002`] | paper 002: a torus of nodes with coded data, and GlusterFS on a tree |
//! | [`paper003`] | paper 003: an I/O scheduler that knows the buffer of an SSD, in the model and on a loop device |
//! | [`paper004`] | paper 004: reads from many servers behind a switch with few buffers |
//! | [`mechanism`] | what a paper's system is made of, and what Shoal has instead |
//! | [`document`] | what the documents and pages of papers share |
//! | [`verdict`] | what became of the findings of a paper |
//! | [`chart`] | charts as plain SVG |

#![deny(unsafe_code)]

pub mod chart;
pub mod cluster;
pub mod document;
mod error;
pub mod fabric;
pub mod gluster;
pub mod iproute;
pub mod live;
pub mod load;
pub mod mechanism;
pub mod meter;
pub mod network;
pub mod node;
pub mod paper;
pub mod paper000;
pub mod paper001;
pub mod paper002;
pub mod paper003;
pub mod paper004;
pub mod sandbox;
pub mod shared_buffer;
pub mod star;
pub mod verdict;

pub use error::{LabError, Result, doing, refused};
