//! The NBD protocol as bytes: what a client says, checked, and what it is answered. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `consts.rs` | what is bounded and named here |
//! | `negotiation.rs` | the handshake and its options, until the client has an export |
//! | `request.rs` | requests, compared with what the export allows |
//! | `reply.rs` | replies, simple and structured |
//!
//! Numbers and headers of the protocol stand in [`world::nbd`], which a client has in common with this gate.

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
