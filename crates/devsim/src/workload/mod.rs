//! The programs of the paper: loops of processes that think, read, write and wait. What the paper does not say is assumed,
//! and docs/scheduler-model.md lists it.
//!
//! | file | what |
//! |---|---|
//! | `program.rs` | what all of them have |
//! | `fio.rs` | Fio-A and Fio-B: direct I/O |
//! | `mail.rs` | Postmark |
//! | `blog.rs` | Blogbench |
//! | `file_server.rs` | Dbench |
//! | `compile.rs` | Compilebench, three phases |

mod blog;
mod compile;
mod file_server;
mod fio;
mod mail;
mod program;

pub use program::WorkloadName;
pub(crate) use program::{Program, Step};
