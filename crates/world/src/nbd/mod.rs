//! The NBD protocol, as far as a server and a client have it in common: numbers and headers. No I/O.
//!
//! | file | what |
//! |---|---|
//! | `words.rs` | the protocol's numbers |
//! | `headers.rs` | options, their answers, requests, simple replies: written and read |
//!
//! Source: `doc/proto.md` of the NBD project, fixed newstyle. Numbers are big-endian.

mod headers;
pub mod words;

pub use headers::{
    ANSWER_LEN, AnswerHeader, Input, OPTION_LEN, OptionHeader, REPLY_LEN, REQUEST_LEN, Request, SimpleReply,
    answer, option,
};
