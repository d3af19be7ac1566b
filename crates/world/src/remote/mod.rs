//! A disk that another machine lends: the client's side of NBD.
//!
//! ```text
//! Disk: read, write, sync ──▶ ReplayLog: asked, or not covered by a flush ──▶ link: one connection after the other
//!    ▲                           │                                               │ connect, replay, then
//!    └──── completion ───────────┴────────────── replies ◀───────────────────────┴ requests as they come
//! ```
//!
//! The connection may break and the server start anew: what was asked and not answered, and every write that no flush
//! covers, is in the replay log and is sent again, in order. So a sync means what it means on any disk, and nobody above
//! notices more than a pause; one that lasts too long, and every answer that makes no sense, is the loss of the disk.
//! It stands on [`crate::World`], so it runs in the simulated one too, where its servers lose their power.
//!
//! | file | what |
//! |---|---|
//! | `url.rs` | where a disk is |
//! | `disk.rs` | what callers see |
//! | `replay_log.rs` | requests and writes, without I/O |
//! | `link.rs` | the connection: made, lost, made again |
//! | `negotiation.rs` | the negotiation, without I/O |
//! | `error.rs` | what goes wrong |
//! | `completion.rs` | an answer that is waited for |

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
