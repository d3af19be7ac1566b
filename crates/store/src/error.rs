//! What can go wrong with a brick.

use cache::CacheError;
use types::{BrickId, ClusterId, Refusal};

/// A brick that cannot be formatted, opened or served.
#[derive(Debug, thiserror::Error)]
pub enum BrickError {
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(#[from] std::io::Error),
    /// The brick is a file, and its file system is full. Or the device is thin, and has no room.
    #[error("no space is left for the brick: {0}")]
    NoSpace(#[source] std::io::Error),
    /// It could not listen.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        error: std::io::Error,
    },
    /// The disk is shorter than the brick on it.
    #[error("the brick has {size} bytes, and the disk only {len}: it was cut short, or it is another disk")]
    CutShort {
        /// Bytes of the brick.
        size: u64,
        /// Bytes of the disk.
        len: u64,
    },
    /// The superblock has a right checksum and contradicts itself.
    #[error("the superblock contradicts itself ({0}): the brick counts as lost, replace it")]
    Layout(&'static str),
    /// Smaller than the smallest brick.
    #[error("{size} bytes are too few for a brick: at least {min} are needed")]
    TooSmall {
        /// Bytes of the disk.
        size: u64,
        /// Bytes needed.
        min: u64,
    },
    /// No superblock.
    #[error("not a Shoal brick (format it first)")]
    NotABrick,
    /// Both copies of the superblock are damaged.
    #[error("both copies of the superblock are damaged: the brick counts as lost, replace it")]
    SuperblockDamaged,
    /// Already a brick.
    #[error("already a brick ({brick} of cluster {cluster}); formatting would destroy it")]
    AlreadyABrick {
        /// The brick that it is.
        brick: BrickId,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// Written by a newer Shoal.
    #[error("written in format {found}, this build knows formats up to {known}: use a newer Shoal")]
    NewerFormat {
        /// The brick's format.
        found: u32,
        /// The newest one known here.
        known: u32,
    },
    /// Written by an older Shoal.
    #[error("written in format {found}, this build knows format {known} only: use the Shoal that wrote it")]
    OlderFormat {
        /// The brick's format.
        found: u32,
        /// The format known here.
        known: u32,
    },
    /// The brick of another cluster.
    #[error("the brick belongs to cluster {found}, not to {wanted}")]
    OtherCluster {
        /// The brick's cluster.
        found: ClusterId,
        /// The cluster that it should serve.
        wanted: ClusterId,
    },
    /// Not the brick that was named.
    #[error("the disk holds brick {found}, not {wanted}")]
    OtherBrick {
        /// The brick on the disk.
        found: BrickId,
        /// The brick that was named.
        wanted: BrickId,
    },
    /// The machine gives no thread.
    #[error("a thread for connections cannot start: {0}")]
    Threads(#[source] std::io::Error),
    /// The journal contradicts itself.
    #[error("the journal is damaged: {0}")]
    JournalDamaged(&'static str),
    /// Its cache was set up wrongly.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The metadata service refused the brick.
    #[error("the metadata service refused the brick: {0}")]
    Refused(Refusal),
    /// The metadata service was not reached, or not the right one.
    #[error("metadata service at {address}: {reason}")]
    Meta {
        /// Where it should be.
        address: String,
        /// What came back.
        reason: String,
    },
}
