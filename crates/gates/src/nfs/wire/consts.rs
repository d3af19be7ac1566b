//! Numbers of the programs and their versions, and the largest read or write.

/// Programs. Source: RFC 1813, 1833.
pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;
pub(crate) const PORTMAP: u32 = 100_000;
/// The version of NFS and of MOUNT.
pub(crate) const NFS_VERSION: u32 = 3;
pub(crate) const PORTMAP_VERSION: u32 = 2;

/// Largest read or write, in bytes.
pub(crate) const IO_MAX: u32 = 1 << 20;
