//! Files to units: open files, write-behind, the write and read paths, retries.
//!
//! A [`Mount`] is what all threads of a mounted volume share; a [`Session`] is one thread's way into it. Start reading
//! at `paths/write.rs`, then `paths/read.rs`.
//!
//! # Layers
//! A folder knows only folders further down in this table, and `error.rs` (`tests/layers.rs` checks it). Each has a type
//! of its own for what all threads share, for what one thread uses, or for both.
//!
//! | folder | what | shared; a thread's own |
//! |---|---|---|
//! | `face/` | what gates use: joining and leaving, open files, names, reading, writing, holes | `Mount`; `Session` |
//! | `translators/` | what is done for speed: gathering writes, noting accesses. They know neither each other nor `cuts/`, `modes/` | -; `WriteBehind`, `Atimes` |
//! | `cuts/` | a file's new size, and zeros over what a cut has left | `Zeroings`; `Cuts` |
//! | `modes/` | what others allow: recalled modes, reads and writes that stop for a cut, opens on their way | `ModeState`; `Modes` |
//! | `paths/` | ways to the servers and back: read, write, stage, Sync, sizes and closes, search for bytes, attributes | -; `Io` |
//! | `unstable/` | what is not stable yet: budget, whose turn it is, what waits for stability | `Unstable`; - |
//! | `routes/` | the map, suspects, the lease, asking, how long to try | `Routes`; `Link` |
//! | `state/` | plain state: open files, gathered bytes, losses, accesses, options, counters | `OpenFiles`, `PendingAtimes`; - |
//!
//! The buffers of write-behind lie low, in `state/gather.rs` and `unstable/`, because reads look into them, and Sync,
//! cuts and recalls empty them. `translators/write_behind.rs` fills them and decides when they leave.
//!
//! Three calls go up, each through something given from above:
//!
//! | from | to | why |
//! |---|---|---|
//! | `routes/link.rs` | the trait `routes::Above`, which `modes::Holdings` implements | a request that finds the service restarted joins again before it goes on: for that it needs the open files, and a lost lease takes them; a new map has old epochs' bytes sent again before anybody hears of it |
//! | `modes/` | [`RecallHook`], set by the gate | what the kernel caches is dropped before a mode is confirmed |
//! | `translators/atimes.rs` | [`AtimeFilter`], set by the gate | only the kernel knows whether accesses count at its mount point |

#![forbid(unsafe_code)]

mod cuts;
mod error;
mod face;
mod modes;
mod paths;
mod routes;
mod state;
mod translators;
mod unstable;

pub use error::{ClientError, MountError};
pub use face::holes::Seek;
pub use face::mount::Mount;
pub use face::open::Opened;
pub use face::session::Session;
pub use modes::{RecallHook, Recalled};
pub use paths::attrs::SetAttrs;
pub use paths::read::ReadStage;
pub use paths::write::WriteStage;
pub use state::atime::AtimeFilter;
pub use state::counters::Counters;
pub use state::options::{Encode, MountOptions};
