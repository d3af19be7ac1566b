//! A block volume, or one file, as a network block device.
//!
//! ```text
//! NBD client --TCP or Unix socket--> connection: handshake, then requests as they come   (connection.rs, proto/)
//!                                       |  each a task, within the connection's credits     (credits.rs)
//!                                       v
//!                                    export: the one open handle that all connections share  (export.rs)
//!                                       |  read, write, zero, fsync of the client
//! ```
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | beginning and end of a gate, its connections |
//! | `shared.rs` | the state of a gate, and of one of its threads |
//! | `gate.rs` | a gate in a process of its own |
//! | `connection.rs` | one client |
//! | `export.rs` | what is exported |
//! | `credits.rs` | how much one client may have under way |
//! | `proto/` | the protocol as bytes, without I/O |

mod connection;
mod credits;
mod export;
mod gate;
mod proto;
mod server;
mod shared;

pub use gate::NbdGate;
pub use server::{Listen, NbdError, NbdOptions};
pub use shared::Server;
