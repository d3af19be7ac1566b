//! One brick and its server: units on a disk.
//!
//! # Reading order
//! 1. `slot.rs` and `primary.rs`: what a slot holds, and what a primary decides. Both are state machines without I/O.
//! 2. The life of a write: `ops/write.rs`, then `ops/prepare.rs`. For a whole stripe, `ops/stage.rs` takes the units
//!    before the write is ordered.
//! 3. The life of a read: `ops/read.rs`, then `ops/read_stripe.rs`. A slow disk may have a cache: `read_cache.rs`.
//! 4. Failures: `take_over.rs` if a group gets a new epoch, for example because its primary is gone; `recover.rs` if a
//!    brick starts again; `join.rs` if a brick returns whose slots are Out.
//! 5. The zones of the disk: `journal.rs`, `table.rs` (descriptors) and `space.rs` (data blocks). `checkpoint.rs` moves
//!    the state in the journal to the descriptors.

#![forbid(unsafe_code)]

mod checkpoint;
mod descriptor;
mod error;
#[cfg(test)]
mod golden;
mod index;
mod join;
mod journal;
mod lane;
mod member;
#[cfg(test)]
mod model;
mod network;
mod ops;
mod pressure;
mod primary;
mod reach;
mod read_cache;
mod record;
mod recover;
mod served;
mod server;
mod shard;
mod shared_sync;
mod slot;
mod space;
mod stripe_index;
mod superblock;
mod table;
mod take_over;

pub use error::BrickError;
pub use recover::{FormatOptions, format};
pub use server::{Brick, BrickOptions};
pub use superblock::{BRICK_MIN, Superblock};
