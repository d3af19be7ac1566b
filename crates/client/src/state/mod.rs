//! Plain state, without I/O and without a clock: open files, their unstable bytes, and what must still be reported.
//! All state that lasts from one step to the next is here, and not in the layers above.

pub(crate) mod ahead;
pub(crate) mod atime;
pub(crate) mod chunk_key;
pub(crate) mod coders;
pub(crate) mod content_version;
pub(crate) mod counters;
pub(crate) mod gather;
pub(crate) mod layer_counts;
mod lock;
pub(crate) mod loss;
pub(crate) mod noted;
pub(crate) mod open_file;
pub(crate) mod open_files;
pub(crate) mod options;
pub(crate) mod page_cache;
pub(crate) mod pattern;
pub(crate) mod piece;
pub(crate) mod reports;
pub(crate) mod seq_tracker;
pub(crate) mod settings;
pub(crate) mod slow_requests;
pub(crate) mod streams;
pub(crate) mod tunings;
pub(crate) mod wb_errors;
pub(crate) mod write_log;
pub(crate) mod zeroing_state;

pub(crate) use lock::lock;
