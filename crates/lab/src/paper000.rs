//! Paper 000: "Performance Optimization in GlusterFS on SSDs" (Kim, Eom, Yeom; Seoul National University, 2016): the
//! translators that suit large sequential reads cost small random reads most of the network, so they are removed.
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
