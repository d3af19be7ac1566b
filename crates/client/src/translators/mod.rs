//! Between callers and `paths/`, for speed: the stack of translators that the reads and writes of open files pass.
//!
//! ```text
//!   Session::read, write, flush, fsync                                                 (face/)
//!        |
//!     Mount::join_with ............ what the mount's user adds
//!     auto ........................ settings of this request, from what the file's reads look like
//!     io-cache .................... pages that were read, for the next read
//!     read-ahead .................. bytes that a reader will ask for
//!     disk-cache .................. bytes that were read, on a local disk; only of mounts that have one
//!     write-behind ................ gathers writes and sends them later; the end of the stack
//!        |
//!     paths/ ...................... the bricks
//! ```
//!
//! A translator knows only what is [`Below`] it, and not what that is. It gets the settings with each request, so it can
//! be switched on and off between any two of them. To add one, see CONTRIBUTING.md, "A translator".
//!
//! Access times are gathered here too (atimes.rs), beside the stack.

pub(crate) mod atimes;
pub(crate) mod auto;
pub(crate) mod disk_cache;
pub(crate) mod io_cache;
pub(crate) mod read_ahead;
mod stack;
pub(crate) mod write_behind;

pub(crate) use stack::Stack;
pub use stack::{Answer, Below, Flush, Flushed, MakeTranslator, Read, Translator, Until, Write};
