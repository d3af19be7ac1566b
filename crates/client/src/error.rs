//! Errors of this room.

use cache::CacheError;
use types::messages::cluster::{ClusterMap, ClusterReport, MountInfo};
use types::{ClusterId, Refusal};
use world::CallError;

/// Why a file operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// A server refused, finally.
    #[error("{0}")]
    Refused(Refusal),
    /// No server answered within the retry budget. A change may or may not have been carried out.
    #[error("no server answers")]
    Unreachable,
    /// The servers hold a different cluster key.
    #[error("the servers have a different cluster key")]
    WrongKey,
    /// The servers belong to another cluster.
    #[error("the servers belong to another cluster")]
    WrongCluster,
    /// A server speaks none of the wire versions that this program speaks.
    #[error("{}", CallError::OtherVersion { theirs: *theirs })]
    OtherVersion {
        /// The version of the server that is nearest to ours.
        theirs: u16,
    },
    /// A server's answer is not valid.
    #[error("a server's answer is not valid: check that all parts of the cluster run compatible versions")]
    BadReply,
    /// The handle is not open, or not open for this operation.
    #[error("the handle is not open for this operation")]
    BadHandle,
    /// The mount has ended.
    #[error("the mount has ended")]
    Unmounted,
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> ClientError {
        match error {
            CallError::Refused(refusal) => ClientError::Refused(refusal),
            CallError::Unreachable => ClientError::Unreachable,
            CallError::WrongKey => ClientError::WrongKey,
            CallError::WrongCluster { .. } => ClientError::WrongCluster,
            CallError::OtherVersion { theirs } => ClientError::OtherVersion { theirs },
            CallError::BadReply => ClientError::BadReply,
        }
    }
}

/// Why a volume cannot be mounted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MountError {
    /// No such volume.
    #[error("there is no volume `{0}` in this cluster")]
    UnknownVolume(String),
    /// The metadata service does not answer.
    #[error("the metadata service at {0} does not answer")]
    Unreachable(String),
    /// The metadata service has another key.
    #[error("the metadata service at {0} has a different cluster key")]
    WrongKey(String),
    /// The metadata service belongs to another cluster.
    #[error("the metadata service at {address} belongs to cluster {theirs}")]
    WrongCluster {
        /// Where it listens.
        address: String,
        /// Its cluster.
        theirs: ClusterId,
    },
    /// The metadata service speaks none of the wire versions that this program speaks.
    #[error("the metadata service at {address}: {}", CallError::OtherVersion { theirs: *theirs })]
    OtherVersion {
        /// Where it listens.
        address: String,
        /// Its version that is nearest to ours.
        theirs: u16,
    },
    /// The volume has an exclusive mount; or it has mounts, and this one would be exclusive.
    #[error("volume `{volume}` is mounted {}", places(holders))]
    AlreadyMounted {
        /// The volume.
        volume: String,
        /// Its mounts; none if the last one has just left.
        holders: Vec<MountInfo>,
    },
    /// The metadata service refused.
    #[error("the metadata service at {address} refuses: {refusal}")]
    Refused {
        /// Where it listens.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// Its cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The metadata service's answer is not valid.
    #[error("the answer of the metadata service at {0} is not valid: check the address and the versions")]
    BadReply(String),
}

/// `exclusively at host:/mnt (client 7), for 12 s`, for each mount.
fn places(holders: &[MountInfo]) -> String {
    if holders.is_empty() {
        return "elsewhere".to_owned();
    }
    let place = |mount: &MountInfo| {
        let how = if mount.exclusive { "exclusively at" } else { "at" };
        let place = if mount.place.is_empty() { "an unknown place" } else { &mount.place };
        let mut text = format!("{how} {place} (client {}), for {} s", mount.client, mount.age / 1_000_000);
        if mount.silent > SILENT_US {
            text += &format!(", silent for {:.1} s", mount.silent as f64 / 1e6);
        }
        text
    };
    holders.iter().map(place).collect::<Vec<_>>().join("; ")
}

/// A mount that was last heard this long ago may be dead, in microseconds.
const SILENT_US: u64 = 2 * types::limits::HEARTBEAT_US;

impl MountError {
    /// The error for a volume that other mounts use.
    pub(crate) fn already_mounted(volume: &str, map: &ClusterMap, report: ClusterReport) -> MountError {
        let id = map.volume_named(volume).map(|known| known.id);
        let holders = report.mounts.into_iter().filter(|mount| Some(mount.volume) == id).collect();
        MountError::AlreadyMounted { volume: volume.to_owned(), holders }
    }

    pub(crate) fn of(error: CallError, address: &str, volume: &str) -> MountError {
        let address = address.to_owned();
        match error {
            CallError::Refused(Refusal::Unknown | Refusal::NotFound) => {
                MountError::UnknownVolume(volume.to_owned())
            }
            CallError::Refused(refusal) => MountError::Refused { address, refusal },
            CallError::Unreachable => MountError::Unreachable(address),
            CallError::WrongKey => MountError::WrongKey(address),
            CallError::WrongCluster { theirs } => MountError::WrongCluster { address, theirs },
            CallError::OtherVersion { theirs } => MountError::OtherVersion { address, theirs },
            CallError::BadReply => MountError::BadReply(address),
        }
    }
}
