//! Errors that say what happened, where, and what to do.

use std::fmt;

/// What happened, and what the reader can do.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

/// An error with its remedy.
pub(crate) fn problem(what: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Problem { what: what.into(), remedy: remedy.into() })
}

/// The remedy of an error, if it has one.
pub(crate) fn remedy(error: &anyhow::Error) -> Option<&str> {
    error.downcast_ref::<Problem>().map(|p| p.remedy.as_str())
}
