//! What other clients allow this one to do: recalls of modes, reads and writes that are quiesced for a truncation, and
//! what is lost with the lease.

mod holdings;
pub(crate) mod inflight_opens;
pub(crate) mod lease;
pub(crate) mod quiesce;
mod shared;

pub(crate) use holdings::Holdings;
pub(crate) use shared::{ModeState, Modes};
pub use shared::{RecallHook, Recalled};
