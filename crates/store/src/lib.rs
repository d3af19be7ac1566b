//! Units on disks: one brick and its server.
//!
//! # Reading order
//! 1. `slot` and `primary`: what a slot holds and what a primary decides, as pure step machines.
//! 2. `ops/write.rs` and `ops/prepare.rs`: the life of a write; `ops/stage.rs`: how the bytes of a whole stripe come before
//!    it. `ops/read.rs` and `ops/read_stripe.rs`: of a read.
//! 3. `take_over.rs`: what happens when a primary is gone. `recover.rs`: when a brick comes back. `join.rs`: when it had
//!    been away for so long that its slots were Out.
//! 4. `journal.rs`, `table.rs`, `space.rs`: the brick's zones. `checkpoint.rs`: from journal to descriptors.

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
mod ops;
mod pressure;
mod primary;
mod record;
mod recover;
mod server;
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
