//! The doors through which other software comes in. Each is a thin translation; none decides anything.
//!
//! [`fuse`] shows a volume as files, [`nbd`] a volume or a file as a disk, [`nfs`] a volume to clients of that protocol;
//! [`errno`] is the one table of error numbers.

#![forbid(unsafe_code)]

pub mod errno;
pub mod fuse;
pub mod nbd;
pub mod nfs;
mod reply_queue;
