//! Lines of the log that strangers or peers can cause at any rate.

use std::sync::{Mutex, PoisonError};

/// Time between two lines of one kind, in microseconds.
const PAUSE_US: u64 = 60_000_000;

/// One kind of line. It is written once a minute at most, with the number of those that were left out.
#[derive(Debug, Default)]
pub struct LineLimit(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// Before this time no line is written, in microseconds.
    next_us: u64,
    left_out: u64,
}

impl LineLimit {
    /// A kind of which no line was written yet.
    pub const fn new() -> LineLimit {
        LineLimit(Mutex::new(Lines { next_us: 0, left_out: 0 }))
    }

    /// Whether a line may be written at the time `now_us`: then how many were left out since the last one.
    pub fn admits(&self, now_us: u64) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_us < lines.next_us {
            lines.left_out += 1;
            return None;
        }
        lines.next_us = now_us + PAUSE_US;
        Some(std::mem::take(&mut lines.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_minute_says_how_many_were_left_out() {
        let limit = LineLimit::new();
        assert_eq!(limit.admits(5), Some(0));
        for now in 6..10_000 {
            assert_eq!(limit.admits(now), None);
        }
        assert_eq!(limit.admits(5 + PAUSE_US - 1), None);
        assert_eq!(limit.admits(5 + PAUSE_US), Some(9_995));
        assert_eq!(limit.admits(6 + PAUSE_US), None);
        assert_eq!(limit.admits(5 + 2 * PAUSE_US), Some(1));
    }
}
