//! A transactional store of ordered keys: committed state behind an [`Engine`], changes gathered by a `Txn`.
//!
//! ```text
//! operation -> Txn (its own writes) -> Store (what was gathered) -> record -> journal: durable, answered
//!                                            |
//!                                            '-> when half the journal is full, all at once -> Engine
//! ```
//!
//! An engine does three things: read a key, read a range, commit a sorted set of writes at once. So a distributed store
//! could replace it.
//!
//! | file | what |
//! |---|---|
//! | `engine.rs`, `redb.rs`, `memory.rs` | the engines |
//! | `disk_space.rs` | what they do when the disk is full |
//! | `error.rs` | their errors |
//! | `store.rs` | the engine, and the newer writes that it does not have yet |
//! | `journal.rs`, `record.rs` | the file in front of the engine, and its records |
//! | `txn.rs` | one operation's view |

mod disk_space;
mod engine;
mod error;
mod journal;
mod memory;
mod record;
mod redb;
mod store;
mod txn;

pub use engine::{Engine, KeyValue};
pub use error::EngineError;
pub use journal::JournalError;
pub use memory::MemoryEngine;
pub use redb::{RedbEngine, reads_stores};

pub(crate) use disk_space::is_no_space;
pub(crate) use engine::{Reader, Writes};
pub(crate) use journal::{Journal, unpacked};
pub(crate) use record::{EncodedRecord, packed};
pub(crate) use store::{Store, writes_of};
pub(crate) use txn::Txn;
