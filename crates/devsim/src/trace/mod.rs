//! Requests that were recorded elsewhere: the text of blkparse, and the logs of fio.

mod parse;

pub use parse::{Format, Record, Trace, read};
