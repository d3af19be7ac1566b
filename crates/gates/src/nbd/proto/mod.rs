//! The NBD protocol as bytes: parses and checks a client's messages, and encodes the answers. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `consts.rs` | limits and names of this gate |
//! | `negotiation.rs` | the handshake and its options |
//! | `request.rs` | requests, compared with what the export allows |
//! | `reply.rs` | replies, simple and structured |
//!
//! Numbers and headers of the protocol are in [`world::nbd`], which remote bricks use too.

mod consts;
mod negotiation;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub(super) use consts::{CODE_IO, CODE_SHUTDOWN};
pub(super) use negotiation::{
    Agreed, CLIENT_FLAGS_LEN, ExportInfo, GREETING, Negotiation, Step, option_header,
};
pub(super) use reply::{Replies, Reply};
pub(super) use request::{Command, Job, TransmissionParams};
