//! Where bytes lie: the code, the groups, and the mapping from an extent to its group. No I/O, no clock, no
//! randomness.
//!
//! ```text
//! extent --group_of--> group --table of build_groups--> K+M bricks
//! stripe --Coder-----> K data units and M parity units, one for each slot of the group
//! ```
//!
//! | file | what |
//! |---|---|
//! | `place.rs` | the stable hash from an extent to its group |
//! | `groups.rs` | the table of groups over failure domains |
//! | `near/` | the same by hops: members around their primary; what a table costs; the tree along which a stripe goes |
//! | `coder.rs` | encode, decode, update of one code |
//! | `matrix.rs`, `gf.rs` | the coefficients of the parity; bytes on disk depend on them |
//! | `topology/` | the network between the nodes: hops, routes, load of links, what fails together |
//! | `oracle.rs`, `fast.rs` | the two backends that multiply and add: a simple one, and one at memory speed |
//! | `bench.rs` | measures the speed of the backends |

#![forbid(unsafe_code)]

mod bench;
mod coder;
mod fast;
mod gf;
mod groups;
mod matrix;
mod near;
mod oracle;
mod place;
pub mod topology;

pub use bench::{Access, BenchError, Operation, Row, code_bench};
pub use coder::{Backend, Coder, DecodeError};
pub use groups::{Domain, PlacementError, build_groups, groups_for};
pub use matrix::Matrix;
pub use near::{
    Placement, PlacementReport, Primaries, Relay, RelayStep, RouteCost, RouteCosts, Scatter, Sender,
    WriteRoute, build_groups_near, repair_path,
};
pub use place::group_of;

use place::mix;
