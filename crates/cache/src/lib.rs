//! A cache on a local disk: bytes that came from somewhere slower, under keys whose bytes never change. It may be lost at any
//! moment.
//!
//! Mounts keep what they have read of files in one, and bricks what they have read of a slow disk. Who uses a cache says
//! what a key is, decides what is added, and reads elsewhere what is not found.
//!
//! ```text
//!   read -- index: which blocks are there --+-- disk: key, length and checksum of each block are right --> reader
//!                                           `-- nothing: the owner reads elsewhere, and may add it
//!                                                   `-- queue, if there is room
//!   serve:  queue --> cell of the chunk --> index --> table, every few seconds
//! ```
//!
//! A reader waits for this disk only to read what is there, and not for long. Nothing is synced but the header of a new
//! cache: what a crash leaves is checked when it is read. After an error the cache is off until the next start.

#![forbid(unsafe_code)]

mod disk_cache;
mod error;
mod file;
mod format;
mod index;
mod key;

pub use disk_cache::{DiskCache, DiskCacheReport, Fill, Wanted};
pub use error::CacheError;
pub use file::CacheFile;
pub use format::{BLOCK, BLOCKS, CHUNK, CacheOwner, STRIDE};
pub use key::{KEY_BYTES, Key};
