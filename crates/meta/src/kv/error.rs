//! What can go wrong in an engine.

/// Why an engine failed. After an error, the engine's contents are unknown until it is opened again.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The database could not be opened.
    #[error("the metadata store cannot be opened: {0}")]
    Open(#[source] Box<::redb::DatabaseError>),
    /// Its file could not be opened.
    #[error("the file of the metadata store cannot be opened: {0}")]
    File(#[source] std::io::Error),
    /// Its pages are not as they were written.
    #[error("the metadata store is damaged: {0}")]
    Damaged(String),
    /// Another process has the database open.
    #[error("the metadata store is in use by another process")]
    InUse,
    /// The journal beside the database could not be named.
    #[error("the path of the metadata store is not UTF-8")]
    Path,
    /// The database failed.
    #[error("the metadata store failed: {0}")]
    Failed(#[source] Box<::redb::Error>),
    /// A change is larger than a record of the journal can be.
    #[error("a change of the metadata is too large for the journal")]
    TooLarge,
    /// The journal failed.
    #[error("the metadata journal failed: {0}")]
    Journal(#[source] std::io::Error),
    /// The disk is full. Nothing has changed.
    #[error("the disk of the metadata store is full")]
    Full,
    /// The memory engine was told to fail.
    #[error("the metadata store was told to fail")]
    InjectedFault,
}
