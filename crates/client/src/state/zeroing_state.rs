//! How far the zeros over what a cut has left of a file have come.

use crate::error::ClientError;

/// How zeroing a file goes.
#[derive(Default)]
pub(crate) struct Zeroing {
    /// Somebody is at it here: no mode is taken that lets others in, and no close is told.
    pub(crate) runs: bool,
    /// The service's leave, if the mount needs one and has it.
    pub(crate) number: Option<u64>,
    /// The service was told after a restart what there was of it.
    pub(crate) reclaimed: bool,
    /// Steps made.
    pub(crate) steps: u64,
    /// How often it ended with an error, and the last one.
    pub(crate) failures: u64,
    pub(crate) error: Option<ClientError>,
}
