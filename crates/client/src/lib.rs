//! From files to units: open files, write-behind, the paths of writes and reads, retries.
//!
//! All threads of a mounted volume share a [`Mount`]. Each thread uses it through its own [`Session`]. Start reading
//! at `paths/write.rs`, then `paths/read.rs`.
//!
//! # Layers
//! A folder imports only from folders further down in this table, and from `error.rs` (`tests/layers.rs` checks it).
//! Each has a type for the state that all threads share, a type for the use by one thread, or both.
//!
//! | folder | what | type shared by all threads; type of one thread |
//! |---|---|---|
//! | `face/` | the interface for gates: joining and leaving, open files, names, reads, writes, holes | `Mount`; `Session` |
//! | `translators/` | the stack that reads and writes of open files pass: auto, io-cache, read-ahead, disk-cache, write-behind. Accesses are gathered here too. None imports from another, nor from `cuts/` or `modes/` | `AheadQueue`, `DiskCache`; `Stack` |
//! | `cuts/` | truncates files, also shared ones; zeroes bytes left beyond the end | `Zeroings`; `Cuts` |
//! | `modes/` | what other clients allow: recalls of modes, quiesced reads and writes, opens in flight | `ModeState`; `Modes` |
//! | `paths/` | the paths of reads and writes to the servers: read, write, stage, Sync, reports of sizes and closes, search for bytes, attributes | -; `Io` |
//! | `unstable/` | unstable bytes: their budget, which stripe is sent next, which pieces wait for stability | `Unstable`; - |
//! | `routes/` | the cluster map, bricks that do not answer, the lease, requests and their retries | `Routes`; `Link` |
//! | `state/` | plain state: open files, gathered bytes, cached pages, keys of a cache on a disk, what reads look like, settings, lost writes, accesses, options, counters | `OpenFiles`, `PendingAtimes`; - |
//!
//! The buffers of write-behind are in low layers, `state/gather.rs` and `unstable/`, because reads look into them, and
//! Sync, truncations and recalls empty them. `translators/write_behind.rs` fills them and decides when they are sent.
//!
//! Three calls go up, each through a trait or a hook that a higher layer has set:
//!
//! | from | to | why |
//! |---|---|---|
//! | `routes/link.rs` | the trait `routes::Above`, which `modes::Holdings` implements | a request that finds the service restarted joins again first: this reports the open files, and a lost lease closes them. Bytes sent in an old epoch are queued again before waiters see the new map |
//! | `modes/` | [`RecallHook`], set by the gate | the kernel must drop what it caches before the mode is confirmed |
//! | `translators/atimes.rs` | [`AtimeFilter`], set by the gate | only the kernel knows whether reads update access times at its mount point |

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

pub use cache::{CacheError, DiskCacheReport};
pub use error::{ClientError, MountError};
pub use face::holes::Seek;
pub use face::mount::Mount;
pub use face::open::Opened;
pub use face::session::Session;
pub use modes::{RecallHook, Recalled};
pub use pace::Slow;
pub use paths::attrs::SetAttrs;
pub use paths::read::ReadStage;
pub use paths::write::WriteStage;
pub use state::atime::AtimeFilter;
pub use state::counters::Counters;
pub use state::layer_counts::LayerCounters;
pub use state::options::{Encode, MountOptions};
pub use state::pattern::Class;
pub use state::settings::{DiskCaching, Gathering, Settings};
pub use state::slow_requests::{Asked, Server, SlowKind, SlowRequest, SlowSpan};
pub use state::tunings::TuningReport;
pub use translators::{Answer, Below, Flush, Flushed, MakeTranslator, Read, Translator, Until, Write};
