//! Errors of the lab, for its user.

use std::fmt::Display;

/// The result of an operation of the lab.
pub type Result<T> = std::result::Result<T, LabError>;

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program of the system is missing.
    #[error("`{program}` is missing: install {package}")]
    Missing {
        /// What was to be started.
        program: String,
        /// Debian's package of it.
        package: &'static str,
    },
    /// A command of the system failed.
    #[error("`{command}` failed: {said}")]
    Command {
        /// Its words.
        command: String,
        /// What it said, or its exit status.
        said: String,
    },
    /// Something else failed while the lab did something.
    #[error("cannot {doing}: {why}")]
    Failed {
        /// What was to be done.
        doing: String,
        /// The error of the system, or of the other side.
        why: String,
    },
    /// Something was asked for that cannot be.
    #[error("{what}")]
    Refused {
        /// What, and why not.
        what: String,
        /// What can be asked for instead.
        remedy: String,
    },
    /// What a lab's server answered to a request.
    #[error("{0}")]
    Answered(String),
    /// A read returned bytes that differ from those written.
    #[error("{place} returned wrong bytes at {at}")]
    WrongBytes {
        /// What was read.
        place: String,
        /// Offset of the first wrong block, in bytes.
        at: u64,
    },
}

/// The error for something that cannot be, with what could be asked for instead.
pub fn refused(what: impl Into<String>, remedy: impl Into<String>) -> LabError {
    LabError::Refused { what: what.into(), remedy: remedy.into() }
}

/// Converts the error of an operation: `map_err(doing("mount proc"))`.
pub fn doing<E: Display>(what: impl Into<String>) -> impl FnOnce(E) -> LabError {
    let doing = what.into();
    move |error| LabError::Failed { doing, why: error.to_string() }
}
