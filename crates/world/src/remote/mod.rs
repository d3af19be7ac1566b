//! A disk that another machine lends: the client's side of NBD.
//!
//! ```text
//! Disk: read, write, sync ──▶ Ledger: what is asked, what no flush covers ──▶ link: one connection after the other
//!    ▲                           │                                               │ enter, send again, then
//!    └──── promise kept ─────────┴────────────── replies ◀───────────────────────┴ requests as they come
//! ```
//!
//! The connection may break and the server start anew: what was asked and not answered, and every write that no flush
//! covers, is in the ledger and is sent again, in order. So a sync means what it means on any disk, and nobody above
//! notices more than a pause; one that lasts too long, and every answer that makes no sense, is the loss of the disk.
//! It stands on [`crate::World`], so it runs in the simulated one too, where its servers lose their power.
//!
//! | file | what |
//! |---|---|
//! | `url.rs` | where a disk is |
//! | `disk.rs` | what callers see |
//! | `ledger.rs` | requests and writes, without I/O |
//! | `link.rs` | the connection: made, lost, made again |
//! | `entry.rs` | the negotiation, without I/O |
//! | `fault.rs` | what goes wrong |
//! | `promise.rs` | an answer that is waited for |

mod disk;
mod entry;
mod fault;
mod ledger;
mod link;
mod promise;
mod url;

#[cfg(test)]
mod tests;

pub(crate) use disk::Disk;
pub(crate) use url::is_url;
