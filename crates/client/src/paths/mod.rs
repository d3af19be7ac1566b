//! The paths of bytes, sizes and attributes between the mount and the servers.

pub(crate) mod attrs;
pub(crate) mod find;
pub(crate) mod find_bytes;
mod io;
pub(crate) mod pause;
pub(crate) mod read;
mod read_degraded;
mod read_unit;
mod retract;
pub(crate) mod size_reports;
pub(crate) mod stable;
mod stage;
pub(crate) mod write;

pub(crate) use io::Io;
