//! The product from outside: real processes, real disks, real mounts. Needs root and FUSE, and says so.
//!
//! | file | what |
//! |---|---|
//! | `stage.rs` | a directory for one test; everything in it ends with the test, also if it panics |
//! | `script.rs`, `files.rs` | random file operations, on a mount and on a tmpfs, with the same outcome |
//! | `mounts.rs` | several mounts of one volume, and mounts that die |
//! | `exclusive.rs` | mounts that are the only ones of their volume, with the kernel's write-back cache |
//! | `restarts.rs` | stops, crashes and restarts of the cluster |
//! | `damage.rs` | bytes at rest that rot, disks that are somebody else's, disks that are full |
//! | `memory.rs` | what the daemons' memory comes to under load |
//! | `rejoin.rs` | bricks that come back, and others that take the place of lost ones |
//! | `refusals.rs` | wrong commands, wrong keys, wrong bytes |
//! | `story.rs` | the demo |

mod damage;
mod exclusive;
mod files;
mod memory;
mod mounts;
mod refusals;
mod rejoin;
mod restarts;
mod script;
mod stage;
mod story;
