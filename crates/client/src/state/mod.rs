//! Plain state: open files and what each of them holds and owes, without I/O, without a clock. Whatever happens between
//! two steps is known here and nowhere above.

pub(crate) mod atime;
pub(crate) mod counters;
pub(crate) mod gather;
pub(crate) mod open_file;
pub(crate) mod open_files;
pub(crate) mod options;
pub(crate) mod piece;
mod reports;
pub(crate) mod seq_tracker;
pub(crate) mod wb_errors;
pub(crate) mod zeroing_state;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is whole at any time, also after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
