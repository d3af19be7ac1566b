//! Where a file has bytes, and zeros in their place.
//!
//! What was never written takes no space, and the primaries know where that is. So zeros are laid only where there may
//! be something else, and a whole stripe of zeros gives its space back.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use types::messages::brick::{FindBytes, Span};

use crate::error::ClientError;
use crate::open_file::OpenFile;
use crate::session::Session;

/// Stripes of one extent, in a row: what one question is about.
struct Row {
    first: u64,
    stripes: u32,
}

impl Session {
    /// The ranges of a file's `range` that may have bytes other than zeros: ascending, apart from each other. What is left
    /// out reads as zeros and takes no space.
    ///
    /// Without a live parity slot nobody knows, and everything counts as bytes.
    pub async fn find_bytes(&self, handle: u64, range: Range<u64>) -> Result<Vec<Range<u64>>, ClientError> {
        let file = self.mount.handle(handle)?.file.clone();
        self.follow_if_shared(&file).await?;
        let range = range.start..range.end.min(file.lock().size);
        self.find_in(&file, range).await
    }

    /// As [`Session::find_bytes`], within the file.
    async fn find_in(&self, file: &Arc<OpenFile>, range: Range<u64>) -> Result<Vec<Range<u64>>, ClientError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let stripe = self.stripe_bytes() as u64;
        let stripes = range.start / stripe..range.end.div_ceil(stripe);
        // What is not stable may not have come to a primary yet. It is looked at first: what becomes stable meanwhile
        // is known there.
        let own: BTreeSet<u64> =
            file.lock().stripes.range(stripes.clone()).map(|(stripe, _)| *stripe).collect();
        let mut found: Vec<Range<u64>> =
            own.iter().map(|number| number * stripe..(number + 1) * stripe).collect();
        for row in self.rows(stripes) {
            found.extend(self.find_in_row(file, &row).await?);
        }
        Ok(cut(joined(found), &range))
    }

    /// Cuts stripes at the ends of extents.
    fn rows(&self, stripes: Range<u64>) -> Vec<Row> {
        let most = u64::from(self.mount.geometry().extent_stripes());
        let mut rows = Vec::new();
        let mut first = stripes.start;
        while first < stripes.end {
            let end = ((first / most + 1) * most).min(stripes.end);
            rows.push(Row { first, stripes: (end - first) as u32 });
            first = end;
        }
        rows
    }

    /// Asks the primary, for as long as there is patience.
    async fn find_in_row(&self, file: &Arc<OpenFile>, row: &Row) -> Result<Vec<Range<u64>>, ClientError> {
        let start = row.first * self.stripe_bytes() as u64;
        let key = file.lock().key(row.first);
        let request = |group| FindBytes { group, key, stripes: row.stripes };
        let (found, _) = self.ask_primary_again(key, request).await?;
        let range = |span: &Span| {
            let from = start + u64::from(span.offset);
            from..from + u64::from(span.len)
        };
        Ok(found.ranges.iter().map(range).collect())
    }

    /// Puts zeros in the place of a part of a file; the file does not grow. Whole stripes of it take no space any more.
    /// Returns when the zeros are on their way, or, if the file is shared, when they are stable.
    ///
    /// # Errors
    /// Also those of earlier writes of this file that failed since.
    pub async fn zero(&self, handle: u64, range: Range<u64>) -> Result<(), ClientError> {
        let handle = self.mount.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.heard.before_write(&file.lock().losses)?;
        let stripe = self.stripe_bytes() as u64;
        let window = u64::from(self.mount.geometry().extent_stripes()) * stripe;
        let mut at = range.start;
        loop {
            let _access = self.begin_access(file).await?;
            let end = range.end.min(file.lock().size);
            if at >= end {
                return Ok(());
            }
            // Windows end where extents do.
            let upto = ((at / window + 1) * window).min(end);
            self.zero_window(file, at..upto).await?;
            let may_buffer = file.lock().may_buffer();
            if may_buffer {
                handle.heard.after_write(&file.lock().losses, lost)?;
            } else {
                // It makes no file longer, so it tells of no size.
                self.write_through(&handle, 0, 0, lost).await?;
            }
            at = upto;
        }
    }

    /// Lays zeros over what has bytes in a range of at most one extent, and returns when the primaries know.
    async fn zero_window(&self, file: &Arc<OpenFile>, range: Range<u64>) -> Result<(), ClientError> {
        let found = self.find_in(file, range.clone()).await?;
        let geometry = self.mount.geometry();
        let upto = {
            let mut state = file.lock();
            for (stripe, within, take) in geometry.split(range.start, (range.end - range.start) as usize) {
                let from = stripe * geometry.stripe() as u64 + within as u64;
                let touched = |found: &Range<u64>| found.start < from + take as u64 && from < found.end;
                if found.iter().any(touched) {
                    self.touch(&mut state);
                    self.mount.flow.change(state.lay_zeros(stripe, within, take));
                }
            }
            state.order
        };
        self.make_answered(file, upto).await;
        Ok(())
    }
}

/// Joins ranges that overlap or touch.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The parts of ranges that lie within `bounds`.
fn cut(ranges: Vec<Range<u64>>, bounds: &Range<u64>) -> Vec<Range<u64>> {
    let cut = |range: Range<u64>| range.start.max(bounds.start)..range.end.min(bounds.end);
    ranges.into_iter().map(cut).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_cut() {
        let ranges = joined(vec![10..20, 0..5, 5..7, 15..30, 40..50]);
        assert_eq!(ranges, vec![0..7, 10..30, 40..50]);
        assert_eq!(cut(ranges, &(3..40)), vec![3..7, 10..30]);
        assert_eq!(joined(Vec::new()), vec![]);
    }
}
