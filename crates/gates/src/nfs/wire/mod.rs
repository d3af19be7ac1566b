//! The protocols as bytes, without I/O.
//!
//! | file | what |
//! |---|---|
//! | `xdr.rs` | how values are written |
//! | `rpc.rs` | records, calls and replies |
//! | `arguments.rs` | the arguments of every procedure of NFS |
//! | `results.rs` | what its results are made of |
//! | `status.rs` | what a client hears when something did not work |

mod arguments;
mod results;
mod rpc;
mod status;
mod xdr;

pub(crate) use arguments::{
    Arguments, CreateHow, DirOpArgs, NewAttributes, NotParsed, SetTime, StableHow, is_idempotent, parse,
};
pub(crate) use results::{AttrWriter, Results, device_of_numbers, failure_words};
pub(crate) use rpc::{AcceptStat, Call, Credential, Record, RpcMessage, accept, mark, parse_message};
pub(crate) use status::Status;
pub(crate) use xdr::{Garbage, Reader, Writer, padding};
