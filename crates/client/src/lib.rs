//! Files to units: open files, write-behind, the write and read paths, retries.
//!
//! A [`Mount`] is what all threads of a mounted volume share; a [`Session`] is one thread's way into it. Start reading
//! at `paths/write.rs`, then `paths/read.rs`.
//!
//! | file | what |
//! |---|---|
//! | `mount.rs`, `session.rs`, `open.rs`, `names.rs`, `read.rs`, `holes.rs` | what gates use |
//! | `write_behind.rs` | bytes are gathered, and leave later |
//! | `atimes.rs`, `background.rs` | times of last access; what no caller waits for |
//! | `truncate.rs`, `zeroing.rs` | cuts, and what they leave |
//! | `modes/` | recalls, and stops for cuts of files that others have open too |
//! | `paths/` | the ways of bytes, sizes and attributes to the servers and back |
//! | `unstable/` | what is not stable yet: pieces, budget, whose turn it is |
//! | `routes/` | the map, the lease, asking, what happens when nobody answers |
//! | `state/` | plain state: open files, gathered bytes, losses, counters |

#![forbid(unsafe_code)]

mod atimes;
mod background;
mod error;
mod holes;
mod modes;
mod mount;
mod names;
mod open;
mod paths;
mod read;
mod routes;
mod session;
mod state;
mod truncate;
mod unstable;
mod write_behind;
mod zeroing;

pub use error::{ClientError, MountError};
pub use holes::Seek;
pub use modes::{RecallHook, Recalled};
pub use mount::Mount;
pub use open::Opened;
pub use paths::attrs::SetAttrs;
pub use paths::read::ReadStage;
pub use paths::write::WriteStage;
pub use session::Session;
pub use state::atime::AtimeFilter;
pub use state::counters::Counters;
pub use state::options::{Encode, MountOptions};
