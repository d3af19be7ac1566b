//! A volume as files, through the kernel's FUSE.
//!
//! ```text
//! kernel --/dev/fuse--> thread 1..n, each with its own ring, connections and client session (local.rs)
//!                          |  translate (filesystem.rs), wait for the answer inline, reply
//!                          +--> what may wait for another client: a spare thread (spare.rs)
//! client's background ---> recalled modes: the kernel forgets what it has cached (invalidate.rs)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `mount.rs` | beginning and end of a mount |
//! | `filesystem.rs` | every request of the kernel, translated |
//! | `gate.rs` | what the translation of requests has in common |
//! | `attributes.rs` | attributes in the kernel's words |
//! | `kernel_cache.rs`, `invalidate.rs` | what the kernel may keep in its caches |
//! | `dir_attr_cache.rs` | what was heard of directories a moment ago |
//! | `open_dirs.rs` | open directories: where listings have ended, what is left of removed ones |
//! | `special.rs` | pipes, sockets and devices: what is left of removed ones |
//! | `mount_flags.rs` | what `mount -o remount` has said |
//! | `spare.rs` | threads for requests that may wait long |
//! | `local.rs` | what a thread owns |
//! | `status.rs` | the file `.shoal/status` in the root of every mount |

mod attributes;
mod dir_attr_cache;
mod filesystem;
mod gate;
mod invalidate;
mod kernel_cache;
mod local;
mod mount;
mod mount_flags;
mod open_dirs;
mod spare;
mod special;
mod status;

pub use mount::{FuseError, FuseMount, FuseOptions, Stopper, mount};
