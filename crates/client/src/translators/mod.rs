//! Between callers and `paths/`, for speed: gathers writes and accesses, to send them later in fewer messages. Each
//! translator has a small interface and imports nothing from the others.

pub(crate) mod atimes;
pub(crate) mod write_behind;
