//! The progress of zeroing what a truncation has left of a file.

use crate::error::ClientError;

/// The state of zeroing a file.
#[derive(Default)]
pub(crate) struct Zeroing {
    /// This mount is zeroing the file. Meanwhile it adopts no mode that lets other clients in, and reports no close.
    pub(crate) runs: bool,
    /// The number of the service's permission, if the mount needs one and has it.
    pub(crate) number: Option<u64>,
    /// `number` was reported to the service after a restart.
    pub(crate) reclaimed: bool,
    /// Steps done.
    pub(crate) steps: u64,
    /// How often zeroing failed, and the last error.
    pub(crate) failures: u64,
    pub(crate) error: Option<ClientError>,
}
