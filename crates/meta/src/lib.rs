//! The metadata service: the arbiter and the name space.
//!
//! The arbiter decides about the cluster map, epochs, leases, ids, volumes, and the modes of open files.
//!
//! ```text
//!          requests                             reads: committed state and volatile state
//! client ----------> service --- Change ---> queue -> batch -> one durable commit -> answers
//! brick              (waits for modes,            (state.rs: each change in a Txn of its own)
//!                     leases, news)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `kv/` | a transactional store of ordered keys, over redb or in memory |
//! | `keys.rs`, `records.rs` | the keys, and the values behind them |
//! | `ops/`, `tree.rs` | one file for each operation on names, and what the operations share |
//! | `volatile.rs`, `opens.rs`, `truncations.rs` | state in memory only: unstable sizes, open files and their modes, truncations |
//! | `noting.rs` | which clients leave sizes with the bricks |
//! | `state.rs` | the service's whole state, and the batches that change it |
//! | `loading.rs` | what the service reads when it begins |
//! | `sessions.rs`, `clients.rs` | the leases of clients, and the answers that they may ask for again |
//! | `volumes.rs` | makes, grows and deletes volumes |
//! | `cluster/`, `cluster_id.rs` | the arbiter: bricks, groups, the map; the id of a new store |
//! | `check/` | compares a store's names with each other, and says how to repair them |
//! | `restore.rs` | makes a store out of a backup, or of what a lost server has left |
//! | `volume_inode.rs` | an inode's name in the whole cluster |
//! | `replicas/` | several servers with the same store, of which one leads |
//! | `service/` | requests, and the tasks in the background: commits, expired leases, fences, purges |
//!
//! Outside `service/` nothing reads a clock or waits, and the engine of the store is the only I/O.

#![forbid(unsafe_code)]

pub mod check;
mod clients;
mod cluster;
mod cluster_id;
mod error;
#[cfg(test)]
mod fixture;
mod keys;
pub mod kv;
mod loading;
pub mod measure;
mod noting;
mod opens;
mod ops;
mod records;
mod replicas;
pub mod restore;
mod service;
mod sessions;
mod state;
mod tree;
mod truncations;
mod volatile;
mod volume_inode;
mod volumes;

pub use cluster_id::{cluster_of, create_cluster, create_shard, shard_of};
pub use error::MetaError;
pub use kv::Engine;
pub use replicas::{Server, ServerOptions};
pub use service::{Ended, MetaOptions, Service};

/// The ids of a volume's inodes and objects are counted one by one, and stay below this: a larger one is damage.
fn ids_end(volume: types::VolumeId) -> u64 {
    volume.shard().numbers().end
}

/// So are cookies.
const COOKIES_END: u64 = 1 << 62;

/// Default memory budget of the service, in bytes.
pub const MEMORY_BUDGET_DEFAULT: u64 = 256 << 20;
