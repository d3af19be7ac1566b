//! The protocol in small: every order of events, for a few writes on a few slots.
//!
//! What decides is the code that runs in production: [`SlotCore`](crate::slot::SlotCore) and
//! [`PrimaryCore`](crate::primary::PrimaryCore), descriptors, records, the code's arithmetic. What only waits, sends and
//! retries there (`ops/*.rs`, `take_over.rs`, `recover.rs`) is told again here as steps that may happen in any order; each
//! names the function that it stands for. A block has four bytes, its checksum is the bytes themselves.
//!
//! Reading order: `cluster` (the state, and what may happen), `brick` (one slot: journal, disk, crash), `primary` (a primary),
//! `joins` (a slot comes back), `oracle` (what the outside may expect), `invariants` (what must hold in every state), `liveness` (what
//! must come of every state), `scopes` and `mutants` (the tests).

mod brick;
mod bytes;
mod cluster;
mod fingerprints;
mod invariants;
mod joins;
mod liveness;
mod mutants;
mod oracle;
mod primary;
mod scopes;
mod steps;
