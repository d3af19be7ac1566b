//! Paper 003: "Linux I/O scheduler by the size of the SSD's buffer" (Lee, Ju, Jeon; Chungbuk National University, 2014): requests
//! whose sizes are nearest a dispatch priority, the size of the device's buffer, go first (SLQ).
//!
//! | module | what |
//! |---|---|
//! | [`scale`] | how large everything is, here and in the paper |
//! | [`model`] | what `shoal sim sched` says about table 3 and figures 17 and 18, and the account of cells |
//! | [`workloads`] | the six workloads as jobs of fio |
//! | [`fio`] | runs fio, and reads what it says |
//! | [`device`] | loop devices without a page cache of their own, and a file system on one |
//! | [`ready`] | what must be there, checked before anything is made |
//! | [`systems`] | the schedulers of the kernel and the policies of a direct brick |
//! | [`runs`] | one measurement, and all of them as JSON |
//! | [`experiments`] | what is measured, in which order |
//! | [`claims`] | the paper's findings and the results here |
//! | [`mechanisms`] | what the paper's system is made of, and what Shoal has instead |
//! | [`wanted`] | what was wanted of Shoal, and whether it is so |
//! | [`report`] | the page |
//! | [`pictures`] | its pictures |

pub mod claims;
pub mod device;
pub mod experiments;
pub mod fio;
mod loop_control;
pub mod mechanisms;
pub mod model;
pub mod pictures;
pub mod ready;
pub mod report;
pub mod runs;
pub mod scale;
pub mod systems;
#[cfg(test)]
mod tests;
pub mod wanted;
pub mod workloads;

pub use experiments::measure;
pub use report::files;
pub use runs::Measured;
pub use scale::Scale;
