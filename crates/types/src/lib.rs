//! The words of Shoal: ids, units, limits, errors and the wire.
//!
//! Nothing here does I/O, reads a clock or waits. Every other room speaks in these types.
//!
//! | word | meaning |
//! |---|---|
//! | brick | one storage device of a node (a block device or a file), with an id |
//! | volume | a named file tree with one code |
//! | code `K+M` | K data and M parity units in a stripe |
//! | unit | the part of a stripe on one brick (default 256 KiB) |
//! | stripe | K data units and their M parity units |
//! | extent | 64 stripes in a row of one object: the thing that is placed |
//! | object | the bytes of one file at one data generation; never reused |
//! | group | an ordered list of K+M slots, each naming a brick |
//! | slot | a position in a group: `0..K` data, then parity |
//! | primary | the brick that orders the writes of a group |
//! | epoch | the version of a group's configuration |
//! | unstable / stable | held by client and primary / durable on every live slot that takes part |

#![forbid(unsafe_op_in_unsafe_fn)]

pub mod buf;
pub mod checksum;
pub mod code_probe;
pub mod cost;
mod geometry;
mod ids;
pub mod limits;
pub mod messages;
mod refusal;
mod stripe_set;
pub mod wire;

pub use buf::{Buf, BufMut};
pub use geometry::{Code, Geometry, GeometryError};
pub use ids::*;
pub use refusal::{Refusal, RetryAction};
pub use stripe_set::StripeSet;
