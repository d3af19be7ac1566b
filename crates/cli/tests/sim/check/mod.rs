//! What must hold, whatever happens. Each file watches one kind of promise; `docs/RELIABILITY.md` lists them all.

pub(crate) mod content;
pub(crate) mod history;
pub(crate) mod liveness;
pub(crate) mod names;
pub(crate) mod parity;
pub(crate) mod space;
pub(crate) mod verify;
