//! A remote disk, which another machine lends: the client's side of NBD.
//!
//! ```text
//! Disk: read, write, sync ──▶ ReplayLog: asked, or not covered by a flush ──▶ link: one connection after the other
//!    ▲                           │                                               │ connect, replay, then
//!    └──── completion ───────────┴────────────── replies ◀───────────────────────┴ requests as they come
//! ```
//!
//! The connection may break and the server may restart. The replay log has all unanswered requests, and every write
//! that no flush covers. On a new connection they are sent again, in order. So a sync means the same as on any disk,
//! and callers notice only a pause. The disk is lost if the pause is too long, or if an answer is invalid. This
//! module uses only [`crate::World`], so it also runs in simulations, where its servers lose their power.
//!
//! | file | what |
//! |---|---|
//! | `url.rs` | the URL of a disk |
//! | `disk.rs` | the interface for callers |
//! | `replay_log.rs` | unanswered requests and unflushed writes, without I/O |
//! | `link.rs` | connects, and connects again |
//! | `negotiation.rs` | the negotiation, without I/O |
//! | `error.rs` | errors |
//! | `completion.rs` | an answer that a task waits for |

mod completion;
mod disk;
mod error;
mod link;
mod negotiation;
mod replay_log;
mod url;

#[cfg(test)]
mod tests;

pub(crate) use disk::Disk;
pub(crate) use url::is_url;
