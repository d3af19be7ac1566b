//! The doors for other software. Each gate only translates; it decides nothing.
//!
//! [`fuse`] shows a volume to the kernel as files. [`nbd`] shows a block volume, or one file, as a disk. [`nfs`] serves
//! a volume to NFS clients. [`errno`] is the one table of error numbers. [`control`] tells commands of this machine what a mount
//! or gate does.

#![forbid(unsafe_code)]

pub mod control;
pub mod errno;
pub mod fuse;
pub mod nbd;
pub mod nfs;
mod reply_queue;
mod seats;
