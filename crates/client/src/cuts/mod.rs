//! Truncates files, and zeroes what a truncation has left on the bricks before the file grows again.

pub(crate) mod truncate;
pub(crate) mod zeroing;

pub(crate) use zeroing::Cuts;
