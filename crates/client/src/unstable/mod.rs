//! The unstable bytes of the mount: the memory they take, which of them are sent next, and which wait for stability.
//! Nothing here sends anything.

pub(crate) mod flow;
mod notes;
mod pieces;

pub(crate) use pieces::Unstable;
