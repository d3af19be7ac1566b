//! A volume as files, through the kernel's FUSE.
//!
//! ```text
//! kernel --/dev/fuse--> thread 1..n, each with its own ring, connections and client session (local.rs)
//!                          |  translate (filesystem.rs), wait for the answer inline, reply
//!                          +--> what waits for longer: parked, while the thread reads the next request
//! client's background ---> recalled modes: the kernel forgets what it has cached (invalidate.rs)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `mount.rs` | starts and ends a mount |
//! | `filesystem.rs` | every request of the kernel, translated |
//! | `gate.rs` | common parts of the translation of requests |
//! | `answers.rs`, `opening.rs`, `allocate.rs`, `listing.rs`, `naming.rs` | of these: parts of answers, opens, `fallocate`, listings of directories; names that are made, removed and renamed |
//! | `attributes.rs` | attributes in the kernel's format |
//! | `kernel_cache.rs`, `invalidate.rs` | what the kernel may keep in its caches |
//! | `dir_attr_cache.rs` | recent attributes of directories |
//! | `dir_names.rs` | which directory the kernel takes a name for |
//! | `file_names.rs` | by which names the kernel may find a file |
//! | `names_ahead.rs` | names read ahead of a program that removes files |
//! | `open_dirs.rs` | open directories: ends of listings, attributes of removed directories |
//! | `removed.rs` | what is asked about inodes that were removed |
//! | `retries.rs` | what the kernel was asked to look up again |
//! | `special.rs` | pipes, sockets and devices: attributes of removed ones |
//! | `mount_flags.rs` | the mount flags, which `mount -o remount` may change |
//! | `local.rs` | the state of a thread, and its requests that wait |
//! | `interrupts.rs` | what becomes of a request that waits and is interrupted |
//! | `dot_shoal.rs` | the directory `.shoal` in the root of every mount |
//! | `status.rs`, `tune.rs`, `xray.rs`, `why.rs` | its files `status`, `tune`, `xray` and `why` |

mod allocate;
mod answers;
mod attributes;
mod control_handles;
mod dir_attr_cache;
mod dir_names;
mod dot_shoal;
mod file_names;
mod filesystem;
mod gate;
mod interrupts;
mod invalidate;
mod kernel_cache;
mod listing;
mod local;
mod mount;
mod mount_flags;
mod names_ahead;
mod naming;
mod open_dirs;
mod opening;
mod removed;
mod retries;
mod special;
mod status;
mod tune;
mod why;
mod xray;

pub use mount::{FuseError, FuseMount, FuseOptions, Stopper, mount};
