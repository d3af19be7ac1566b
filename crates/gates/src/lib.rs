//! The doors through which other software comes in. Each is a thin translation; none decides anything.
//!
//! [`fuse`] shows a volume as files, [`nfs`] to clients of that protocol; [`errno`] is the one table of error numbers.

#![forbid(unsafe_code)]

pub mod errno;
pub mod fuse;
pub mod nfs;
