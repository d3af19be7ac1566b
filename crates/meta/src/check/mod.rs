//! Checks a store's names: everything that is there twice, in two forms or as a count, is compared.
//!
//! The check reads the store as it was at one moment, once, in the order of the keys, and keeps a few tens of bytes for each
//! inode. So it changes nothing and stops nobody. Each fault that it finds comes with the repair, if there is one that loses
//! nothing: values to replace, which the service replaces only if they are still what the check has seen.
//!
//! | file | what |
//! |---|---|
//! | `pairs.rs` | where the keys and values come from |
//! | `fault.rs` | what may be wrong, in words |
//! | `inodes.rs` | what is kept of each inode |
//! | `volume.rs` | the check of one volume, step by step |
//! | `names.rs` | its names, and directories that have two or contain themselves |
//! | `listing.rs` | the two forms of a directory's names against each other |
//! | `whole.rs` | the check of a whole store |

mod fault;
mod inodes;
mod listing;
mod names;
mod pairs;
#[cfg(test)]
pub(crate) mod tests;
mod volume;
mod whole;

pub use fault::{Fault, Found};
pub use pairs::{CheckError, Pairs, is_to_purge, unpacked_pairs};
pub use whole::{Checked, FAULTS_MAX, Held, check};
