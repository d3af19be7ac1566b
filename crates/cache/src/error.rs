//! Why a cache cannot be used.

use types::ClusterId;

/// A cache that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CacheError {
    /// Another process has it.
    #[error("the cache {0} is in use by another process")]
    InUse(String),
    /// It cannot be opened.
    #[error("the cache cannot be opened: {0}")]
    Open(String),
    /// It belongs to another cluster.
    #[error("the cache {path} belongs to cluster {theirs}")]
    OtherCluster {
        /// The file.
        path: String,
        /// Its cluster.
        theirs: ClusterId,
    },
    /// It is something else.
    #[error("{0} is not a cache of Shoal")]
    Foreign(String),
    /// It is too small.
    #[error("the cache {0} is too small for a single chunk")]
    TooSmall(String),
    /// It would take too much of the process's memory.
    #[error(
        "the index of a cache of this size takes {} MiB of the process's memory, and there is room for {}",
        needed.div_ceil(1 << 20), room >> 20
    )]
    Memory {
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that it may take.
        room: u64,
    },
    /// The disk fails.
    #[error("the cache cannot be used: {0}")]
    Disk(String),
}
