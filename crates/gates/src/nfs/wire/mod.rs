//! The protocols as bytes, without I/O.
//!
//! | file | what |
//! |---|---|
//! | `consts.rs` | programs, versions, the largest read or write |
//! | `xdr.rs` | encoding of values |
//! | `rpc.rs` | records, calls and replies |
//! | `arguments.rs` | the arguments of every procedure of NFS |
//! | `results.rs` | the parts of its results |
//! | `status.rs` | error numbers |

mod arguments;
mod consts;
mod results;
mod rpc;
mod status;
mod xdr;

pub(crate) use arguments::{
    Arguments, CreateHow, DirOpArgs, NewAttributes, NotParsed, SetTime, StableHow, is_idempotent, parse,
};
pub(crate) use consts::{IO_MAX, MOUNT, NFS, NFS_VERSION, PORTMAP, PORTMAP_VERSION};
pub(crate) use results::{AttrWriter, Results, device_of_numbers, failure_words};
pub(crate) use rpc::{AcceptStat, Call, Credential, Record, RpcMessage, accept, mark, parse_message};
pub(crate) use status::Status;
pub(crate) use xdr::{Garbage, Reader, Writer, padding};
