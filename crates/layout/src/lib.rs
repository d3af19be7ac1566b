//! Where bytes lie: the code, the groups, and the way from an extent to its group. Pure: no I/O, no clock, no chance.
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
//! | `coder.rs` | encode, decode, update of one code |
//! | `matrix.rs`, `gf.rs` | the numbers behind the parity; they decide bytes on disk |
//! | `oracle.rs`, `fast.rs` | the two backends that multiply and add: plain, and as fast as the memory |
//! | `bench.rs` | how fast the backends are here |

#![forbid(unsafe_code)]

mod bench;
mod coder;
mod fast;
mod gf;
mod groups;
mod matrix;
mod oracle;
mod place;

pub use bench::{Access, BenchError, Operation, Row, code_bench};
pub use coder::{Backend, Coder, DecodeError};
pub use groups::{Domain, PlacementError, build_groups, groups_for};
pub use matrix::Matrix;
pub use place::group_of;

use place::mix;
