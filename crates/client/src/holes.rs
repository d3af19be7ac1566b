//! Where a file has bytes, and zeros in their place.
//!
//! What was never written takes no space, and the primaries know where that is. So zeros are laid only where there may
//! be something else, and a whole stripe of zeros gives its space back.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use types::messages::brick::{FindBytes, Span};

use crate::error::ClientError;
use crate::find::Rows;
use crate::session::Session;
use crate::state::open_file::OpenFile;
use crate::state::open_files::Handle;

/// Extents that are asked about at a time. Where there are more, those with bytes are looked for first.
const ROWS_AT_ONCE: usize = 16;
/// Extents that one answer is about, at most.
const ROWS_MAX: usize = 64;

/// What a seek looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// A place with bytes.
    Data,
    /// A place without, or the end of the file.
    Hole,
}

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
        let file = self.handle(handle)?.file.clone();
        self.revalidate_if_shared(&file).await?;
        let range = range.start..range.end.min(file.lock().size);
        self.find_in(&file, range).await
    }

    /// As [`Session::find_bytes`], within the file.
    async fn find_in(&self, file: &Arc<OpenFile>, range: Range<u64>) -> Result<Vec<Range<u64>>, ClientError> {
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (some, upto) = self.find_some(file, at..range.end).await?;
            found.extend(some);
            at = upto;
        }
        Ok(joined(found))
    }

    /// As [`Session::find_in`], for the beginning of a range: also says how far that goes.
    async fn find_some(
        &self,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> Result<(Vec<Range<u64>>, u64), ClientError> {
        let stripe = self.link.routes.stripe_bytes() as u64;
        let stripes = range.start / stripe..range.end.div_ceil(stripe);
        // What is not stable may not have come to a primary yet. It is looked at first: what becomes stable meanwhile
        // is known there.
        let own: BTreeSet<u64> =
            file.lock().stripes.range(stripes.clone()).map(|(stripe, _)| *stripe).collect();
        let most = u64::from(self.link.routes.geometry().extent_stripes()) * ROWS_AT_ONCE as u64;
        let (exist, mut upto) = match stripes.end - stripes.start > most {
            true => self.find_stripes(file, range.clone()).await?,
            false => (vec![stripes], range.end),
        };
        let own = own.iter().map(|number| number * stripe..(number + 1) * stripe);
        let mut found: Vec<Range<u64>> = own.collect();
        let mut rows = self.rows_of(&exist);
        if rows.len() > ROWS_MAX {
            upto = upto.min(rows[ROWS_MAX].first * stripe);
            rows.truncate(ROWS_MAX);
        }
        for some in rows.chunks(ROWS_AT_ONCE) {
            for row in join_all(some.iter().map(|row| self.find_in_row(file, row))).await {
                found.extend(row?);
            }
        }
        Ok((cut(joined(found), &(range.start..upto)), upto))
    }

    /// The rows of runs of stripes.
    fn rows_of(&self, runs: &[Range<u64>]) -> Vec<Row> {
        runs.iter().flat_map(|run| self.rows(run.clone())).collect()
    }

    /// The first place from `offset` on that is what is looked for; `None` if there is none before the end of the file.
    ///
    /// What is found as a hole has no bytes. What is found as data may have none: what is not stable, a unit up to its last
    /// block, and everything while no parity slot lives.
    pub async fn seek(&self, handle: u64, offset: u64, what: Seek) -> Result<Option<u64>, ClientError> {
        let file = self.handle(handle)?.file.clone();
        self.revalidate_if_shared(&file).await?;
        let size = file.lock().size;
        let extent =
            u64::from(self.link.routes.geometry().extent_stripes()) * self.link.routes.stripe_bytes() as u64;
        let mut at = offset;
        // One extent, then more at a time: mostly the answer is near.
        let mut extents = 1_u64;
        while at < size {
            let end = (at / extent).saturating_add(extents).saturating_mul(extent).min(size);
            let (data, upto) = self.find_some(&file, at..end).await?;
            if let Some(place) = first(&data, at..upto, what) {
                return Ok(Some(place));
            }
            at = upto;
            extents = extents.saturating_mul(2);
        }
        Ok(match what {
            Seek::Data => None,
            Seek::Hole => (offset < size).then_some(size),
        })
    }

    /// Cuts stripes at the ends of extents.
    fn rows(&self, stripes: Range<u64>) -> Vec<Row> {
        let most = u64::from(self.link.routes.geometry().extent_stripes());
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
        let start = row.first * self.link.routes.stripe_bytes() as u64;
        let key = file.lock().key(row.first);
        let request = |group| FindBytes { group, key, stripes: row.stripes };
        let (found, _) = self.link.ask_primary_again(key, request).await?;
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
        let handle = self.handle(handle)?;
        if !handle.write {
            return Err(ClientError::BadHandle);
        }
        let file = &handle.file;
        let lost = handle.error_cursor.before_write(&file.lock().wb_errors)?;
        let mut at = range.start;
        loop {
            let end = {
                let _io = self.begin_io(file).await?;
                range.end.min(file.lock().size)
            };
            if at >= end {
                return Ok(());
            }
            let (found, upto) = self.find_some(file, at..end).await?;
            let mut rows = Rows::new(self.link.routes.geometry(), self.stripes_of(&found), at..upto);
            while let Some(row) = rows.next() {
                self.zero_stripes(&handle, row, lost).await?;
            }
            at = upto;
        }
    }

    /// The stripes that ranges touch.
    fn stripes_of(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let stripe = self.link.routes.stripe_bytes() as u64;
        joined(ranges.iter().map(|range| range.start / stripe..range.end.div_ceil(stripe)).collect())
    }

    /// Lays zeros over parts of a bounded number of stripes, as far as the file goes.
    async fn zero_stripes(
        &self,
        handle: &Handle,
        row: Vec<(u64, usize, usize)>,
        lost: u64,
    ) -> Result<(), ClientError> {
        let file = &handle.file;
        let _io = self.begin_io(file).await?;
        let stripe_bytes = self.link.routes.stripe_bytes() as u64;
        let upto = {
            let mut state = file.lock();
            for (stripe, within, take) in row {
                let left = state.size.saturating_sub(stripe * stripe_bytes + within as u64);
                let take = left.min(take as u64) as usize;
                if take > 0 {
                    self.touch(&mut state);
                    self.unstable.flow.change(state.lay_zeros(stripe, within, take));
                }
            }
            state.order
        };
        self.make_answered(file, upto).await;
        let may_buffer = file.lock().may_buffer();
        if may_buffer {
            handle.error_cursor.after_write(&file.lock().wb_errors, lost)?;
        } else {
            // It makes no file longer, so it tells of no size.
            self.write_through(handle, 0, 0, lost).await?;
        }
        Ok(())
    }
}

/// The first place of `range` that is what is looked for; `data` is ascending, apart from each other and within it.
fn first(data: &[Range<u64>], range: Range<u64>, what: Seek) -> Option<u64> {
    let begins = data.first().map(|first| first.start);
    match what {
        Seek::Data => begins,
        Seek::Hole if begins != Some(range.start) => Some(range.start),
        Seek::Hole => data.first().map(|first| first.end).filter(|end| *end < range.end),
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
    fn the_first_of_what_is_looked_for() {
        let data = [10..20, 30..40];
        assert_eq!(first(&data, 0..50, Seek::Data), Some(10));
        assert_eq!(first(&data, 0..50, Seek::Hole), Some(0));
        assert_eq!(first(&data, 10..50, Seek::Hole), Some(20));
        assert_eq!(first(&data[1..], 30..40, Seek::Hole), None, "it may go on");
        assert_eq!(first(&[], 5..9, Seek::Data), None);
        assert_eq!(first(&[], 5..9, Seek::Hole), Some(5));
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let ranges = joined(vec![10..20, 0..5, 5..7, 15..30, 40..50]);
        assert_eq!(ranges, vec![0..7, 10..30, 40..50]);
        assert_eq!(cut(ranges, &(3..40)), vec![3..7, 10..30]);
        assert_eq!(joined(Vec::new()), vec![]);
    }
}
