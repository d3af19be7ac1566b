//! Every message, by the pair that speaks: session (any two), brick, cluster (the arbiter), names (the name space).
//!
//! Numbers are never reused. A new field means a new wire version.

pub mod brick;
pub mod cluster;
pub mod names;
pub mod session;

use crate::records;

records! {
    /// Done; there is nothing more to say.
    1 Done {};
    /// A refusal; the frame's flags say so too.
    2 Refused {
        /// Why.
        reason: crate::Refusal,
    };
}

#[cfg(test)]
mod tests;
