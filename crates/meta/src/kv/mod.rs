//! A transactional store of ordered keys: committed state behind an [`Engine`], changes gathered by a `Txn`.
//!
//! ```text
//! operation -> Txn (its own writes) -> Store (what was gathered) -> record -> journal: durable, answered
//!                                            |
//!                                            '-> when half the journal is full, all at once -> Engine
//! ```
//!
//! An engine is asked for little: read a key, read a range, commit a sorted set of writes at once. So a store that
//! scales out can come in its place.
//!
//! | file | what |
//! |---|---|
//! | `engine.rs`, `redb.rs`, `memory.rs` | what holds the pairs |
//! | `store.rs` | the engine, and what it lacks so far |
//! | `journal.rs`, `record.rs` | the file before the engine, and its records |
//! | `txn.rs` | one operation's view |

mod engine;
mod journal;
mod memory;
mod record;
mod redb;
mod store;
mod txn;

pub use engine::{Engine, EngineError};
pub use journal::JournalError;
pub use memory::MemoryEngine;
pub use redb::RedbEngine;

pub(crate) use engine::{KeyValue, Writes};
pub(crate) use journal::Journal;
pub(crate) use record::EncodedRecord;
pub(crate) use store::{Store, writes_of};
pub(crate) use txn::Txn;
