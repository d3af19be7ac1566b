//! What goes wrong with a remote disk.

use std::io;

/// The end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RemoteError {
    /// It broke, or the server cannot be had now: that may pass.
    Transient(String),
    /// What the server says or has cannot be served from, now or later.
    Fatal(String),
}

impl From<io::Error> for RemoteError {
    fn from(error: io::Error) -> RemoteError {
        RemoteError::Transient(error.to_string())
    }
}

impl RemoteError {
    pub(super) fn text(self) -> String {
        match self {
            RemoteError::Transient(text) | RemoteError::Fatal(text) => text,
        }
    }
}

/// The server answered what makes no sense.
pub(super) fn protocol_error<T>(what: &str) -> Result<T, RemoteError> {
    Err(RemoteError::Fatal(format!(
        "{what}: this is no NBD server, or a broken one; check host, port and server"
    )))
}
