//! From files to units: open files, write-behind, the paths of writes and reads, retries.
//!
//! All threads of a mounted volume share a [`Mount`]. Each thread uses it through its own [`Session`]. Start reading
//! at `write.rs`, then `read.rs`.
//!
//! | file | what |
//! |---|---|
//! | `write.rs`, `read.rs` | the path of a write, and that of a read |
//! | `stage.rs` | encodes a whole stripe and sends its units straight to their bricks |
//! | `write_behind.rs`, `gather.rs`, `flow.rs` | buffers of written bytes, their budget, and which stripe is sent next |
//! | `stable.rs`, `size_reports.rs` | makes writes stable; reports sizes and closes to the metadata service |
//! | `wb_errors.rs` | writes that were lost, and to which handles that was reported |
//! | `retry.rs`, `route.rs` | retries when a brick does not answer; the mount's view of the cluster map |
//! | `find.rs`, `holes.rs` | finds where a file has bytes, and replaces them by zeros |
//! | `atime.rs` | times of last access |
//! | `lease.rs` | the lease from the metadata service, and recalls of modes |
//! | `open_file.rs`, `open.rs`, `names.rs` | open files, opening and closing them, and names |
//! | `truncate.rs`, `quiesce.rs`, `zeroing.rs` | truncates files, also shared ones; zeroes bytes left beyond the end |

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
