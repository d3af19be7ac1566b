//! What this gate bounds and names. The protocol's own numbers stand in [`world::nbd`].

pub(crate) use world::nbd::consts::*;

/// Largest data of an option that is looked at, in bytes; a larger one ends the connection.
pub(super) const OPTION_MAX: u32 = 16 << 10;
/// Options of one negotiation.
pub(super) const OPTIONS_MAX: u32 = 64;
/// Requests of this size and alignment cost least: the grain of checksums.
pub(super) const REQUEST_PREFERRED: u32 = types::limits::BLOCK as u32;

/// The only metadata context.
pub(super) const CONTEXT_NAME: &str = "base:allocation";
/// Its number, once it is chosen.
pub(super) const CONTEXT_ID: u32 = 1;
