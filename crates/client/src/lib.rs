//! Files to units: open files, write-behind, the write and read paths, retries.
//!
//! A [`Mount`] is what all threads of a mounted volume share; a [`Session`] is one thread's way into it. Start reading
//! at `write.rs`, then `read.rs`.
//!
//! | file | what |
//! |---|---|
//! | `write.rs`, `read.rs`, `read_degraded.rs` | the two paths |
//! | `stage.rs` | whole stripes, straight to their bricks |
//! | `write_behind.rs` | bytes are gathered, and leave later |
//! | `stable.rs`, `size_reports.rs` | Sync with the primaries; sizes and closes with the metadata service |
//! | `find.rs`, `holes.rs` | where a file has bytes, and zeros instead of them |
//! | `mount.rs`, `session.rs`, `open.rs`, `names.rs` | files and names |
//! | `atimes.rs`, `background.rs` | times of last access; what no caller waits for |
//! | `truncate.rs`, `zeroing.rs` | cuts, and what they leave |
//! | `modes/` | recalls, and stops for cuts of files that others have open too |
//! | `unstable/` | what is not stable yet: pieces, budget, whose turn it is |
//! | `routes/` | the map, the lease, asking, what happens when nobody answers |
//! | `state/` | plain state: open files, gathered bytes, losses, counters |

#![forbid(unsafe_code)]

mod atimes;
mod background;
mod error;
mod find;
mod holes;
mod modes;
mod mount;
mod names;
mod open;
mod read;
mod read_degraded;
mod routes;
mod session;
mod size_reports;
mod stable;
mod stage;
mod state;
mod truncate;
mod unstable;
mod write;
mod write_behind;
mod zeroing;

pub use error::{ClientError, MountError};
pub use holes::Seek;
pub use modes::{RecallHook, Recalled};
pub use mount::Mount;
pub use names::SetAttrs;
pub use open::Opened;
pub use read::ReadStage;
pub use session::Session;
pub use state::atime::AtimeFilter;
pub use state::counters::Counters;
pub use state::options::{Encode, MountOptions};
pub use write::WriteStage;
