//! Finds which stripes of a file exist, in a range of any length. The cost depends on the number of existing stripes.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use types::messages::brick::FindStripes;
use types::{Buf, Geometry, ObjectId, StripeSet};
use world::CallError;

use crate::error::ClientError;
use crate::paths::Io;
use crate::routes::retry::{RETRY_BUDGET_US, RetryBudget, Verdict, verdict};
use crate::routes::route::QueryTarget;
use crate::state::counters::Counter;
use crate::state::open_file::OpenFile;

/// Bricks that are asked at the same time: each answer may have about 256 KiB.
const ASKED_AT_ONCE: usize = 16;
/// Stripes that are zeroed at the same time.
const ROW: usize = 64;

/// Parts of stripes as `(stripe, offset in it, bytes)`, in batches of bounded size.
pub(crate) struct Rows {
    geometry: Geometry,
    range: Range<u64>,
    stripes: Peekable<std::iter::Flatten<std::vec::IntoIter<Range<u64>>>>,
}

impl Rows {
    /// The parts of some stripes that lie in `range`, in bytes.
    pub(crate) fn new(geometry: Geometry, stripes: Vec<Range<u64>>, range: Range<u64>) -> Rows {
        Rows { geometry, range, stripes: stripes.into_iter().flatten().peekable() }
    }

    /// The next batch; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Vec<(u64, usize, usize)>> {
        self.stripes.peek()?;
        let bytes = self.geometry.stripe() as u64;
        let part = |stripe: u64| {
            let start = stripe * bytes;
            let from = self.range.start.max(start);
            let to = self.range.end.min(start.saturating_add(bytes));
            (stripe, (from - start) as usize, to.saturating_sub(from) as usize)
        };
        Some(self.stripes.by_ref().take(ROW).map(part).filter(|(.., take)| *take > 0).collect())
    }
}

impl Io {
    /// Searches the first part of a range of bytes for stripes that may have bytes, including this mount's own bytes
    /// that no brick has yet. Returns runs of stripes, ascending and apart from each other, and the end of the
    /// searched part.
    pub(crate) async fn find_stripes(
        &self,
        file: &Arc<OpenFile>,
        range: Range<u64>,
    ) -> Result<(Vec<Range<u64>>, u64), ClientError> {
        // Look at own unstable bytes first. Bytes that become stable meanwhile are then found on their brick.
        let (object, bytes, stripes, own) = {
            let state = file.lock();
            let bytes = self.link.routes.geometry_of(state.object).stripe() as u64;
            let stripes = range.start / bytes..range.end.div_ceil(bytes);
            let own = state.stripes.range(stripes.clone()).map(|(stripe, _)| *stripe).collect::<Vec<_>>();
            (state.object, bytes, stripes, own)
        };
        let mut budget = RetryBudget::new(&self.link.world);
        let mut found = loop {
            let version = self.link.routes.map().version;
            match self.ask_for_stripes(object, &stripes).await {
                Ok(found) => break found,
                Err(error) => {
                    tracing::debug!(inode = %file.inode, %error, "cannot search for stripes");
                    self.link.routes.counts.count(Counter::Retries, 1);
                    match verdict(error) {
                        Verdict::Refresh => self.link.refresh_map(version).await,
                        Verdict::Again => {}
                        Verdict::GiveUp(error) => return Err(error),
                    }
                }
            }
            budget.backoff().await?;
        };
        own.into_iter().for_each(|stripe| found.put(stripe));
        Ok((found.runs(), found.upto().saturating_mul(bytes).min(range.end)))
    }

    /// Asks all bricks that may know, once. Primaries come first, because a write that has left the primary's queue
    /// is on the other bricks.
    async fn ask_for_stripes(&self, object: ObjectId, stripes: &Range<u64>) -> Result<StripeSet, CallError> {
        let mut found = StripeSet::new(stripes.clone());
        let query_targets = self.link.routes.map().query_targets(object, stripes);
        let (primaries, others) = query_targets.ok_or(CallError::Unreachable)?;
        for (asked, primary) in [(primaries, true), (others, false)] {
            for some in asked.chunks(ASKED_AT_ONCE) {
                let range = stripes.start..found.upto();
                let each = some.iter().map(|target| self.ask_brick(target, primary, object, range.clone()));
                for answer in join_all(each).await {
                    let (words, upto) = answer?;
                    found.merge(&words, upto);
                }
            }
        }
        Ok(found)
    }

    /// Asks one brick. Gives up as soon as its first group has another epoch, or the way to it leads nowhere.
    async fn ask_brick(
        &self,
        target: &QueryTarget,
        primary: bool,
        object: ObjectId,
        range: Range<u64>,
    ) -> Result<(Vec<(u64, u64)>, u64), CallError> {
        let groups = target.groups.clone();
        let request = FindStripes { groups, primary, object, from: range.start, to: range.end };
        let brick = (target.brick, &*target.address);
        let asking =
            self.link.ask_brick_within(RETRY_BUDGET_US, &target.route, brick, &request, Buf::empty());
        match asking.await? {
            (found, _) if found.upto > range.start => Ok((found.words, found.upto)),
            _ => Err(CallError::BadReply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_bounded_and_cut_to_the_range() {
        let geometry = Geometry::new("2+1".parse().expect("a code"), 4096, 2).expect("a geometry");
        let mut rows = Rows::new(geometry, vec![1..2, 5..105], 8192 + 10..104 * 8192 + 7);
        let first = rows.next().expect("stripes");
        assert_eq!((first.len(), first[0], first[1]), (ROW, (1, 10, 8182), (5, 0, 8192)));
        let second = rows.next().expect("more");
        assert_eq!((second.len(), second.last()), (101 - ROW, Some(&(104, 0, 7))));
        assert!(rows.next().is_none());
    }
}
