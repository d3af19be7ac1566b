//! A model of the agreement: every order of events, for a few servers, terms and records.
//!
//! The decisions are made by the production code, [`ReplicaCore`](super::agreement::ReplicaCore) and
//! [`TermCore`](super::agreement::TermCore). The tasks that only send, sync and sleep (`../follower/`, `../election.rs`,
//! `../feed.rs`, `../leader.rs`, `../members.rs`, `../hand_over.rs`, `../../service/committer.rs`) are modelled as steps that may
//! happen in any order.
//!
//! **Messages.** What a candidate or a leader has sent stays: it may be delivered to any server, at any time, any number of times, or
//! never. Its answer is there at once, but the candidate may lead, and the leader may count, at any later time. Polls are left out: any
//! server that hears no leader may stand. A leader that leads no more and does nothing is as one that still leads and does nothing,
//! so it ends its term when it stands again, or hears of a newer term.
//!
//! **Disks.** A write is begun, in the page cache, or synced. A process that ends loses what it has only begun; a power cut loses what
//! is not synced.
//!
//! **Time.** There is no clock. [`NOW`](state::NOW) never changes, and a moment is either now or so long ago that every lease from then
//! has run out. A lease is what the leader knows of a follower: that one was heard now. A follower becomes free to vote in a step of
//! its own, after which every lease that rests on it has run out.
//!
//! Reading order: `state`, `scope` (the bounds, and what may happen), `disk`, `follows`, `leads`, `changes`, `invariants`, `liveness`,
//! `searches` and `mutants` (the tests).

mod changes;
mod disk;
mod follows;
mod invariants;
mod leads;
mod liveness;
mod mutants;
mod scope;
mod searches;
mod state;
