//! Why the service does not start.

use crate::kv::{EngineError, JournalError};

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The journal cannot be used.
    #[error("the metadata journal {path} cannot be used: {error}")]
    Journal {
        /// Where it lies.
        path: String,
        /// The cause.
        #[source]
        error: JournalError,
    },
    /// The file with the server's vote cannot be used.
    #[error("the file with the vote of this metadata server, {path}, cannot be used: {error}")]
    Ballot {
        /// Where it lies.
        path: String,
        /// The cause.
        #[source]
        error: std::io::Error,
    },
    /// The store could not be made durable.
    #[error("the metadata store failed")]
    Stopped,
    /// The store was never a copy of another one, so its server cannot join others.
    #[error("the metadata store is that of a cluster with one metadata server")]
    Alone,
    /// A server that is to be joined is of another cluster, or has another key.
    #[error("cannot join {server}: {error}")]
    Join {
        /// Its address.
        server: String,
        /// What it said.
        error: world::CallError,
    },
    /// Others have removed this server.
    #[error("this metadata server is not a member any more")]
    Removed,
    /// The store of this server is older than what it has told the others.
    #[error(
        "this metadata server has less than it has told the others: its directory is that of an earlier time"
    )]
    SetBack,
    /// The cluster was restored since without this server.
    #[error("the cluster was restored since, and this metadata server has the names of before")]
    Overruled,
    /// The others know this server at another address.
    #[error("the other metadata servers know this one as {known}, and it listens at {now}")]
    Moved {
        /// Where they call it.
        known: String,
        /// Where it is.
        now: String,
    },
    /// The store holds values that this build cannot read.
    #[error("the metadata store is damaged")]
    Damaged,
    /// The store was written by a build with other values.
    #[error(
        "the metadata store is of version {found}, this build reads the versions {} to {}",
        crate::records::VERSION_PLAIN,
        crate::records::VERSION
    )]
    Version {
        /// The version of its values.
        found: u8,
    },
    /// The server was new and had not got the whole store yet.
    #[error("the metadata store is only a part of another server's")]
    Incomplete,
    /// There is a cluster already.
    #[error("the metadata store holds a cluster already")]
    Exists,
    /// No cluster has been made in this store.
    #[error("the metadata store holds no cluster")]
    NoCluster,
    /// The key is another cluster's.
    #[error("the metadata store belongs to cluster {found}, not to {expected}")]
    WrongCluster {
        /// The cluster in the store.
        found: types::ClusterId,
        /// The cluster that the service was started for.
        expected: types::ClusterId,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
}
