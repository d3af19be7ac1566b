//! The metadata service: the arbiter (cluster map, epochs, leases, ids, volumes, modes) and the name space.
//!
//! ```text
//!          requests                             reads: committed state and volatile state beside it
//! client ----------> service --- Change ---> queue -> batch -> one durable commit -> answers
//! brick              (waits for modes,            (state.rs: each change in a Txn of its own)
//!                     leases, news)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `kv/` | the transactional store of ordered keys, over redb or memory |
//! | `keys.rs`, `records.rs` | the key table, and the values |
//! | `ops/`, `tree.rs` | one file per operation of the name space, and what they share |
//! | `volatile.rs`, `opens.rs`, `truncations.rs` | unstable sizes; who has what open, in what mode; cuts of shared files |
//! | `state.rs`, `sessions.rs`, `clients.rs`, `volumes.rs` | batches; dedupe and leases of clients; volumes |
//! | `cluster/` | the arbiter: bricks, groups, the map |
//! | `service/` | requests, the committing task, expiry, the purger |
//!
//! Everything but `service/` is free of I/O other than the engine's, of clocks and of waiting.

#![forbid(unsafe_code)]

mod clients;
mod cluster;
mod error;
#[cfg(test)]
mod fixture;
mod keys;
pub mod kv;
pub mod measure;
mod opens;
mod ops;
mod records;
mod service;
mod sessions;
mod state;
mod tree;
mod truncations;
mod volatile;
mod volumes;

pub use error::MetaError;
pub use kv::Engine;
pub use service::{MetaOptions, Service};
pub use state::{cluster_of, create_cluster};

/// Memory budget of the service unless it is told another, in bytes.
pub const MEMORY_BUDGET_DEFAULT: u64 = 256 << 20;
