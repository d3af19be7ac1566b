//! A model of the protocol: every order of events, for a few writes on a few slots.
//!
//! The decisions are made by the production code: [`SlotCore`](crate::slot::SlotCore) and
//! [`PrimaryCore`](crate::primary::PrimaryCore), descriptors, records, the code's arithmetic. The code that only
//! waits, sends and retries (`ops/*.rs`, `take_over.rs`, `recover.rs`) is modelled as steps that may happen in any
//! order; each names the function that it stands for. A block has four bytes, and its checksum is the bytes
//! themselves.
//!
//! Reading order: `cluster` (the state, and what may happen), `brick` (one slot: journal, disk, crash), `primary` (a
//! primary), `joins` (a slot comes back), `possible`, `steps` and `primary_steps` (which steps may come next, and what each does), `oracle` (what clients may expect), `invariants` (what must hold in every
//! state), `liveness` (what every state must lead to), `scopes` and `mutants` (the tests).

mod brick;
mod bytes;
mod cluster;
mod fingerprints;
mod invariants;
mod joins;
mod liveness;
mod mutants;
mod oracle;
mod possible;
mod primary;
mod primary_steps;
mod scopes;
mod steps;
