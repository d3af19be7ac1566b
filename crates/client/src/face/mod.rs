//! The interface for gates: a mount, and the session of one thread with it.

pub(crate) mod allocate;
pub(crate) mod background;
pub(crate) mod holes;
pub(crate) mod mount;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod session;
pub(crate) mod write;
