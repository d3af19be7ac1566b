//! A volume as files, through the kernel's FUSE.
//!
//! ```text
//! kernel --/dev/fuse--> thread 1..n, each with its own ring, connections and client session (local.rs)
//!                          |  translate (filesystem.rs), wait for the answer inline, reply
//!                          +--> what may wait for another client: a spare thread (spare.rs)
//! client's background ---> recalled modes: the kernel forgets what it has cached (forget.rs)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `mount.rs` | beginning and end of a mount |
//! | `filesystem.rs` | every request of the kernel, translated |
//! | `gate.rs` | what the translation of requests has in common |
//! | `attributes.rs` | attributes in the kernel's words |
//! | `versions.rs`, `forget.rs` | what the kernel may keep in its caches |
//! | `directories.rs` | what was heard of directories a moment ago |
//! | `listings.rs` | open directories: where listings have ended, what is left of removed ones |
//! | `special.rs` | pipes, sockets and devices: what is left of removed ones |
//! | `flags.rs` | what `mount -o remount` has said |
//! | `spare.rs` | threads for requests that may wait long |
//! | `local.rs` | what a thread owns |
//! | `status.rs` | the file `.shoal/status` in the root of every mount |

mod attributes;
mod directories;
mod filesystem;
mod flags;
mod forget;
mod gate;
mod listings;
mod local;
mod mount;
mod spare;
mod special;
mod status;
mod versions;

pub use mount::{FuseError, FuseMount, FuseOptions, Stopper, mount};
