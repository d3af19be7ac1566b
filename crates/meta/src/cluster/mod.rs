//! The arbiter: bricks and their leases, volumes and their groups, epochs, the cluster map.
//!
//! | what | decided in |
//! |---|---|
//! | which process serves a brick, who is expelled, when a group gets a new epoch | `bricks.rs` |
//! | which bricks get no lease because others cannot reach them | `reports.rs` |
//! | what a change of a group may do | `epochs.rs` |
//! | which brick may take another's place | `replace.rs` |
//! | how the groups of a restored cluster go on | `recovery.rs` |
//! | which volumes there are | `volumes.rs` |
//! | which bricks a volume's groups are made of | `placement.rs` |
//! | which other shards there are | `shards.rs` |
//! | what the network between the nodes is | `topology.rs` |
//! | the state that is loaded at the start, and the cluster map | `map.rs` |
//! | which changes of the map a caller lacks | `map_updates.rs`, `history.rs` |
//!
//! Pure: the caller passes the time in. Every change returns writes, which must be committed before anybody learns of
//! it.

mod bricks;
mod epochs;
mod history;
mod map;
mod map_updates;
mod placement;
mod recovery;
mod replace;
mod reports;
mod shards;
#[cfg(test)]
mod tests;
mod topology;
mod volumes;

pub(crate) use bricks::NO_LIFE;
pub(crate) use map::Cluster;
pub(crate) use recovery::{FLOOR_STEP, Recovery};
pub(crate) use reports::Judged;
pub(crate) use shards::{is_any, is_callable, is_loopback};
pub(crate) use volumes::check_disk_size;
