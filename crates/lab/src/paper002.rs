//! Paper 002: "Torus network based distributed storage system for massive multimedia contents" (Kim, Kim, Kim, Kim, Seo; ETRI,
//! Kyungpook National University): nodes of a torus, which need no switches, store coded data behind a primary that encodes, not
//! slower than GlusterFS and Ceph on a fat tree.
//!
//! | module | what |
//! |---|---|
//! | [`scale`] | how large everything is, here and in the paper |
//! | [`networks`] | the chain, the torus and the tree |
//! | [`chain`] | latency and rate over hops |
//! | [`sends`] | one message against four |
//! | [`counted`] | bytes on cables, predicted and measured |
//! | [`runs`] | one measurement, and all of them as JSON |
//! | [`experiments`] | what is measured, in which order |
//! | [`claims`] | the paper's findings and the results here |
//! | [`mechanisms`] | what the paper's system is made of, and what Shoal has instead |
//! | [`report`] | the page and its pictures |

pub mod chain;
pub mod claims;
pub mod counted;
pub mod experiments;
pub mod mechanisms;
pub mod networks;
pub mod report;
pub mod runs;
pub mod scale;
pub mod sends;
#[cfg(test)]
mod tests;

pub use experiments::measure;
pub use report::files;
pub use runs::Measured;
pub use scale::Scale;
