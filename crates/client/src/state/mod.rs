//! Plain state, without I/O and without a clock: open files, their unstable bytes, and what must still be reported.
//! All state that lasts from one step to the next is here, and not in the layers above.

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
pub(crate) mod tunings;
pub(crate) mod wb_errors;
pub(crate) mod zeroing_state;

pub(crate) use lock::lock;
