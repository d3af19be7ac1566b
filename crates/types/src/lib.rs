//! The words of Shoal: ids, units, limits, refusals, messages, and their form on the wire.
//!
//! Nothing here does I/O, reads a clock or waits. All other rooms use these types.
//!
//! These are the words to begin with. The whole list is in `docs/ARCHITECTURE.md`.
//!
//! | word | meaning |
//! |---|---|
//! | brick | one storage device of a node (a block device or a file), with an id |
//! | volume | a named file tree with one code |
//! | code `K+M` | K data and M parity units in a stripe |
//! | unit | the part of a stripe on one brick (256 KiB by default) |
//! | stripe | K data units and their M parity units |
//! | extent | 64 consecutive stripes of one object, or all of them: the thing that is placed |
//! | object | the bytes of one file at one data generation; its id is never used again |
//! | group | an ordered list of K+M slots, each of which names a brick |
//! | slot | a position in a group: `0..K` are data, then parity |
//! | primary | the brick that orders the writes of a group |
//! | epoch | the version of a group's configuration |
//! | unstable / stable | held by client and primary / durable on every live slot that takes part |

#![forbid(unsafe_op_in_unsafe_fn)]

pub mod buf;
pub mod checksum;
pub mod code_probe;
pub mod cost;
mod fairness;
mod geometry;
mod ids;
pub mod limits;
pub mod messages;
mod refusal;
mod stripe_set;
pub mod tuning;
pub mod wire;

/// Between the addresses of one server, its *rails*: one for each port or network by which it can be reached.
pub const RAIL: char = '+';

pub use buf::{Buf, BufMut};
pub use fairness::fairness;
pub use geometry::{Code, Geometry, GeometryError};
pub use ids::*;
pub use refusal::{Refusal, RetryAction};
pub use stripe_set::StripeSet;
pub use tuning::Tuning;
