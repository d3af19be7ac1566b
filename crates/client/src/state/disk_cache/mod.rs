//! The cache on a local disk: what its file looks like, and which cell has what. Without I/O.

pub(crate) mod format;
pub(crate) mod index;
pub(crate) mod key;
