//! Files to units: open files, write-behind, the write and read paths, retries.
//!
//! A [`Mount`] is what all threads of a mounted volume share; a [`Session`] is one thread's way into it. Start reading
//! at `write.rs`, then `read.rs`.
//!
//! | file | what |
//! |---|---|
//! | `write.rs`, `read.rs` | the two paths |
//! | `stage.rs` | whole stripes, straight to their bricks |
//! | `write_behind.rs`, `gather.rs`, `flow.rs` | buffers, budget, whose turn it is |
//! | `stable.rs`, `size_reports.rs` | Sync with the primaries; sizes and closes with the metadata service |
//! | `wb_errors.rs` | what could not be written, and who has been told |
//! | `retry.rs`, `route.rs` | what happens when a brick does not answer; the map |
//! | `find.rs`, `holes.rs` | where a file has bytes, and zeros instead of them |
//! | `atime.rs` | times of last access |
//! | `lease.rs` | this client's life at the metadata service; modes |
//! | `open_file.rs`, `open.rs`, `names.rs` | files and names |
//! | `truncate.rs`, `quiesce.rs`, `zeroing.rs` | cuts: of files that others have open too, and what they leave |

#![forbid(unsafe_code)]

mod atime;
mod error;
mod find;
mod flow;
mod gather;
mod holes;
mod lease;
mod mount;
mod names;
mod open;
mod open_file;
mod quiesce;
mod read;
mod retry;
mod route;
mod seq_tracker;
mod session;
mod size_reports;
mod stable;
mod stage;
mod truncate;
mod wb_errors;
mod write;
mod write_behind;
mod zeroing;

pub use atime::AtimeFilter;
pub use error::{ClientError, MountError};
pub use holes::Seek;
pub use mount::{Counters, Mount, MountOptions, RecallHook, Recalled};
pub use names::SetAttrs;
pub use open::Opened;
pub use read::ReadStage;
pub use session::Session;
pub use stage::Encode;
pub use write::WriteStage;
