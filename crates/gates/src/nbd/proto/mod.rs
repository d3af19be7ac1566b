//! The NBD protocol as bytes: what a client says, checked, and what it is answered. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `words.rs` | the protocol's numbers |
//! | `haggle.rs` | the handshake and its options, until the client has an export |
//! | `request.rs` | requests: read, and compared with what the export allows |
//! | `reply.rs` | replies, simple and structured |
//!
//! Source: `doc/proto.md` of the NBD project, fixed newstyle. Numbers are big-endian.

mod haggle;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod words;

pub(super) use haggle::{Agreed, ENTRY_LEN, GREETING, Haggle, OPTION_LEN, Offer, Step, option_header};
pub(super) use reply::{Replies, Reply};
pub(super) use request::{Command, Job, REQUEST_LEN, Request, Terms};
pub(super) use words::{CODE_IO, CODE_SHUTDOWN};
