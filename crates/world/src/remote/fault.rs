//! What goes wrong with a remote disk.

use std::io;

/// The end of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// It broke, or the server cannot be had now: that may pass.
    Broken(String),
    /// What the server says or has cannot be served from, now or later.
    Wrong(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Broken(error.to_string())
    }
}

impl Fault {
    pub(super) fn text(self) -> String {
        match self {
            Fault::Broken(text) | Fault::Wrong(text) => text,
        }
    }
}

/// The server answered what makes no sense.
pub(super) fn garbage<T>(what: &str) -> Result<T, Fault> {
    Err(Fault::Wrong(format!("{what}: this is no NBD server, or a broken one; check host, port and server")))
}
