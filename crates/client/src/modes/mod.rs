//! What other clients allow this one to do: modes that are recalled, reads and writes that stop for a cut, and what is
//! lost with the lease.

mod holdings;
pub(crate) mod inflight_opens;
pub(crate) mod lease;
pub(crate) mod quiesce;
mod shared;

pub(crate) use holdings::Holdings;
pub(crate) use shared::{ModeState, Modes};
pub use shared::{RecallHook, Recalled};
