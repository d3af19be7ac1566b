//! The NBD protocol as bytes: what a client says, checked, and what it is answered. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `words.rs` | what is bounded and named here |
//! | `haggle.rs` | the handshake and its options, until the client has an export |
//! | `request.rs` | requests, compared with what the export allows |
//! | `reply.rs` | replies, simple and structured |
//!
//! Numbers and headers of the protocol stand in [`world::nbd`], which a client has in common with this gate.

mod haggle;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod words;

pub(super) use haggle::{Agreed, ENTRY_LEN, GREETING, Haggle, Offer, Step, option_header};
pub(super) use reply::{Replies, Reply};
pub(super) use request::{Command, Job, Terms};
pub(super) use words::{CODE_IO, CODE_SHUTDOWN};
