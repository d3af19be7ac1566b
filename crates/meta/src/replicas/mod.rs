//! Several metadata servers with the same store: one leads, the others follow, and any majority of them can go on alone.
//!
//! The journal's numbered records are what they agree on. The protocol is that of Raft (Ongaro and Ousterhout, "In Search of an
//! Understandable Consensus Algorithm", 2014), with one record on its way at a time. So a server has at most one record that
//! may still be replaced, its last; that record is agreed on as a value is in Paxos.
//!
//! ```text
//! follower                     candidate                    leader: `service/` runs here, and nowhere else
//!   | heard nobody for 2 to 3 s   |                            |
//!   |----- Vote, a poll --------->| a majority would           | record N: own journal, Append to all
//!   |----- Vote, in a new term -->| a majority does            | a majority has it: chosen, answered
//!   |                             |--------------------------->| record N + 1
//! ```
//!
//! | file | what |
//! |---|---|
//! | `agreement/` | what all of them decide, without files, clock and network |
//! | `model/` | a search of every order of events (tests) |
//! | `server.rs` | the life of a server: follows, leads, follows |
//! | `copy.rs` | a server's copy: the store, the journal, the vote |
//! | `ballot.rs` | the file with the vote |
//! | `history.rs` | records that others may still need |
//! | `follower.rs`, `election.rs` | takes records, votes; becomes a candidate |
//! | `leader.rs`, `feed.rs` | counts who has what, holds the lease; sends records and the whole store |
//! | `thrifty.rs` | which followers get a record at once, and which a little later |
//! | `hand_over.rs` | a leader lets another one lead |
//! | `members.rs` | servers join and go |
//! | `timing.rs` | how long they wait |
//!
//! # Invariants
//! - A record has a number and a term; two records with the same both are the same. Record N + 1 exists only if N is chosen.
//! - A server that has voted in a term takes nothing of earlier terms. Who has fewer records gets no vote.
//! - A new leader gives its last record its own term and has it chosen before anything else.
//! - Only chosen records go to the engine.
//! - A server that has heard a leader within `ELECTION_US` votes for nobody. A leader answers only within `LEASE_US` of the
//!   last sign of a majority. So no two servers answer at the same time, however long one of them stood still.
//! - A leader that says that its term is over has stopped answering for good: whoever hears it may vote at once.
//! - Members change one at a time, by a record. A leader without whom the members are chosen answers nobody from then on.
//! - One that is the only member leads at once only if the record that made it so is chosen.
//! - What a server with one id has never becomes less: one that lost its store, or was set back, begins again with another id.

mod agreement;
mod ballot;
mod copy;
mod election;
mod feed;
mod follower;
mod hand_over;
mod history;
mod leader;
mod members;
#[cfg(test)]
mod model;
mod server;
#[cfg(test)]
mod tests;
mod thrifty;
mod timing;

pub(crate) use copy::{Opened, is_incomplete, open_store};
pub(crate) use election::Elected;
pub(crate) use leader::Leading;
pub use server::{Server, ServerOptions};
use timing::{APPEND_US, BEAT_US, CALL_US, ELECTION_SPREAD_US, ELECTION_US, LEASE_US, RETRY_US};
