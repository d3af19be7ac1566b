//! Paper 004: "Data network performance of the global file system at PLSI" (Woo, Jang, Hong; KISTI): servers with 10
//! Gbit/s answer clients with 1 Gbit/s through a switch with a buffer of 3 MB, and reads fall to a fifth of the wire and a
//! quarter of the writes. Another switch, with 768 MB, makes them four times as fast. Here Shoal's receive window is the
//! other cure.
//!
//! | module | what |
//! |---|---|
//! | [`scale`] | how large everything is, here and in the paper |
//! | [`runs`] | one measurement, and all of them as JSON |
//! | [`experiments`] | what is measured, in which order |
//! | [`claims`] | the paper's findings and the results here |
//! | [`mechanisms`] | what the paper's system is made of, and what Shoal has instead |
//! | [`report`] | the page and its pictures |

pub mod claims;
pub mod experiments;
pub mod mechanisms;
pub mod report;
pub mod runs;
pub mod scale;
#[cfg(test)]
mod tests;

pub use experiments::measure;
pub use report::files;
pub use runs::Measured;
pub use scale::Scale;
