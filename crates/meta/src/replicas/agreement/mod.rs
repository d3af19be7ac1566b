//! What a metadata server decides, without files, clock and network. The tasks around this module send, sync and sleep, and ask here.
//! So the same code runs in the product, in the simulated world, and in a search of every order of events (`../model`).
//!
//! | file | what |
//! |---|---|
//! | `core.rs` | what a server that does not lead knows and has promised; its members |
//! | `records.rs` | which records a server has, which new records it takes, and which ones it then knows to be chosen |
//! | `follows.rs` | a follower votes, hears leaders, takes records and whole stores |
//! | `stands.rs` | a follower becomes a candidate, and counts its votes |
//! | `term.rs` | a leader counts records, holds its lease, ends |
//! | `changes.rs` | a leader changes the members |
//!
//! A decision that needs the disk has two halves: the first one says what is to be written, and the second one is called when it is.
//! Moments are in microseconds of the server's clock, as the caller passes them.

mod changes;
mod core;
mod follows;
mod records;
mod stands;
mod term;

pub(crate) use self::core::{Arriving, Members, Promises, ReplicaCore};
use self::core::{is_in, majority};
pub(crate) use follows::{Heeds, Taking, Voting};
pub(crate) use records::{Records, Taken};
pub(crate) use stands::Election;
pub(crate) use term::{Counted, TermCore, has};
