//! The arbiter: bricks and their leases, volumes and their groups, epochs, the cluster map.
//!
//! | what | decided in |
//! |---|---|
//! | which process serves a brick, who is expelled, when a group gets a new epoch | `bricks.rs` |
//! | which brick may take another's place | `replace.rs` |
//! | which bricks a volume's groups are made of | `volumes.rs` |
//! | what is read at the start, and the map that all others are shown | `map.rs` |
//! | what of the map somebody lacks | `map_updates.rs` |
//!
//! Pure: time is passed in, and every change comes back as writes to be committed before anybody is told.

mod bricks;
mod map;
mod map_updates;
mod replace;
#[cfg(test)]
mod tests;
mod volumes;

pub(crate) use map::Cluster;
pub(crate) use volumes::check_disk_size;
