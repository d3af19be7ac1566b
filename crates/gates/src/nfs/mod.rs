//! A volume by NFS version 3 (RFC 1813), for whoever has a client of it.
//!
//! ```text
//! NFS client --TCP--> one of n threads, each with its own ring, connections and client session   (server.rs)
//!                        |  records; each request a task, within bounds     (connection.rs, credits.rs)
//!                        |  programs and procedures                         (dispatch.rs, wire/)
//!                        v
//!                     procedures: permissions, then the client's own calls  (procedures/, access.rs)
//!                        |  reads and writes: files that are kept open      (files.rs)
//!                        |  what was lost: another verifier                 (verifier.rs)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | beginning and end of a gate |
//! | `allow.rs` | which clients are let in |
//! | `connection.rs`, `credits.rs` | one client, and how much may be under way |
//! | `dispatch.rs` | from a record to its answer |
//! | `reply_cache.rs` | answers that may be asked for again |
//! | `gate.rs`, `procedures/` | what is done |
//! | `handle.rs` | file handles |
//! | `access.rs` | who may do what |
//! | `files.rs`, `verifier.rs` | open files, and how a client learns of a loss |
//! | `mountd.rs`, `portmap.rs` | the two programs beside NFS |
//! | `wire/` | the protocols as bytes, without I/O |

mod access;
mod allow;
mod connection;
mod credits;
mod dispatch;
mod files;
mod gate;
mod handle;
mod mountd;
mod portmap;
mod procedures;
mod reply_cache;
mod server;
mod verifier;
mod wire;

pub use allow::Network;
pub use server::{NfsError, NfsGate, NfsOptions};
