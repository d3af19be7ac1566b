//! Errors of a remote disk.

use std::io;

/// Why a connection ended or could not be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RemoteError {
    /// It broke, or the server is not available now: a later attempt may succeed.
    Transient(String),
    /// The server or its export cannot be used, now or later.
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

/// The server sent an invalid answer.
pub(super) fn protocol_error<T>(what: &str) -> Result<T, RemoteError> {
    Err(RemoteError::Fatal(format!(
        "{what}: this is no NBD server, or a broken one; check host, port and server"
    )))
}
