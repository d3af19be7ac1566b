//! Plain state: open files and what each of them holds and owes, without I/O, without a clock. Whatever happens between
//! two steps is known here and nowhere above.

pub(crate) mod atime;
pub(crate) mod counters;
pub(crate) mod gather;
mod lock;
pub(crate) mod open_file;
pub(crate) mod open_files;
pub(crate) mod options;
pub(crate) mod piece;
mod reports;
pub(crate) mod seq_tracker;
pub(crate) mod wb_errors;
pub(crate) mod zeroing_state;

pub(crate) use lock::lock;
