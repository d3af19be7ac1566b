//! The name of an inode within the cluster.

use types::{InodeId, VolumeId};

/// An inode of the cluster: inode numbers are unique only within a volume.
pub(crate) type VolumeInode = (VolumeId, InodeId);
