//! The path of a read from the bricks to the mount.
//!
//! ```text
//!   Session::read                                                      (face/read.rs)
//!        |
//!     Cut .................. at the end of the file; for a shared file the size is asked for, and a
//!        |                   truncation waits for the read; if one did not wait, the read is repeated
//!        |                                                              (modes/quiesce.rs)
//!     the stack ............ io-cache and read-ahead may have the bytes     (translators/)
//!     Own .................. this mount's own unstable bytes lie over everything else
//!        |                   the rest is split into units
//!     Direct  ReadUnit ----> brick of the unit, all at once if there are several     (read_unit.rs)
//!        |       <--------- bytes; if they are short, the rest is zeros
//!        |                   slot lost, brick silent, late or slow, write undecided, block damaged:
//!     Primary ReadStripe --> primary, which waits or decodes             (read_degraded.rs)
//!        |       <--------- bytes; if they are short, the rest is zeros
//!     Joined ............... one buffer; the bytes of a single unit are passed on without a copy
//! ```

use std::sync::Arc;

use futures_util::future::{join, join_all};
use types::messages::cluster::Mode;
use types::{Buf, BufMut, StripeKey};

use crate::error::ClientError;
use crate::paths::Io;
use crate::paths::read_unit::Direct;
use crate::state::counters::Counter;
use crate::state::open_file::OpenFile;
use crate::state::piece::Body;

/// A stage of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStage {
    /// The range has been limited to the file's size.
    Cut,
    /// This mount's own unstable bytes have been found.
    Own,
    /// The bricks of the units are asked.
    Direct,
    /// The primary is asked.
    Primary,
    /// The bytes are in one buffer.
    Joined,
}

impl std::fmt::Display for ReadStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

/// A range of one unit that must be read from the bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) key: StripeKey,
    /// The slot of the unit.
    pub(crate) slot: usize,
    /// Start of the range in the unit.
    pub(crate) in_unit: usize,
    /// Start of the range in the stripe.
    pub(crate) in_stripe: usize,
    /// Start of the range in the result of the read.
    at: usize,
    /// Bytes of the range.
    pub(crate) len: usize,
}

/// The parts of a read that this mount has, and those that it must fetch.
struct Plan {
    dirty_ranges: Vec<(usize, usize, Body)>,
    parts: Vec<Part>,
}

impl Io {
    /// One attempt to read, with the attributes as they are. `hedge`: what a brick does not send in time is decoded.
    pub(crate) async fn read_once(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
        hedge: bool,
    ) -> Result<Buf, ClientError> {
        let (len, plan) = self.plan(file, offset, len);
        let (own, fetched) = (plan.dirty_ranges.len(), plan.parts.len());
        tracing::debug!(stage = %ReadStage::Own, inode = %file.inode, offset, len, own, fetched, "reading");
        self.link.routes.counts.count(Counter::ReadBytes, len as u64);
        let mut fetched = self.fetch(file, &plan.parts, hedge).await?;
        if let (true, [(_, bytes)]) = (plan.dirty_ranges.is_empty(), fetched.as_mut_slice())
            && bytes.len() == len
        {
            return Ok(std::mem::take(bytes));
        }
        let mut out = BufMut::dirty(len);
        for (part, bytes) in &fetched {
            let (here, missing) = out[part.at..part.at + part.len].split_at_mut(bytes.len());
            here.copy_from_slice(bytes);
            missing.fill(0);
        }
        for (at, len, body) in &plan.dirty_ranges {
            match body {
                Body::Bytes(bytes) => out[*at..at + len].copy_from_slice(bytes),
                Body::Zeros => out[*at..at + len].fill(0),
            }
        }
        Ok(out.freeze())
    }

    /// Limits the range to the file's size, and splits it into parts that are here and parts that must be fetched.
    fn plan(&self, file: &Arc<OpenFile>, offset: u64, len: usize) -> (usize, Plan) {
        let mut plan = Plan { dirty_ranges: Vec::new(), parts: Vec::new() };
        let state = file.lock();
        let geometry = self.link.routes.geometry_of(state.object);
        let len = (len as u64).min(state.size.saturating_sub(offset)) as usize;
        let mut at = 0;
        for (stripe, within, take) in geometry.split(offset, len) {
            // In a shared file, own bytes might hide another client's later write that is already on the bricks.
            let own = state.stripes.get(&stripe).filter(|_| state.mode() != Mode::Shared);
            let dirty_ranges =
                own.map(|writes| writes.dirty_ranges(within, within + take)).unwrap_or_default();
            let mut covered: Vec<_> = dirty_ranges.iter().map(|p| (p.offset, p.offset + p.len)).collect();
            covered.sort_unstable();
            for (from, to) in uncovered(within, within + take, &covered) {
                let mut in_stripe = from;
                for (slot, in_unit, len) in geometry.split_units(from, to - from) {
                    let key = state.key(stripe);
                    plan.parts.push(Part { key, slot, in_unit, in_stripe, at: at + in_stripe - within, len });
                    in_stripe += len;
                }
            }
            plan.dirty_ranges
                .extend(dirty_ranges.into_iter().map(|p| (at + p.offset - within, p.len, p.body)));
            at += take;
        }
        let fetched: usize = plan.parts.iter().map(|p| p.len).sum();
        self.link.routes.counts.count(Counter::OwnBytes, (len - fetched) as u64);
        (len, plan)
    }

    /// Fetches parts, several of them concurrently. Parts that fail are read through the primaries.
    async fn fetch(
        &self,
        file: &OpenFile,
        parts: &[Part],
        hedge: bool,
    ) -> Result<Vec<(Part, Buf)>, ClientError> {
        if let [one] = parts {
            if let Some(direct) = self.direct(*one, hedge)
                && let Some(bytes) = self.read_unit(file, &direct).await
            {
                return Ok(vec![(*one, bytes)]);
            }
            return self.read_degraded(file, vec![*one], 0).await;
        }
        let (mut direct, mut lost) = (Vec::new(), Vec::new());
        for part in parts {
            match self.direct(*part, hedge) {
                Some(way) => direct.push(way),
                None => lost.push(*part),
            }
        }
        let asked = join_all(direct.iter().map(|direct| self.read_unit(file, direct)));
        let (asked, decoded) = join(asked, self.read_degraded(file, lost, 0)).await;
        let mut fetched = decoded?;
        let mut failed = Vec::new();
        for (Direct { part, .. }, bytes) in direct.into_iter().zip(asked) {
            match bytes {
                Some(bytes) => fetched.push((part, bytes)),
                None => failed.push(part),
            }
        }
        fetched.extend(self.read_degraded(file, failed, 0).await?);
        Ok(fetched)
    }
}

/// The parts of `from..to` outside the ranges of `covered` (sorted).
fn uncovered(from: usize, to: usize, covered: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut rest = Vec::new();
    let mut at = from;
    for (start, end) in covered {
        if *start > at {
            rest.push((at, *start));
        }
        at = at.max(*end);
    }
    if at < to {
        rest.push((at, to));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncovered_is_what_is_left() {
        assert_eq!(uncovered(0, 10, &[]), vec![(0, 10)]);
        assert_eq!(uncovered(0, 10, &[(0, 10)]), vec![]);
        assert_eq!(uncovered(0, 10, &[(2, 4), (3, 5), (7, 8)]), vec![(0, 2), (5, 7), (8, 10)]);
        assert_eq!(uncovered(2, 10, &[(2, 4), (9, 10)]), vec![(4, 9)]);
    }
}
