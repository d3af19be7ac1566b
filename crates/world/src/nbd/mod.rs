//! The parts of the NBD protocol that server and client share: numbers and headers. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `consts.rs` | the protocol's numbers |
//! | `headers.rs` | options, their answers, requests, simple replies: written and read |
//!
//! Source: `doc/proto.md` of the NBD project, fixed newstyle. Numbers are big-endian.

pub mod consts;
mod headers;

pub use headers::{
    Input, OPTION_LEN, OPTION_REPLY_LEN, OptionHeader, OptionReplyHeader, REPLY_LEN, REQUEST_LEN, Request,
    SimpleReply, option, option_reply,
};
