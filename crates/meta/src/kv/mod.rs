//! A transactional store of ordered keys: committed state behind an [`Engine`], changes gathered by a `Txn`.
//!
//! ```text
//! operation -> Txn (its own writes) -> Writes of the batch -> Engine::commit (durable, all or nothing)
//!                  reads: own writes, then the batch's, then the committed state
//! ```
//!
//! An engine is asked for little: read a key, read a range, commit a sorted set of writes at once. So a journal can come
//! in front of it, or a store that scales out behind it.

mod engine;
mod memory;
mod redb;
mod txn;

pub use engine::{Engine, EngineError};
pub use memory::MemoryEngine;
pub use redb::RedbEngine;

pub(crate) use engine::{Pair, Store, Writes};
pub(crate) use txn::Txn;
