//! Paper 001: "Implementation and Performance Analysis of Single I/O Space Service for Cluster Computers" (Kim, Kim,
//! Kim; Yonsei University, 2006): one server imports the disks of 16 PCs as network block devices, joins them by
//! software RAID-5, and exports the result to all by NFS.
//!
//! | module | what |
//! |---|---|
//! | [`scale`] | how large everything is, here and in the paper |
//! | [`service`] | the access paths: a local disk, the file gate, the block gate, the centralised arrangement |
//! | [`runs`] | one measurement, and all of them as JSON |
//! | [`experiments`] | what is measured, in which order |
//! | [`small_write`] | what a small overwrite costs, counted |
//! | [`claims`] | the paper's findings and the results here |
//! | [`mechanisms`] | what the paper's system is made of, and what Shoal has instead |
//! | [`report`] | the page and its pictures |

pub mod claims;
pub mod experiments;
pub mod mechanisms;
pub mod report;
pub mod runs;
pub mod scale;
pub mod service;
pub mod small_write;
#[cfg(test)]
mod tests;

pub use experiments::measure;
pub use report::files;
pub use runs::Measured;
pub use scale::Scale;
