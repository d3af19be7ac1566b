//! Cuts: files get a new size, and what that leaves on the bricks is zeroed before the file grows again.

pub(crate) mod truncate;
pub(crate) mod zeroing;

pub(crate) use zeroing::Cuts;
