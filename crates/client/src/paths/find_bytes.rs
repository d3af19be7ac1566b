//! Finds the ranges of a file that may have bytes other than zeros.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use types::messages::brick::{FindBytes, Span};
use types::{Geometry, ObjectId, StripeKey};

use crate::error::ClientError;
use crate::paths::Io;
use crate::routes::route::Route;
use crate::state::open_file::OpenFile;

/// Extents that are queried at the same time. If there are more, the client first asks which stripes exist.
const ROWS_AT_ONCE: usize = 16;
/// Most extents that one call searches.
const ROWS_MAX: usize = 64;

/// Consecutive stripes of one extent, for one query.
struct Row {
    first: u64,
    stripes: u32,
}

impl Io {
    /// Searches the first part of a range within a file, as `Session::find_bytes`. Also returns the end of the part.
    /// Call it during a read or write (`Modes::begin_io`), so that the file does not move to another tier meanwhile.
    pub(crate) async fn find_some(
        &self,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> Result<(Vec<Range<u64>>, u64), ClientError> {
        let (object, own) = {
            let state = file.lock();
            // Own unstable bytes may not have reached a primary yet. Look at them first: bytes that become stable
            // meanwhile are then found at the primary.
            let stripe = self.link.routes.geometry_of(state.object).stripe() as u64;
            let own = state.stripes.range(range.start / stripe..range.end.div_ceil(stripe));
            (state.object, own.map(|(stripe, _)| *stripe).collect::<BTreeSet<u64>>())
        };
        let geometry = self.link.routes.geometry_of(object);
        let stripe = geometry.stripe() as u64;
        let stripes = range.start / stripe..range.end.div_ceil(stripe);
        let most = u64::from(geometry.search_stripes()) * ROWS_AT_ONCE as u64;
        let is_long = stripes.end - stripes.start > most;
        let map = self.link.routes.map();
        let (exist, mut upto) = match is_long || map.lacks_parity(object, &stripes) {
            true => self.find_stripes(file, range.clone()).await?,
            false => (vec![stripes], range.end),
        };
        let own = own.iter().map(|number| number * stripe..(number + 1) * stripe);
        let mut found: Vec<Range<u64>> = own.collect();
        let mut rows: Vec<Row> = exist.iter().flat_map(|run| rows(&geometry, run.clone())).collect();
        if rows.len() > ROWS_MAX {
            upto = upto.min(rows[ROWS_MAX].first * stripe);
            rows.truncate(ROWS_MAX);
        }
        // Without parity a primary knows no more than that a stripe exists: then all of it counts as bytes.
        let lacks_parity =
            |row: &Row| map.lacks_parity(object, &(row.first..row.first + u64::from(row.stripes)));
        let (whole, rows): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(lacks_parity);
        found.extend(
            whole.iter().map(|row| row.first * stripe..(row.first + u64::from(row.stripes)) * stripe),
        );
        for some in rows.chunks(ROWS_AT_ONCE) {
            for row in join_all(some.iter().map(|row| self.find_in_row(object, &geometry, row))).await {
                found.extend(row?);
            }
        }
        Ok((clip(joined(found), &(range.start..upto)), upto))
    }

    /// Asks the primary, with retries.
    async fn find_in_row(
        &self,
        object: ObjectId,
        geometry: &Geometry,
        row: &Row,
    ) -> Result<Vec<Range<u64>>, ClientError> {
        let start = row.first * geometry.stripe() as u64;
        let key = StripeKey { object, stripe: row.first };
        let request = |route: &Route| FindBytes { group: route.group, key, stripes: row.stripes };
        let (found, _) = self.link.ask_primary_again(key, request).await?;
        let range = |span: &Span| {
            let from = start + u64::from(span.offset);
            from..from + u64::from(span.len)
        };
        Ok(found.ranges.iter().map(range).collect())
    }
}

/// Splits a range of stripes at the ends of extents, or of parts of a whole file.
fn rows(geometry: &Geometry, stripes: Range<u64>) -> Vec<Row> {
    let most = u64::from(geometry.search_stripes());
    let mut rows = Vec::new();
    let mut first = stripes.start;
    while first < stripes.end {
        let end = ((first / most + 1) * most).min(stripes.end);
        rows.push(Row { first, stripes: (end - first) as u32 });
        first = end;
    }
    rows
}

/// The stripes that ranges touch.
pub(crate) fn stripes_of(geometry: &Geometry, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let stripe = geometry.stripe() as u64;
    joined(ranges.iter().map(|range| range.start / stripe..range.end.div_ceil(stripe)).collect())
}

/// Joins ranges that overlap or touch.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
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
fn clip(ranges: Vec<Range<u64>>, bounds: &Range<u64>) -> Vec<Range<u64>> {
    let clip = |range: Range<u64>| range.start.max(bounds.start)..range.end.min(bounds.end);
    ranges.into_iter().map(clip).filter(|range| !range.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_cut() {
        let ranges = joined(vec![10..20, 0..5, 5..7, 15..30, 40..50]);
        assert_eq!(ranges, vec![0..7, 10..30, 40..50]);
        assert_eq!(clip(ranges, &(3..40)), vec![3..7, 10..30]);
        assert_eq!(joined(Vec::new()), vec![]);
    }
}
