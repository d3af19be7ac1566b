//! A volume through NFS version 3 (RFC 1813).
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
//! | `server.rs` | starts and ends a gate |
//! | `allow.rs` | which clients are allowed |
//! | `connection.rs`, `credits.rs` | one client, and limits of what may be in progress |
//! | `dispatch.rs` | from a record to its answer |
//! | `reply_cache.rs` | the duplicate request cache |
//! | `gate.rs`, `procedures/` | the procedures |
//! | `handle.rs` | file handles |
//! | `access.rs` | permissions |
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
