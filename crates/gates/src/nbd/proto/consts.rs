//! Limits and names of this gate. The protocol's own numbers are in [`world::nbd`].

pub(crate) use world::nbd::consts::*;

/// Largest data of an option, in bytes; a larger one ends the connection.
pub(super) const OPTION_MAX: u32 = 16 << 10;
/// Most options of one negotiation.
pub(super) const OPTIONS_MAX: u32 = 64;
/// The preferred size and alignment of requests: a block, the grain of checksums.
pub(super) const REQUEST_PREFERRED: u32 = types::limits::BLOCK as u32;

/// The only metadata context.
pub(super) const CONTEXT_NAME: &str = "base:allocation";
/// Its number, once it is chosen.
pub(super) const CONTEXT_ID: u32 = 1;
